"""Between the browser and the pages: the server, its guard, sign-in, and work done before a page asks for it."""

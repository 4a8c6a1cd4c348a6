"""What stands between a browser and the pages: the server, its guard, and what it sends or does before anybody asks."""

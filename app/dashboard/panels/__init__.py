"""Parts of pages: what several pages share, and what is large enough to be read by itself. A panel shows; a page arranges."""

"""Pages for a browser: their shared shell, and the parts of each kind of page."""

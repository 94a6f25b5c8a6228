"""Pages for a browser: what they share, and the parts of each kind of page."""

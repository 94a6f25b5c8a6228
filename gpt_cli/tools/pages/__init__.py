"""Web pages: the shell that all of them share, and the parts of each kind of page."""

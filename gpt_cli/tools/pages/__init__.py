"""Web pages: the HTML frame `shell.html` that all pages share, and the HTML, CSS and scripts of each kind of page."""

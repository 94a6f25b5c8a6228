"""Reports of runs, as curves, tables, pictures and a page. Needs no torch."""

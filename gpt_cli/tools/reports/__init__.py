"""What runs have left, as curves, tables, pictures and a page. Needs no torch."""

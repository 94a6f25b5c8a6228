"""Code that all other packages use: files, results, tables, languages, drawing, the machine."""

__version__ = "0.2.0"

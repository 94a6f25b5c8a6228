"""What all other packages use: files, results, tables, languages, drawing, the machine. Imports nothing."""

__version__ = "0.2.0"

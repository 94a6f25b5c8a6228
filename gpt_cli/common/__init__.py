"""Modules that all other packages use, for files, results of commands, tables, translation, drawing and hardware."""

__version__ = "0.3.0.dev0"

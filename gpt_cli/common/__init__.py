"""The common ground: files, results, tables, languages, drawing, the machine."""

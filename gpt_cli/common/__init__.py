"""What all other packages use: files, results, tables, languages, drawing, the machine."""

"""Draw pictures; choose fonts, labels and colours for pictures, pages, tables and terminals."""

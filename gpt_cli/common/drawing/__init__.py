"""Canvas, fonts, labels and colours of pictures, pages, tables and terminals."""

"""What pictures, pages, tables and terminals are drawn with: a canvas, fonts, labels and colours."""

"""Where the heads of a model look, as files, pictures, pages and drawings in the terminal."""

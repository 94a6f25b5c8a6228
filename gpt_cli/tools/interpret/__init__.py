"""Attention of the heads of a model as files, pictures, pages and drawings in the terminal."""

"""Models of other programs: runs written as directories of transformers, and such directories read as runs."""

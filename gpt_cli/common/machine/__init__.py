"""This machine: its devices, its memory, and the programs it is shared with."""

"""The command line: the only layer that knows typer and the terminal."""

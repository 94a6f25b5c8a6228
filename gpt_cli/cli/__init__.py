"""The command line: the only layer that knows typer, tqdm and the terminal."""

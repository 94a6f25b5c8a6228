"""Loggers that people already use: each has a process that follows the files of a run, and cannot stop or slow it."""

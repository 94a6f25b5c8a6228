"""Packages that export, import, explain, inspect and benchmark models, and that log, sweep and compare trainings."""

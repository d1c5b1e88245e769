"""Studies: a grid of runs from one file, run by workers that may die, read back as tables."""

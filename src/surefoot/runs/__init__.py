"""Runs on disk: the folder of a run with its records, journal, checkpoints and lock; one reader, one writer."""

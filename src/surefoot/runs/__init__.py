"""Runs on disk: records, journals, checkpoints and lock of a run's folder, with one reader and one writer."""

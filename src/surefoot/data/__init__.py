"""Data that is always there, and loaders for what is not."""

"""Data sets by name: an embedded one, readers of the official files, and preparation for training."""

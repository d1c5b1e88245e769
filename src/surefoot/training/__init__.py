"""Training runs: one loop for every optimizer, a journal and checkpoints that survive anything, a tracker."""

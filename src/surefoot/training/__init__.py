"""Training runs: one loop for every step rule, a journal and checkpoints that survive anything, a tracker."""

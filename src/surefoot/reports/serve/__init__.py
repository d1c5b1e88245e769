"""The live page: watch a folder, tell browsers on this machine what changed. It reads, and never writes. No torch."""

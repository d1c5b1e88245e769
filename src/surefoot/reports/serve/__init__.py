"""The live page: watch a folder and tell browsers on this machine what changed. The server never writes. No torch."""

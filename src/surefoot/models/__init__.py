"""Networks of both papers."""

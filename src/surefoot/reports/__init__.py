"""Figures, tables and pages drawn from readings and metrics."""

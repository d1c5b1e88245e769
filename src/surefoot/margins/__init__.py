"""Margins: how far the true class stands above its best rival."""

from surefoot.margins.moments import log_moment

__all__ = ["log_moment"]

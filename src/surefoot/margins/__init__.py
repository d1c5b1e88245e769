"""Margins: how far the true class stands above its best rival, at an input and over a ball around it."""

from surefoot.margins.certified import certified
from surefoot.margins.lipschitz import lipschitz
from surefoot.margins.moments import log_moment, tail
from surefoot.margins.pgd import pgd
from surefoot.margins.robust import robust

__all__ = ["certified", "lipschitz", "log_moment", "pgd", "robust", "tail"]

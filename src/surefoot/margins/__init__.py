"""Margins: the true class's logit minus the largest other logit, at an input or minimised over a ball around it."""

from surefoot.margins.certified import certified
from surefoot.margins.lipschitz import lipschitz
from surefoot.margins.moments import log_moment, tail
from surefoot.margins.pgd import pgd
from surefoot.margins.robust import robust

__all__ = ["certified", "lipschitz", "log_moment", "pgd", "robust", "tail"]

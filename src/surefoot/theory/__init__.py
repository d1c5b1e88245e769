"""Theorems of both papers as running code: what is proved, what is only estimated, and how tight it is."""

from surefoot.theory.certificate import Certificate, Hypothesis
from surefoot.theory.certify import certify
from surefoot.theory.sam import SamStep, largest_rho, sam_certificates, sam_step
from surefoot.theory.transfer import coverage

__all__ = [
    "Certificate",
    "Hypothesis",
    "SamStep",
    "certify",
    "coverage",
    "largest_rho",
    "sam_certificates",
    "sam_step",
]

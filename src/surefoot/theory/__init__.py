"""Theorems of Morosini et al. (2026) and Tan et al. (2026) as code: hypotheses, both sides, slack and verdict."""

from surefoot.theory.certificate import Certificate, Certificates, Hypothesis
from surefoot.theory.certify import certify
from surefoot.theory.sam import SamStep, largest_rho, sam_certificates, sam_step
from surefoot.theory.transfer import coverage

__all__ = [
    "Certificate",
    "Certificates",
    "Hypothesis",
    "SamStep",
    "certify",
    "coverage",
    "largest_rho",
    "sam_certificates",
    "sam_step",
]

from torch.optim import SGD, AdamW

from surefoot.optim import schedules
from surefoot.optim.bsam import BSAM
from surefoot.optim.bulk import BulkSGD, DomSGD
from surefoot.optim.gd import GD
from surefoot.optim.muon import Muon, orthogonalise
from surefoot.optim.sam import ASAM, CSAM, SAM, VASSO, OuterLoss, confidence_weight
from surefoot.optim.two_pass import TwoPass

__all__ = [
    "ASAM",
    "BSAM",
    "CSAM",
    "GD",
    "SAM",
    "SGD",
    "VASSO",
    "AdamW",
    "BulkSGD",
    "DomSGD",
    "Muon",
    "OuterLoss",
    "TwoPass",
    "confidence_weight",
    "orthogonalise",
    "schedules",
]

from surefoot.loss import CrossEntropy, Loss, SquaredError, as_loss
from surefoot.losses.ada_focal import AdaFocal
from surefoot.losses.ar_adals import ARAdaLS
from surefoot.losses.batch_gaps import MDCA, MMCE, SoftECE
from surefoot.losses.calmo import CalMO
from surefoot.losses.cross_entropy import ConfidencePenalty, LabelSmoothing
from surefoot.losses.focal import FLSD53, DualFocal, Focal, focal_gamma
from surefoot.losses.logit_margins import ACLS, MbLS
from surefoot.losses.margin_tail import MarginTail
from surefoot.losses.mixing import MITL, Mixup
from surefoot.losses.objective import Batch, Objective, Validation, as_objective
from surefoot.losses.pairwise import CPC
from surefoot.losses.ranking import CRL
from surefoot.losses.two_heads import BalCAL

__all__ = [
    "ACLS",
    "CPC",
    "CRL",
    "FLSD53",
    "MDCA",
    "MITL",
    "MMCE",
    "ARAdaLS",
    "AdaFocal",
    "BalCAL",
    "Batch",
    "CalMO",
    "ConfidencePenalty",
    "CrossEntropy",
    "DualFocal",
    "Focal",
    "LabelSmoothing",
    "Loss",
    "MarginTail",
    "MbLS",
    "Mixup",
    "Objective",
    "SoftECE",
    "SquaredError",
    "Validation",
    "as_loss",
    "as_objective",
    "focal_gamma",
]

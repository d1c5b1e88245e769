"""When the world changes: corruptions of images, foreign data, and how calibration holds up."""

from surefoot.shift.corruptions import CORRUPTIONS, EXTRA, corrupt
from surefoot.shift.scores import SCORES, auroc_ood, fpr95_ood, ood_scores

__all__ = ["CORRUPTIONS", "EXTRA", "SCORES", "auroc_ood", "corrupt", "fpr95_ood", "ood_scores"]

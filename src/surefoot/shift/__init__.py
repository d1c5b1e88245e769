"""Distribution shift: corruptions of images, scores for out-of-distribution (OOD) data, and calibration under both."""

from surefoot.shift.corruptions import CORRUPTIONS, EXTRA, corrupt
from surefoot.shift.scores import SCORES, auroc_ood, fpr95_ood, ood_scores

__all__ = ["CORRUPTIONS", "EXTRA", "SCORES", "auroc_ood", "corrupt", "fpr95_ood", "ood_scores"]

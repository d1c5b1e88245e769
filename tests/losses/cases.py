"""Every loss of logits and labels, and every objective, with settings at which all of its parts are at work."""

import torch

import surefoot as sf
from surefoot.losses import Batch


def ada_focal(**options):
    loss = sf.losses.AdaFocal(bins=4, **options)
    loss.gammas.copy_(torch.tensor([3.0, 0.5, -0.7, -2.0]))
    return loss


LOSSES = {
    "ce": sf.losses.CrossEntropy,
    "mse": sf.losses.SquaredError,
    "mse-half": lambda **options: sf.losses.SquaredError("half", **options),
    "label-smoothing": sf.losses.LabelSmoothing,
    "confidence-penalty": sf.losses.ConfidencePenalty,
    "focal": sf.losses.Focal,
    "focal half": lambda **options: sf.losses.Focal(0.5, **options),
    "focal p0": lambda **options: sf.losses.Focal(p0=0.25, **options),
    "flsd-53": sf.losses.FLSD53,
    "dual-focal": sf.losses.DualFocal,
    "ada-focal": ada_focal,
    "mbls": lambda **options: sf.losses.MbLS(margin=0.7, **options),
    "acls": lambda **options: sf.losses.ACLS(margin=0.7, others=0.0, **options),  # the other term has its own test
    "mmce": sf.losses.MMCE,
    "mmce legacy": lambda **options: sf.losses.MMCE(legacy=True, weight=100.0, **options),
    "mdca": sf.losses.MDCA,
    "cpc": sf.losses.CPC,
    "soft-ece": sf.losses.SoftECE,
    "soft-ece 1": lambda **options: sf.losses.SoftECE(norm=1, **options),
}

# With these each is the cross-entropy.
NOTHING = {
    "label-smoothing": sf.losses.LabelSmoothing(0.0),
    "confidence-penalty": sf.losses.ConfidencePenalty(0.0),
    "focal": sf.losses.Focal(0.0),
    "dual-focal": sf.losses.DualFocal(0.0),
    "mbls": sf.losses.MbLS(alpha=0.0),
    "mbls far": sf.losses.MbLS(margin=1e6),
    "acls": sf.losses.ACLS(alpha=0.0),
    "acls far": sf.losses.ACLS(margin=1e6),
    "mmce": sf.losses.MMCE(0.0),
    "mdca": sf.losses.MDCA(0.0),
    "cpc": sf.losses.CPC(0.0, 0.0),
    "soft-ece": sf.losses.SoftECE(0.0),
}


def examples(n=7, k=5, seed=0, dtype=torch.float64):
    """Logits and labels, some right and some wrong."""
    random = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, k, generator=random, dtype=torch.float64)
    labels = torch.randint(0, k, (n,), generator=random)
    labels[: n // 2] = logits[: n // 2].argmax(dim=1)
    return logits.to(dtype), labels


def network(features=6, classes=5, norm=False, dropout=0.0, seed=0):
    """Two layers in float64; smooth, so that second derivatives can be checked."""
    torch.manual_seed(seed)
    layers = [torch.nn.Linear(features, 8), torch.nn.Tanh()]
    layers += [torch.nn.BatchNorm1d(8)] if norm else []
    layers += [torch.nn.Dropout(dropout)] if dropout else []
    return torch.nn.Sequential(*layers, torch.nn.Linear(8, classes)).double()


def batch(n=12, features=6, classes=5, seed=0, step=0):
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(n, features, generator=random, dtype=torch.float64)
    return Batch(x, torch.randint(0, classes, (n,), generator=random), torch.arange(n), step)


OBJECTIVES = {
    "calmo": lambda: sf.losses.CalMO(eps=0.3),
    "calmo flat": lambda: sf.losses.CalMO(robust=0.0),
    "calmo robust": lambda: sf.losses.CalMO(eps=0.3, smooth=0.0),
    "margin-tail": lambda: sf.losses.MarginTail(eps=0.1),
    "margin-tail log": lambda: sf.losses.MarginTail(eps=0.1, norm=2, form="log", tau=0.5, runner_ups=3),
    "crl": lambda: sf.losses.CRL(12),
    "mixup": sf.losses.Mixup,
    "mit-l": sf.losses.MITL,
    "balcal": lambda: sf.losses.BalCAL(5),
    "ar-adals": lambda: sf.losses.ARAdaLS(12, groups=3),
}

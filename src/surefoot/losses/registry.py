"""The one table of losses, and how a spec's name becomes an objective. No torch until one is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from surefoot.errors import BadInput
from surefoot.registry import MOROSINI2026, Citation, LossEntry, table
from surefoot.validation import check_options, suggest

if TYPE_CHECKING:
    from torch import Tensor

    from surefoot.losses.objective import Objective

__all__ = ["LOSSES", "Facts", "build_objective"]

_MUKHOTI2020 = Citation("Mukhoti et al.", 2020, "Calibrating Deep Neural Networks Using Focal Loss")

LOSSES: dict[str, LossEntry] = table(
    [
        LossEntry("ce", "surefoot.loss:CrossEntropy"),
        LossEntry("mse", "surefoot.loss:SquaredError"),
        LossEntry("mse-half", "surefoot.loss:SquaredError", fixed={"convention": "half"}),
        LossEntry("mse-sum", "surefoot.loss:SquaredError", fixed={"convention": "sum"}),
        LossEntry(
            "label-smoothing", "surefoot.losses.cross_entropy:LabelSmoothing",
            citation=Citation("Szegedy et al.", 2016, "Rethinking the Inception Architecture for Computer Vision"),
        ),
        LossEntry(
            "confidence-penalty", "surefoot.losses.cross_entropy:ConfidencePenalty",
            citation=Citation(
                "Pereyra et al.", 2017,
                "Regularizing Neural Networks by Penalizing Confident Output Distributions",
            ),
        ),
        LossEntry("focal", "surefoot.losses.focal:Focal", citation=_MUKHOTI2020),
        LossEntry("flsd-53", "surefoot.losses.focal:FLSD53", citation=_MUKHOTI2020),
        LossEntry(
            "dual-focal", "surefoot.losses.focal:DualFocal",
            citation=Citation("Tao, Dong and Xu", 2023, "Dual Focal Loss for Calibration"),
        ),
        LossEntry(
            "ada-focal", "surefoot.losses.ada_focal:AdaFocal", needs_validation=True,
            former_options={"least": "min_gamma", "most": "max_gamma"},
            citation=Citation("Ghosh, Schaaf and Gormley", 2022, "AdaFocal: Calibration-Aware Adaptive Focal Loss"),
        ),
        LossEntry(
            "mbls", "surefoot.losses.logit_margins:MbLS",
            citation=Citation(
                "Liu et al.", 2022,
                "The Devil is in the Margin: Margin-Based Label Smoothing for Network Calibration",
            ),
        ),
        LossEntry(
            "acls", "surefoot.losses.logit_margins:ACLS",
            citation=Citation(
                "Park et al.", 2023,
                "ACLS: Adaptive and Conditional Label Smoothing for Network Calibration",
            ),
        ),
        LossEntry(
            "mmce", "surefoot.losses.batch_gaps:MMCE",
            citation=Citation(
                "Kumar, Sarawagi and Jain", 2018,
                "Trainable Calibration Measures for Neural Networks from Kernel Mean Embeddings",
            ),
        ),
        LossEntry(
            "mdca", "surefoot.losses.batch_gaps:MDCA",
            citation=Citation(
                "Hebbalaguppe et al.", 2022,
                "A Stitch in Time Saves Nine: A Train-Time Regularizing Loss for Improved Neural Network Calibration",
            ),
        ),
        LossEntry(
            "cpc", "surefoot.losses.pairwise:CPC",
            citation=Citation(
                "Cheng and Vasconcelos", 2022,
                "Calibrating Deep Neural Networks by Pairwise Constraints",
            ),
        ),
        LossEntry(
            "crl", "surefoot.losses.ranking:CRL", given=("examples",),
            citation=Citation("Moon et al.", 2020, "Confidence-Aware Learning for Deep Neural Networks"),
        ),
        LossEntry(
            "mixup", "surefoot.losses.mixing:Mixup",
            citation=Citation("Zhang et al.", 2018, "mixup: Beyond Empirical Risk Minimization"),
        ),
        LossEntry(
            "mit-l", "surefoot.losses.mixing:MITL", gradients=2,
            citation=Citation("Wang et al.", 2023, "On the Pitfall of Mixup for Uncertainty Calibration"),
        ),
        LossEntry(
            "balcal", "surefoot.losses.two_heads:BalCAL", given=("classes",),
            citation=Citation(
                "Ni et al.", 2025,
                "Balancing Two Classifiers via a Simplex ETF Structure for Model Calibration",
            ),
        ),
        LossEntry(
            "ar-adals", "surefoot.losses.ar_adals:ARAdaLS", given=("examples",), needs_validation=True,
            former_options={"rivals": "runner_ups"},
            citation=Citation(
                "Qin et al.", 2021,
                "Improving Calibration through the Relationship with Adversarial Robustness",
            ),
        ),
        LossEntry(
            "soft-ece", "surefoot.losses.batch_gaps:SoftECE",
            citation=Citation("Karandikar et al.", 2021, "Soft Calibration Objectives for Neural Networks"),
        ),
        LossEntry(
            "calmo", "surefoot.losses.calmo:CalMO", gradients=7, former_options={"step": "step_size"},
            citation=MOROSINI2026,
        ),
        LossEntry(
            "margin-tail", "surefoot.losses.margin_tail:MarginTail", gradients=6,
            former_options={"rivals": "runner_ups"},
        ),
    ]
)  # fmt: skip


@dataclass(frozen=True)
class Facts:
    """What a loss may need to know of the data.

    Attributes:
        examples: number of training examples.
        classes: number of classes.
        radius: turns a radius in units of the raw data, as in specs, into one for each coordinate of an input.
    """

    examples: int
    classes: int
    radius: Callable[[float], Tensor]


def build_objective(name: str, options: Mapping[str, Any], facts: Facts) -> Objective:
    """The objective ``name``.

    Args:
        name: of the loss, as in `LOSSES`.
        options: of the loss; ``eps`` is in units of the raw data.
        facts: what the loss may need to know of the data.

    Returns:
        The loss as an objective.

    Raises:
        BadInput: if the name or an option is unknown, or an option's value is wrong.

    Example:
        >>> from torch import Tensor
        >>> build_objective("focal", {"gamma": 2.0}, Facts(100, 10, Tensor)).loss.gamma
        2.0
    """
    from surefoot.losses.objective import as_objective

    if name not in LOSSES:
        raise BadInput(f"loss must be one of {', '.join(LOSSES)}; got {name!r}{suggest(name, LOSSES)}")
    entry = LOSSES[name]
    parameters = entry.parameters()
    options = entry.current_options(options)
    check_options(f"loss {name}", options, list(parameters))
    given = options | {fact: getattr(facts, fact) for fact in entry.given}
    if "eps" in parameters:
        given["eps"] = facts.radius(_radius(name, given.get("eps", parameters["eps"].default)))
    try:
        return as_objective(entry.build(**given))
    except BadInput as error:
        raise BadInput(f"loss {name}: {error}") from error
    except (TypeError, ValueError) as error:
        raise entry.refusal("loss", options, error) from error


def _radius(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise BadInput(f"loss {name}: eps must be a number of at least 0, in units of the raw data; got {value!r}")
    return float(value)

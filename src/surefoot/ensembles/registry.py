"""The one table of ensembles, and how a spec's name becomes an ensemble of a network. No torch until one is built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from surefoot.errors import BadInput
from surefoot.registry import Citation, EnsembleEntry, table
from surefoot.validation import check_options, suggest

if TYPE_CHECKING:
    from torch import nn

    from surefoot.ensembles.ensemble import Ensemble

__all__ = ["ENSEMBLES", "build_ensemble"]

_BLUNDELL2015 = Citation("Blundell et al.", 2015, "Weight Uncertainty in Neural Networks")
_WEN2018 = Citation("Wen et al.", 2018, "Flipout: Efficient Pseudo-Independent Weight Perturbations on Mini-Batches")

_FORMER_OF_MEAN_FIELD = {"deviation": "std", "prior": "prior_std"}

ENSEMBLES: dict[str, EnsembleEntry] = table(
    [
        EnsembleEntry(
            "deep", "surefoot.ensembles.deep:DeepEnsemble", repeats=("members", 5), separate=True,
            citation=Citation(
                "Lakshminarayanan, Pritzel and Blundell", 2017,
                "Simple and Scalable Predictive Uncertainty Estimation Using Deep Ensembles",
            ),
        ),
        EnsembleEntry(
            "dropout", "surefoot.ensembles.dropout:MCDropout", given=("model",),
            citation=Citation(
                "Gal and Ghahramani", 2016,
                "Dropout as a Bayesian Approximation: Representing Model Uncertainty in Deep Learning",
            ),
        ),
        EnsembleEntry(
            "batch", "surefoot.ensembles.batch_ensemble:BatchEnsemble", given=("model",), repeats=("members", 4),
            former_options={"deviation": "std"},
            citation=Citation(
                "Wen, Tran and Ba", 2020,
                "BatchEnsemble: An Alternative Approach to Efficient Ensemble and Lifelong Learning",
            ),
        ),
        EnsembleEntry(
            "rank1", "surefoot.ensembles.rank_one:Rank1BNN", given=("model",), repeats=("members", 4),
            former_options={"prior": "prior_std"},
            citation=Citation(
                "Dusenberry et al.", 2020, "Efficient and Scalable Bayesian Neural Nets with Rank-1 Factors"
            ),
        ),
        EnsembleEntry(
            "vi", "surefoot.ensembles.variational:MeanField", fixed={"flipout": False}, given=("model",),
            former_options=_FORMER_OF_MEAN_FIELD, citation=_BLUNDELL2015,
        ),
        EnsembleEntry(
            "flipout", "surefoot.ensembles.variational:MeanField", fixed={"flipout": True}, given=("model",),
            former_options=_FORMER_OF_MEAN_FIELD, citation=_WEN2018,
        ),
        EnsembleEntry(
            "mimo", "surefoot.ensembles.mimo:MIMO", given=("model",), repeats=("repetitions", 4),
            former_options={"same": "input_repetition_probability"},
            citation=Citation("Havasi et al.", 2021, "Training Independent Subnetworks for Robust Prediction"),
        ),
    ]
)  # fmt: skip


def build_ensemble(name: str, model: nn.Module, **options: Any) -> Ensemble:
    """Build an ensemble of a network by name.

    Args:
        name: a name in `ENSEMBLES`, of an ensemble whose members are not separate runs.
        model: the network, modified in place.
        options: further arguments of the ensemble's class.

    Returns:
        The ensemble.

    Raises:
        BadInput: when there is no such ensemble or option, an option is out of range, the members are separate runs, or
            the network does not suit the ensemble.

    Example:
        >>> from torch import nn
        >>> build_ensemble("batch", nn.Sequential(nn.Linear(2, 3)), members=2).members
        2
    """
    if name not in ENSEMBLES:
        raise BadInput(f"ensemble must be one of {', '.join(ENSEMBLES)}; got {name!r}{suggest(name, ENSEMBLES)}")
    entry = ENSEMBLES[name]
    if entry.separate:
        raise BadInput(f"the members of ensemble {name} are runs of their own; build it from their networks")
    options = entry.current_options(options)
    check_options(f"ensemble {name}", options, list(entry.parameters()))
    try:
        ensemble: Ensemble = entry.build(model, **options)
    except BadInput:
        raise
    except (TypeError, ValueError) as error:
        raise entry.refusal("ensemble", options, error) from error
    return ensemble

from surefoot.ensembles.batch_ensemble import BatchEnsemble
from surefoot.ensembles.deep import DeepEnsemble
from surefoot.ensembles.dropout import MCDropout
from surefoot.ensembles.ensemble import Ensemble
from surefoot.ensembles.mean import mean_predictions
from surefoot.ensembles.mimo import MIMO
from surefoot.ensembles.objective import EnsembleObjective
from surefoot.ensembles.rank_one import Rank1BNN
from surefoot.ensembles.variational import MeanField

__all__ = [
    "MIMO",
    "BatchEnsemble",
    "DeepEnsemble",
    "Ensemble",
    "EnsembleObjective",
    "MCDropout",
    "MeanField",
    "Rank1BNN",
    "mean_predictions",
]

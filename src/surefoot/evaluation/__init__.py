"""The evaluation of predictions: metrics with intervals, a reliability diagram, and a verdict in sentences."""

from surefoot.evaluation.evaluation import Evaluation, evaluate
from surefoot.evaluation.verdict import Verdict, verdict

__all__ = ["Evaluation", "Verdict", "evaluate", "verdict"]

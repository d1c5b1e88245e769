"""The evaluation of predictions: metrics with intervals, a reliability diagram, and a verdict in sentences."""

from surefoot.evaluation.evaluation import Evaluation, Verdict, evaluate, verdict
from surefoot.evaluation.stream import evaluate_batches, evaluate_state

__all__ = ["Evaluation", "Verdict", "evaluate", "evaluate_batches", "evaluate_state", "verdict"]

"""The evaluation of predictions: metrics with intervals, a reliability diagram, and a verdict in sentences."""

from surefoot.evaluation.evaluation import Evaluation, Verdict, evaluate, verdict

__all__ = ["Evaluation", "Verdict", "evaluate", "verdict"]

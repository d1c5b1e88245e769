"""The evaluation of predictions: metrics with intervals, a reliability diagram, and a verdict in sentences."""

from surefoot.evaluation.audit import Segment, audit
from surefoot.evaluation.evaluation import Evaluation, Verdict, evaluate, verdict
from surefoot.evaluation.groups import Group, Groups, SameInAll, by_group
from surefoot.evaluation.stream import evaluate_batches, evaluate_state

__all__ = [
    "Evaluation",
    "Group",
    "Groups",
    "SameInAll",
    "Segment",
    "Verdict",
    "audit",
    "by_group",
    "evaluate",
    "evaluate_batches",
    "evaluate_state",
    "verdict",
]

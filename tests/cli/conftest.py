"""What tests of several commands share."""

from functools import partial

import pytest

from surefoot import posthoc
from surefoot.evaluation import evaluation


@pytest.fixture
def few_resamples(monkeypatch):
    """20 instead of hundreds, where nobody looks at the intervals."""
    monkeypatch.setattr(evaluation, "intervals", partial(evaluation.intervals, resamples=20))
    monkeypatch.setattr(posthoc, "compare", partial(posthoc.compare, resamples=20))

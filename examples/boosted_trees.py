"""Boosted trees of scikit-learn, recalibrated on held-out rows; XGBoost, LightGBM and CatBoost work alike.

Run it: ``python examples/boosted_trees.py``
"""

from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import surefoot as sf
from surefoot import posthoc


def main() -> None:
    """Fit trees that claim too much, recalibrate P(positive), and ship one scikit-learn pipeline."""
    table, labels = make_classification(6000, 20, n_informative=6, flip_y=0.2, weights=[0.8], random_state=0)
    x, rest, y, y_rest = train_test_split(table, labels, train_size=2000, random_state=0, stratify=labels)
    x_val, x_test, y_val, y_test = train_test_split(rest, y_rest, train_size=2000, random_state=0, stratify=y_rest)

    # Any classifier with predict_proba. Rows that stopped its training early are no held-out rows: use others here.
    trees = HistGradientBoostingClassifier(max_iter=100, random_state=0).fit(x, y)

    # One probability a row: metrics, calibrators and tests then judge P(positive), not the top label.
    val = sf.Predictions.from_probs(trees.predict_proba(x_val)[:, 1], y_val)
    before = sf.Predictions.from_probs(trees.predict_proba(x_test)[:, 1], y_test)
    calibrator = posthoc.Beta().fit(val)
    after = calibrator.apply(before)
    print(posthoc.compare(before, after, metrics=["nll", "brier", "ece"]))

    # The same as a pipeline from rows to calibrated probabilities; weights go to the last step.
    chain = make_pipeline(FunctionTransformer(trees.predict_proba), posthoc.Beta(scores="probs"))
    chain.fit(x_val, y_val, beta__sample_weight=[1] * len(x_val))
    largest = abs(chain.predict_proba(x_test)[:, 1] - after.events().prob).max()
    print(f"pipeline and predictions differ by at most {largest:.0e}")


if __name__ == "__main__":
    main()

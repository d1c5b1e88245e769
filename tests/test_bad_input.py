"""Every row of "Bad input": each combination gets an error that names the argument, never a number."""

import numpy as np
import pytest
import torch
from scipy.special import softmax

import surefoot as sf
from surefoot import Predictions
from surefoot.errors import BadInput
from surefoot.models.registry import build_model
from surefoot.optim.registry import build_optimizer
from surefoot.studies.spec import EntrySpec, StudySpec
from surefoot.training.spec import RunSpec, StopSpec

N, K = 6, 4
LOGITS = np.random.default_rng(0).normal(size=(N, K))
LABELS = np.arange(N) % K


def spoiled(value, row=3, column=1):
    logits = LOGITS.copy()
    logits[row, column] = value
    return logits


def row_of(value, row=3):
    logits = LOGITS.copy()
    logits[row] = value
    return logits


def label(value):
    labels = LABELS.copy()
    labels[3] = value
    return labels


# name: (logits, labels, what the sentence must say)
BAD_LOGITS = {
    "no rows": (np.zeros((0, K)), [], "at least one row"),
    "no columns": (np.zeros((N, 0)), LABELS, "two at least"),
    "one class": (np.zeros((N, 1)), np.zeros(N, int), "two at least"),
    "one dimension": (np.zeros(N), LABELS, r"shape \(n, k\)"),
    "three dimensions": (np.zeros((N, K, 2)), LABELS, r"shape \(n, k\)"),
    "a scalar": (3.0, LABELS, r"shape \(n, k\)"),
    "None": (None, LABELS, "real numbers"),
    "text": ([["a", "b"]] * N, LABELS, "real numbers"),
    "booleans": (np.zeros((N, K), bool), LABELS, "real numbers"),
    "complex": (LOGITS + 1j, LABELS, "real numbers"),
    "objects": (LOGITS.astype(object), LABELS, "real numbers"),
    "ragged": ([[1.0, 2.0], [3.0]], [0, 1], "rectangular"),
    "swapped": (LABELS, LOGITS, "swapped"),
    "NaN": (spoiled(np.nan), LABELS, "row 3 has NaN"),
    "NaN beside -inf": (row_of([np.nan, -np.inf, -np.inf, -np.inf]), LABELS, "row 3 has NaN"),
    "+inf": (spoiled(np.inf), LABELS, r"row 3 has \+inf"),
    "+inf beside NaN": (row_of([np.inf, np.nan, 0, 0]), LABELS, "row 3 has NaN"),
    "a row of -inf": (row_of(-np.inf), LABELS, "row 3 has nothing but -inf"),
    "float16 overflow": (np.array(spoiled(1e6), np.float64).clip(-1e6, 1e6) * np.inf, LABELS, "row 0"),
    "softmaxed": (softmax(LOGITS, axis=1), LABELS, "from_probs"),
    "softmaxed float32": (softmax(LOGITS, axis=1).astype(np.float32), LABELS, "from_probs"),
    "softmaxed float16": (softmax(LOGITS, axis=1).astype(np.float16), LABELS, "from_probs"),
    "softmaxed tensor": (torch.softmax(torch.tensor(LOGITS), 1), LABELS, "from_probs"),
    "softmaxed bfloat16": (torch.softmax(torch.tensor(LOGITS), 1).bfloat16(), LABELS, "from_probs"),
    "softmaxed, then cast": (softmax(LOGITS.astype(np.float32), axis=1).astype(np.float64), LABELS, "from_probs"),
    "softmaxed, then rounded": (softmax(LOGITS, axis=1).round(4), LABELS, "from_probs"),
    "three decimals, ten classes": (
        np.random.default_rng(0).dirichlet(np.ones(10), 500).round(3),
        [0] * 500,
        "from_probs",
    ),
    "two decimals": (np.random.default_rng(0).dirichlet(np.ones(10), 500).round(2), [0] * 500, "from_probs"),
    "bfloat16, then cast": (torch.softmax(torch.tensor(LOGITS), 1).bfloat16().float(), LABELS, "from_probs"),
    "saturated": ([[1.0, 1e-20], [1e-30, 1.0]] * 3, [0, 1] * 3, "from_probs"),
    "masked": (np.ma.masked_array(LOGITS, mask=LOGITS > 0.5), LABELS, "masked"),
    "sparse tensor": (torch.tensor(LOGITS).to_sparse(), LABELS, "rectangular"),
    "huge integers": (np.array([[2**63 - 2, 2**63 - 1]]), [1], r"2\*\*53"),
}
BAD_LABELS = {
    "too few": (LABELS[:-1], r"shape \(6,\)"),
    "too many": (np.arange(N + 1) % K, r"shape \(6,\)"),
    "none": ([], r"shape \(6,\)"),
    "None": (None, r"shape \(6,\)"),
    "column": (LABELS[:, None], "ravel"),
    "one-hot": (np.eye(K, dtype=int)[LABELS], "argmax"),
    "scalar": (0, r"shape \(6,\)"),
    "-1": (label(-1), "row 3 has -1"),
    "-100": (label(-100), "row 3 has -100"),
    "k": (label(K), f"row 3 has {K}"),
    "huge unsigned": (label(0).astype(np.uint64) + np.uint64(2**63), "row 0"),
    "floats": (LABELS.astype(float), "integers"),
    "NaN": (np.full(N, np.nan), "integers"),
    "booleans": (LABELS > 1, "integers"),
    "text": (["a"] * N, "integers"),
    "float tensor": (torch.zeros(N), "integers"),
    "masked": (np.ma.masked_array(LABELS, mask=LABELS == 2), "masked"),
}
PROBS = softmax(LOGITS, axis=1)
BAD_PROBS = {
    "negative": (np.array([[1.5, -0.5]]), "row 0"),
    "tiny negative": (np.array([[1.0 + 1e-9, -1e-9]]), "row 0"),
    "sums to two": (2 * PROBS, "row 0"),
    "sums to 0.99": (np.concatenate([PROBS[:3], 0.99 * PROBS[3:]]), "row 3"),
    "zeros": (np.zeros((N, K)), "row 0"),
    "NaN": (np.where(np.arange(N)[:, None] == 3, np.nan, PROBS), "row 3"),
    "inf": (np.array([[np.inf, 0.0]]), "row 0"),
    "logits": (LOGITS, "row 0"),
    "log-probabilities": (np.log(PROBS), "row 0"),
    "one class": (np.ones((N, 1)), "two at least"),
    "no rows": (np.zeros((0, K)), "at least one row"),
    "text": ([["a", "b"]] * N, "real numbers"),
}


@pytest.mark.parametrize("case", BAD_LOGITS)
def test_bad_logits(case):
    logits, labels, says = BAD_LOGITS[case]
    with pytest.raises(BadInput, match="^logits.*" + says):
        Predictions(logits, labels)


@pytest.mark.parametrize("case", BAD_LABELS)
@pytest.mark.parametrize("door", [lambda y: Predictions(LOGITS, y), lambda y: Predictions.from_probs(PROBS, y)])
def test_bad_labels(case, door):
    labels, says = BAD_LABELS[case]
    with pytest.raises(BadInput, match="^labels.*" + says):
        door(labels)


@pytest.mark.parametrize("case", BAD_PROBS)
def test_bad_probs(case):
    probs, says = BAD_PROBS[case]
    with pytest.raises(BadInput, match="^probs.*" + says):
        Predictions.from_probs(probs, np.zeros(len(probs), int))


# What is *not* certain to be probabilities is taken at its word.
GOOD_LOGITS = {
    "one-hot, the optimum of MSE": np.eye(K)[LABELS],
    "all equal": np.full((N, K), 1 / K),
    "zeros": np.zeros((N, K)),
    "one row off": np.concatenate([PROBS[:-1], PROBS[-1:] + 1e-3]),
    "foreign byte order": LOGITS.astype(">f8"),
    "wider than float64": LOGITS.astype(np.longdouble),
    "shifted probabilities": PROBS + 1,
    "log-probabilities": np.log(PROBS),
    "logits of two decimals": LOGITS.round(2),
    "integers": np.arange(N * K).reshape(N, K),
    "lists": LOGITS.tolist(),
    "Fortran order": np.asfortranarray(LOGITS),
    "every other column": np.repeat(LOGITS, 2, axis=1)[:, ::2],
}


@pytest.mark.parametrize("case", GOOD_LOGITS)
def test_what_is_not_certain_is_accepted(case):
    p = Predictions(GOOD_LOGITS[case], LABELS)
    assert np.isfinite(p.confidence).all()
    assert len(p) == N


RUN = {"optimizer": {"name": "sgd", "lr": 0.1}, "stop": {"steps": 1}}


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: RunSpec(**RUN | {"stop": {"steps": 3, "batch": 0.5}}), "RunSpec: stop.batch must be an integer or"),
        (lambda: RunSpec(stop={"steps": 3}), "RunSpec: the key 'optimizer' is missing; it must be a name"),
        (lambda: StopSpec(steps=1, epochs=1), "StopSpec: give either steps or epochs"),
        (lambda: StudySpec(name="a b", base={}), "StudySpec: name must be a name of letters, digits"),
        (lambda: EntrySpec(name=3), "EntrySpec: name must be text that is not empty; got 3"),
        (lambda: sf.train(3), "spec must be the path of a .toml file, .* or a RunSpec; got 3"),
        (lambda: sf.study([1]), r"spec must be the path of a .toml file, .* or a StudySpec; got \[1\]"),
        (
            lambda: sf.train(RUN | {"optimizer": {"name": "sgd", "lr": torch.tensor(0.1)}}),
            r"optimizer.lr must be a number or a list of Python; got Tensor; give .item\(\)",
        ),
        (lambda: sf.train(RUN | {"seed": np.int64(3)}), "seed must be a number or a list of Python; got int64"),
        (lambda: RunSpec(**RUN | {"model": {"name": "mlp", "widths": {1}}}), r"model.widths must be .*; got \{1\}"),
        (
            lambda: sf.train(RUN | {"optimizer": {"name": "sam", "base": 3}}),
            "base of sam must be the name of an optimizer, or a table with a name; got 3",
        ),
        (
            lambda: build_optimizer("sgd", torch.nn.Linear(2, 2), {"momentum": "x"}),
            "optimizer sgd: momentum must be a number, such as 0; got 'x'",
        ),
        (
            lambda: build_model("mlp", (4,), 3, widths="ab"),
            r"model mlp: widths must be a list of integers, such as \(200, 200\); got 'ab'",
        ),
        (
            lambda: build_model("cnn", (3, 8, 8), 3, width=0.5),
            "model cnn cannot take width=0.5: out_channels must be divisible by groups",
        ),
    ],
)
def test_specs_and_options_from_python(call, says, tmp_path, monkeypatch):
    """One sentence of surefoot's, without the phrases of pydantic, torch or Python."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match=says) as error:
        call()
    assert "\n" not in str(error.value)

"""What every loss of logits and labels promises; a new one is a row of `cases.LOSSES`."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

import surefoot as sf
from surefoot.errors import BadInput
from tests.losses.cases import LOSSES, NOTHING, examples


@pytest.fixture(params=LOSSES)
def loss(request):
    return LOSSES[request.param]


def test_gradients(loss):
    logits, labels = examples()
    for reduction in ("mean", "none"):
        made = loss(reduction=reduction)
        assert torch.autograd.gradcheck(lambda z, made=made: made(z, labels), logits.clone().requires_grad_())


def test_reductions_agree(loss):
    logits, labels = examples()
    none, mean, total = (loss(reduction=r)(logits, labels) for r in ("none", "mean", "sum"))
    assert none.shape == (7,)
    torch.testing.assert_close(none.mean(), mean)
    torch.testing.assert_close(none.sum(), total)


@pytest.mark.parametrize("size", [1e4, -1e4, 1e37])
def test_extreme_logits(loss, size):
    if size == 1e37 and loss in (LOSSES["mse"], LOSSES["mse-half"], LOSSES["acls"]):
        pytest.skip("its square is beyond float32")
    logits, labels = examples(dtype=torch.float32)
    logits = torch.where(logits > 0, size, -size).requires_grad_()
    value = loss()(logits, labels)
    value.backward()
    assert bool(value.isfinite())
    assert bool(logits.grad.isfinite().all())


def test_every_mixture_of_extremes(loss):
    """−10⁴, 0 and 10⁴ in all orders, with every label, one example at a time."""
    for row in itertools.product((-1e4, 0.0, 1e4), repeat=3):
        for label in range(3):
            logits = torch.tensor([row], requires_grad=True)
            value = loss()(logits, torch.tensor([label]))
            value.backward()
            assert bool(value.isfinite() and logits.grad.isfinite().all()), (row, label)


@pytest.mark.parametrize("kind", ["one", "right", "wrong", "equal"])
def test_batches_of_one_kind(loss, kind):
    logits, labels = examples(dtype=torch.float32)
    if kind == "one":
        logits, labels = logits[:1], labels[:1]
    elif kind == "equal":
        logits = torch.zeros_like(logits)
    else:
        labels = logits.argmax(dim=1) if kind == "right" else logits.argmin(dim=1)
    logits.requires_grad_()
    value = loss()(logits, labels)
    value.backward()
    assert bool(value.isfinite())
    assert bool(logits.grad.isfinite().all())


def test_two_classes(loss):
    logits, labels = examples(k=2)
    assert bool(loss()(logits, labels).isfinite())


@given(seed=st.integers(0, 1000), name=st.sampled_from(list(LOSSES)))
def test_the_order_of_the_batch_does_not_matter(seed, name):
    logits, labels = examples(seed=seed)
    order = torch.randperm(7, generator=torch.Generator().manual_seed(seed))
    made = LOSSES[name]()
    torch.testing.assert_close(made(logits[order], labels[order]), made(logits, labels))


@given(seed=st.integers(0, 1000), name=st.sampled_from(sorted(set(LOSSES) - {"mse", "mse-half", "acls"})))
def test_a_constant_added_to_the_logits_does_not_matter(seed, name):
    logits, labels = examples(seed=seed)
    made = LOSSES[name]()
    torch.testing.assert_close(made(logits + 3.0, labels), made(logits, labels))


@given(seed=st.integers(0, 1000), name=st.sampled_from(list(NOTHING)))
def test_without_its_own_part_it_is_cross_entropy(seed, name):
    logits, labels = examples(seed=seed)
    torch.testing.assert_close(NOTHING[name](logits, labels), cross_entropy(logits, labels))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_widened_first(loss, dtype):
    logits, labels = examples(dtype=dtype)
    value = loss()(logits, labels)
    assert value.dtype == torch.float32
    assert torch.equal(value, loss()(logits.float(), labels))


def test_arguments_are_left_alone(loss):
    logits, labels = examples()
    before = logits.clone(), labels.clone()
    loss()(logits, labels)
    assert torch.equal(logits, before[0])
    assert torch.equal(labels, before[1])


def test_curvature_has_a_name():
    assert {LOSSES[name]().curvature for name in LOSSES} == {"ce", "mse", "mse-half"}
    assert sf.losses.SquaredError("sum").curvature == "mse-sum"


ROWS = torch.zeros(3, 4)
RIGHT = torch.tensor([0, 1, 2])
MISUSE = {
    "soft labels": (ROWS, torch.full((3, 4), 0.25), "integers.*Mixup or LabelSmoothing"),
    "float labels": (ROWS, RIGHT.float(), "integers"),
    "booleans": (ROWS, RIGHT.bool(), "integers"),
    "one-hot labels": (ROWS, torch.eye(4)[RIGHT].long(), r"shape \(n,\).*got \(3, 4\)"),
    "too few labels": (ROWS, RIGHT[:2], r"shape \(3,\).*got \(2,\)"),
    "too large": (ROWS, torch.tensor([0, 4, 1]), r"0\.\.3; got 4 in row 1"),
    "ignored": (ROWS, torch.tensor([0, 1, -100]), "got -100 in row 2"),
    "a list": (ROWS, [0, 1, 2], "labels must be a tensor"),
    "whole logits": (ROWS.long(), RIGHT, "floating-point"),
    "images": (torch.zeros(3, 4, 2, 2), RIGHT, r"shape \(n, k\)"),
    "one class": (ROWS[:, :1], RIGHT, "two classes"),
    "nothing": (ROWS[:0], RIGHT[:0], "at least one row"),
    "NaN": (torch.tensor([[0.0, 1], [float("nan"), 0]]), RIGHT[:2], "finite; row 1"),
    "inf": (torch.tensor([[float("inf"), 1], [0, 0]]), RIGHT[:2], "finite; row 0"),
}


@pytest.mark.parametrize("case", MISUSE)
def test_misuse(loss, case):
    logits, labels, match = MISUSE[case]
    with pytest.raises(BadInput, match=match):
        loss()(logits, labels)


def test_a_masked_class_has_its_limit():
    logits = torch.tensor([[1.0, -torch.inf, 0.0]])
    expected = -torch.tensor([1.0, 0.0]).log_softmax(0)[0]
    torch.testing.assert_close(sf.losses.CrossEntropy()(logits, torch.tensor([0])), expected)


def test_a_masked_class_is_finite_or_refused(loss):
    logits = torch.tensor([[1.0, -torch.inf, 0.0], [1.0, 2.0, 0.0]], requires_grad=True)
    if loss().masks:
        value = loss()(logits, torch.tensor([0, 1]))
        value.backward()
        assert torch.isfinite(value)
        assert torch.isfinite(logits.grad).all()
    else:
        rule = sf.optim.CSAM(torch.optim.SGD([logits], lr=0.1))
        for criterion in (loss(), rule.outer(loss())):
            with pytest.raises(BadInput, match=r"none may be -inf; row 0 has one"):
                criterion(logits, torch.tensor([0, 1]))


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: sf.losses.CrossEntropy("max"), "reduction must be one of 'mean', 'none', 'sum'; got 'max'"),
        (lambda: sf.losses.Focal(-1.0), "gamma must be a finite number of at least 0; got -1.0"),
        (lambda: sf.losses.Focal(p0=1.5), "p must lie between 0 and 1"),
        (lambda: sf.losses.LabelSmoothing(1.0), r"alpha must lie in \[0, 1\)"),
        (lambda: sf.losses.SquaredError("middle"), "convention"),
        (lambda: sf.losses.AdaFocal(min_gamma=1.0), "min_gamma must be below 0"),
        (lambda: sf.losses.AdaFocal(min_gamma="a"), "min_gamma must be a number from .*; got 'a'"),
        (lambda: sf.losses.AdaFocal(max_gamma="a"), "max_gamma must be a finite number above 0; got 'a'"),
        (lambda: sf.losses.BalCAL(5, delta="a"), "delta must be a number from 0 to 1; got 'a'"),
        (lambda: sf.losses.BalCAL(5, start=2.0), "start must be a number from 0 to 1; got 2.0"),
        (lambda: sf.losses.MMCE(legacy="no"), "legacy must be true or false; got 'no'"),
        (lambda: sf.losses.CalMO(reuse="no"), "reuse must be true or false; got 'no'"),
        (lambda: sf.losses.MarginTail(norm=1), "norm must be 'inf' or 2; got 1"),
        (lambda: sf.losses.MMCE(bandwidth=0.0), "bandwidth must be a finite number above 0"),
        (lambda: sf.losses.SoftECE(norm=3), "norm must be an integer from 1 to 2"),
        (lambda: sf.losses.CalMO(robust=float("nan")), "robust"),
        (lambda: sf.losses.CalMO(steps=0), "steps must be an integer of at least 1"),
        (lambda: sf.losses.MarginTail(form="cubic"), "form must be 'bounded' or 'log'"),
        (lambda: sf.losses.MITL(alpha=0.0), "alpha must lie above 0"),
        (lambda: sf.losses.MITL(margin=1.0), "margin must be at most 0.9"),
        (lambda: sf.losses.BalCAL(5, delta=0.0), r"delta must lie in \(0, 1\]"),
        (lambda: sf.losses.CRL(0), "examples must be an integer of at least 1"),
        (lambda: sf.losses.as_objective(3), "loss must be a name or a function"),
    ],
)
def test_wrong_settings(make, match):
    with pytest.raises(BadInput, match=match):
        make()

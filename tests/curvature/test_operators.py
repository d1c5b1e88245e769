"""Operators against dense float64 matrices over one table of cases, and what they must leave alone."""

import pytest
import torch
from torch import nn

from surefoot.curvature import FunctionLoss, GaussNewton, Hessian, SquaredError
from surefoot.errors import BadInput

from .cases import LOSSES, MODELS, case, dense_gauss_newton, dense_hessian

DENSE = {GaussNewton: dense_gauss_newton, Hessian: dense_hessian}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", [GaussNewton, Hessian])
def test_against_the_dense_matrix(kind, name, loss):
    model, inputs, labels = case(name)
    expected = DENSE[kind](model, inputs, labels, loss)
    found = kind(model, inputs, labels, loss).dense()
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(
        kind(model, inputs, labels, loss, reduction="sum").dense(), 11 * expected, rtol=1e-9, atol=1e-11
    )


@pytest.mark.parametrize("kind", [GaussNewton, Hessian])
@pytest.mark.parametrize("chunk", [1, 3, 10, 11, 100])
@pytest.mark.parametrize("memory", [0, 1 << 30])
def test_chunks_change_nothing(kind, chunk, memory):
    model, inputs, labels = case("batch norm")
    whole = kind(model, inputs, labels).dense()
    operator = kind(model, inputs, labels, batch_size=chunk, memory=memory)
    torch.testing.assert_close(operator.dense(), whole, rtol=1e-10, atol=1e-13)


def test_a_linear_model_has_gauss_newton_equal_to_hessian_in_closed_form():
    model, inputs, labels = case("linear")
    p = torch.softmax(model(inputs), 1).detach()
    extended = torch.cat([inputs, torch.ones(11, 1)], 1)
    expected = (
        sum(torch.kron(torch.diag(q) - torch.outer(q, q), torch.outer(x, x)) for q, x in zip(p, extended, strict=True))
        / 11
    )
    # From (class, [features, bias]) to the model's own order: all weights, then all biases.
    order = [5 * c + f for c in range(3) for f in range(4)] + [5 * c + 4 for c in range(3)]
    expected = expected[order][:, order]
    torch.testing.assert_close(GaussNewton(model, inputs).dense(), expected, rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(Hessian(model, inputs, labels).dense(), expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("kind", [GaussNewton, Hessian])
def test_linear_symmetric_and_blocks(kind):
    model, inputs, labels = case("convolution", dtype=torch.float32)
    operator = kind(model, inputs, labels)
    a, b = torch.randn(operator.dim), torch.randn(operator.dim)
    torch.testing.assert_close(
        operator.matvec(2 * a - b), 2 * operator.matvec(a) - operator.matvec(b), rtol=1e-4, atol=1e-5
    )
    left, right = a @ operator.matvec(b), b @ operator.matvec(a)
    assert abs(left - right) <= 1e-6 * a.norm() * b.norm() * operator.matvec(a).norm()
    torch.testing.assert_close(operator.matmat(torch.stack([a, b], 1))[:, 1], operator.matvec(b))


def test_gauss_newton_is_positive_semidefinite():
    for name in MODELS:
        model, inputs, labels = case(name)
        for loss in LOSSES:
            assert torch.linalg.eigvalsh(GaussNewton(model, inputs, labels, loss).dense()).min() > -1e-12


def test_any_convex_loss_through_its_own_hessian():
    model, inputs, labels = case("mlp")
    found = GaussNewton(model, inputs, labels, lambda z, y: nn.functional.cross_entropy(z, y, reduction="none")).dense()
    torch.testing.assert_close(found, GaussNewton(model, inputs).dense(), rtol=1e-9, atol=1e-13)
    linear = FunctionLoss(lambda z, y: z[:, 0])  # no curvature at all
    assert GaussNewton(model, inputs, labels, linear).dense().abs().max() == 0
    constant = FunctionLoss(lambda z, y: torch.ones(len(z)))
    assert GaussNewton(model, inputs, labels, constant).dense().abs().max() == 0
    assert Hessian(model, inputs, labels, constant).dense().abs().max() == 0
    half = GaussNewton(model, inputs, labels, SquaredError("half")).dense()
    torch.testing.assert_close(half, GaussNewton(model, inputs, loss="mse-half").dense())


class Twice:
    """A loss of one's own, by the protocol: twice the squared error."""

    needs_labels = False

    def values(self, logits, labels):
        return 2 * SquaredError("half").values(logits, labels)

    def hessian_product(self, logits, labels, u):
        return 2 * u


def test_a_loss_by_the_protocol():
    model, inputs, labels = case("mlp")
    torch.testing.assert_close(
        GaussNewton(model, inputs, loss=Twice()).dense(), GaussNewton(model, inputs, loss="mse-sum").dense()
    )
    torch.testing.assert_close(
        Hessian(model, inputs, labels, Twice()).dense(), Hessian(model, inputs, labels, "mse-sum").dense()
    )


def test_labels_that_only_a_function_reads():
    """One logit and labels of ±1: no classes, and none of our business."""
    model, inputs, labels = nn.Linear(5, 1).double(), torch.randn(9, 5, dtype=torch.float64), torch.ones(9, dtype=int)
    labels[::2] = -1
    logistic = lambda z, y: nn.functional.softplus(-y * z[:, 0])  # noqa: E731
    torch.testing.assert_close(
        GaussNewton(model, inputs, labels, logistic).dense(), Hessian(model, inputs, labels, logistic).dense()
    )


def test_gauss_newton_by_forward_mode_where_the_graph_cannot_be_used_twice():
    model, inputs, labels = case("once")
    same = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    same.load_state_dict(dict(zip(same.state_dict(), model.state_dict().values(), strict=True)))
    torch.testing.assert_close(
        GaussNewton(model, inputs).dense(), GaussNewton(same, inputs).dense(), rtol=1e-10, atol=1e-13
    )
    with pytest.raises(BadInput, match="cannot be differentiated twice"):
        Hessian(model, inputs, labels)


@pytest.mark.parametrize("kind", [GaussNewton, Hessian])
def test_parameters_by_name(kind):
    model, inputs, labels = case("mlp")
    whole = kind(model, inputs, labels)
    names = ["2.weight", "4.bias"]
    part = kind(model, inputs, labels, names=names)
    sizes = {name: value.numel() for name, value in model.named_parameters()}
    start, index = 0, []
    for name, size in sizes.items():
        index += list(range(start, start + size)) if name in names else []
        start += size
    torch.testing.assert_close(part.dense(), whole.dense()[index][:, index])
    assert part.facts["parameters"] == names


def test_frozen_parameters_are_left_out():
    model, inputs, _ = case("mlp")
    model[0].requires_grad_(False)
    assert GaussNewton(model, inputs).dim == sum(p.numel() for p in model[2:].parameters())


def test_tied_weights_count_once():
    model, inputs, _ = case("tied")
    assert GaussNewton(model, inputs).dim == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("kind", [GaussNewton, Hessian])
@pytest.mark.parametrize("batch_norm", ["eval", "train"])
def test_nothing_about_the_model_changes(kind, batch_norm):
    model, inputs, labels = case("batch norm")
    model = nn.Sequential(model, nn.Dropout(0.3)).double()
    model.train()
    model[0][3].eval()
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    random = torch.get_rng_state()
    operator = kind(model, inputs, labels, batch_norm=batch_norm)
    operator.top(2)
    assert torch.equal(torch.get_rng_state(), random)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    assert all((p.grad == 1).all() for p in model.parameters())
    assert operator.facts["batch_norm"] == batch_norm


def test_batch_statistics_on_request():
    model, inputs, labels = case("batch norm")
    by_batch = Hessian(model, inputs, labels, batch_norm="train").dense()
    model[1].momentum = 1.0
    model.train()
    model(inputs)  # running statistics become the batch's (the variance unbiased)
    n = inputs.numel() // 16 * 4
    with torch.no_grad():
        model[1].running_var *= (n - 1) / n
    # Not the same matrix: the batch's statistics move with the first layer. The last layer cannot tell.
    head = slice(-27, None)
    torch.testing.assert_close(
        by_batch[head, head], Hessian(model, inputs, labels).dense()[head, head], rtol=1e-6, atol=1e-9
    )
    with pytest.raises(BadInput, match="in one batch"):
        Hessian(model, inputs, labels, batch_norm="train", batch_size=4)
    with pytest.raises(BadInput, match="batch_norm must be"):
        Hessian(model, inputs, labels, batch_norm="frozen")


@pytest.mark.parametrize("kind", [GaussNewton, Hessian])
def test_a_model_that_moved_is_refused_by_an_old_operator(kind):
    model, inputs, labels = case("mlp")
    operator = kind(model, inputs, labels)
    v = torch.ones(operator.dim, dtype=operator.dtype)
    operator.matvec(v)
    with torch.no_grad():
        model[2].weight.mul_(1.5)
    with pytest.raises(BadInput, match="make a new one"):
        operator.matvec(v)


def test_a_model_that_moved_is_seen_by_a_new_operator():
    model, inputs, _ = case("mlp")
    before = GaussNewton(model, inputs).dense()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1.5)
    after = GaussNewton(model, inputs).dense()
    assert (before - after).abs().max() > 1e-3


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 3)

    def forward(self, x):
        return self.net(x + torch.randn_like(x))


BAD = {
    "no module": (lambda m, x, y: GaussNewton(lambda v: v, x), "torch.nn.Module"),
    "no rows": (lambda m, x, y: GaussNewton(m, x[:0]), "at least one row"),
    "no trainable parameter": (lambda m, x, y: GaussNewton(m.requires_grad_(False), x), "no trainable parameter"),
    "unknown name": (lambda m, x, y: GaussNewton(m, x, names=["0.wieght"]), "did you mean '0.weight'"),
    "frozen name": (lambda m, x, y: GaussNewton(m.requires_grad_(False), x, names=["0.weight"]), "is frozen"),
    "loss": (lambda m, x, y: GaussNewton(m, x, loss="huber"), "'mse-half'"),
    "loss type": (lambda m, x, y: GaussNewton(m, x, loss=3), "loss must be"),
    "reduced loss": (
        lambda m, x, y: Hessian(m, x, y, nn.functional.cross_entropy).matvec(torch.zeros(79)),
        "per example",
    ),
    "labels missing": (lambda m, x, y: Hessian(m, x, None), "labels are needed"),
    "labels missing for a convex loss": (
        lambda m, x, y: GaussNewton(m, x, loss=lambda z, y: z[:, 0]),
        "labels are needed",
    ),
    "labels shape": (lambda m, x, y: Hessian(m, x, y[:-1]), "one per input"),
    "labels dtype": (lambda m, x, y: Hessian(m, x, y.double()), "integers"),
    "chunk": (lambda m, x, y: GaussNewton(m, x, batch_size=0), "batch_size must be"),
    "reduction": (lambda m, x, y: GaussNewton(m, x, reduction="max"), "reduction"),
    "vector": (lambda m, x, y: GaussNewton(m, x).matvec(torch.ones(3)), r"shape \(79,\)"),
    "block": (lambda m, x, y: GaussNewton(m, x).matmat(torch.ones(79)), r"\(79, m\)"),
    "no logits": (lambda m, x, y: GaussNewton(nn.Sequential(m, nn.Flatten(0)), x), r"logits of shape \(n, k\)"),
    "random": (lambda m, x, y: GaussNewton(Noisy().double(), x[:, :4]), "random even in eval mode"),
    "k": (lambda m, x, y: GaussNewton(m, x).top(80), r"1\.\.79"),
    "tol": (lambda m, x, y: GaussNewton(m, x).top(1, tol=0.0), "tol"),
    "start": (lambda m, x, y: GaussNewton(m, x).top(1, start=torch.ones(3, 1)), "start must have shape"),
    "start not finite": (lambda m, x, y: GaussNewton(m, x).top(1, start=torch.full((79, 1), torch.nan)), "finite"),
    "budget": (lambda m, x, y: GaussNewton(m, x).top(3, max_products=2), "max_products"),
    "no budget": (lambda m, x, y: GaussNewton(m, x).top(1, max_products=0), "max_products must be an integer"),
    "k not whole": (lambda m, x, y: GaussNewton(m, x).top(1.5), r"1\.\.79"),
    "chunk not whole": (lambda m, x, y: GaussNewton(m, x, batch_size=2.5), "batch_size must be an integer"),
    "names as one string": (lambda m, x, y: GaussNewton(m, x, names="0.weight"), r"write \['0.weight'\]"),
    "negative label": (lambda m, x, y: Hessian(m, x, y.index_fill(0, torch.tensor([4]), -100)), "-100 in row 4"),
    "label beyond the classes": (lambda m, x, y: GaussNewton(m, x, y + 1), "labels must lie in 0..2"),
    "half precision": (lambda m, x, y: GaussNewton(m.half(), x), "float32 or float64; got torch.float16"),
    "whole-number inputs": (lambda m, x, y: GaussNewton(m, x.long()), r"torch.int64 of shape \(11, 5\)"),
    "inputs of another width": (lambda m, x, y: GaussNewton(m, x[:, :3]), "mat1 and mat2"),
    "inputs of no kind": (lambda m, x, y: GaussNewton(m, object()), "inputs must be a tensor or an array"),
    "a loss that is not convex": (lambda m, x, y: GaussNewton(m, x, y, lambda z, y: -z.square().sum(1)), "convex"),
    "a loss with one concave direction": (
        lambda m, x, y: GaussNewton(m, x, y, lambda z, y: z[:, 0] ** 2 - z[:, 1] ** 2),
        "convex",
    ),
    "one row for batch statistics": (
        lambda m, x, y: Hessian(nn.Sequential(m, nn.BatchNorm1d(3).double()), x[:1], y[:1], batch_norm="train"),
        "more than 1 value per channel",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments(name):
    call, says = BAD[name]
    with pytest.raises(BadInput, match=says):
        call(*case("mlp"))


def test_inputs_of_another_dtype_are_taken():
    model, inputs, _ = case("mlp")
    torch.testing.assert_close(
        GaussNewton(model, inputs.float().numpy()).dense(), GaussNewton(model, inputs).dense(), rtol=1e-5, atol=1e-7
    )


def test_a_single_parameter():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(0.7))

        def forward(self, x):
            return self.scale * x

    x = torch.randn(9, 3)
    p = torch.softmax(0.7 * x, 1)
    expected = ((p * x**2).sum(1) - (p * x).sum(1) ** 2).mean()
    found = GaussNewton(Scale(), x).top(1)
    torch.testing.assert_close(found.values[0].float(), expected)
    assert found.converged


@pytest.mark.parametrize("name", ["mlp", "convolution"])
@pytest.mark.parametrize("kind", [GaussNewton, Hessian])
def test_an_operator_let_go_leaves_no_activations_behind(kind, name):
    import gc
    import weakref

    model, inputs, labels = case(name)
    seen = []
    model[1].register_forward_hook(lambda module, given, output: seen.append(weakref.ref(output)))
    operator = kind(model, inputs, labels)
    operator.matvec(torch.ones(operator.dim, dtype=operator.dtype))
    assert any(output() is not None for output in seen)  # the kept graph
    del operator
    gc.collect()
    assert all(output() is None for output in seen)

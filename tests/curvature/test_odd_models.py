"""Models and surroundings that a fast way could get wrong: each against a dense float64 matrix or plain autograd."""

import copy
import threading

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from surefoot.curvature import GaussNewton, Hessian, Sharpness, curvature_along_sam, jacobian_norms
from surefoot.curvature.chunks import frozen
from surefoot.errors import BadInput

from .cases import case, dense_gauss_newton, dense_hessian, flat_function


class Shifted(nn.Module):
    """A learned shift and scale of the inputs, still 0 and 1: the first layer is fed the inputs themselves."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))
        self.shift, self.scale = nn.Parameter(torch.zeros(5)), nn.Parameter(torch.ones(5))

    def forward(self, x):
        return self.net(self.scale * x + self.shift)


class Reused(nn.Module):
    """The first layer's weight is used once more, past the layer."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.head(functional.linear(torch.tanh(self.first(x)), self.first.weight))


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


class Tokens(nn.Module):
    """Each row holds four tokens, which go through the layer as rows of their own."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(2, 6), nn.Linear(6, 3)

    def forward(self, x):
        h = torch.tanh(self.first(x[:, :4].reshape(-1, 2)))
        return self.head(h.reshape(len(x), 2, 6).sum(1))


class Gru(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru, self.head = nn.GRU(5, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.gru(x[:, None].expand(-1, 3, -1))[0][:, -1])


class Scalar(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.scale = nn.Linear(5, 3), nn.Parameter(torch.tensor(1.3))

    def forward(self, x):
        return self.scale * self.net(x)


def _tied_bias():
    model = nn.Sequential(nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 3))
    model[2].bias = model[0].bias
    return model


def _hooked():
    model = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))
    model[0].register_forward_hook(lambda module, given, output: 2 * output)
    return model


def _hidden_reference():
    """A layer whose function holds on to another layer's weight, not under any name."""
    model = Reused()
    model.kept = [model.first.weight]
    model.forward = lambda x: model.head(functional.linear(torch.tanh(model.first(x)), model.kept[0]))
    return model


ODD = {
    "shifted": Shifted,
    "reused": Reused,
    "subclass": lambda: nn.Sequential(Doubled(5, 6), nn.Tanh(), nn.Linear(6, 3)),
    "tied bias": _tied_bias,
    "hooked": _hooked,
    "relu first": lambda: nn.Sequential(nn.ReLU(), nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)),
    "in place": lambda: nn.Sequential(nn.Linear(5, 6), nn.ReLU(inplace=True), nn.Linear(6, 3)),
    "tokens": Tokens,
    "gru": Gru,
    "scalar": Scalar,
}


def odd(name, n=40):
    torch.manual_seed(3)
    model = ODD[name]().double()
    inputs = torch.randn(n, 5, dtype=torch.float64)
    inputs[:2] = inputs[:2].abs()
    return model, inputs, torch.randint(0, 3, (n,))


def jacobian(model, inputs):
    logits, theta = flat_function(model, inputs)
    return torch.autograd.functional.jacobian(logits, theta)


@pytest.mark.parametrize("name", ODD)
def test_a_sharpness_reader_is_right_whatever_the_first_layer(name):
    model, inputs, labels = odd(name)
    values = torch.linalg.eigvalsh(dense_gauss_newton(model, inputs, labels, "ce"))
    found = Sharpness(model, inputs, max_products=40).read(verify=True, tol=1e-6)
    np.testing.assert_allclose(found.value, float(values[-1]), rtol=1e-6)
    assert float((values - found.value).abs().min()) <= found.residual + 1e-12


def test_an_activation_in_place_leaves_the_residual_as_it_is():
    model, inputs, _ = odd("in place")
    with torch.no_grad():
        model[0].bias.add_(0.5)
    apart = copy.deepcopy(model)
    apart[1].inplace = False
    found, expected = (Sharpness(each, inputs, directions=2).read(verify=True) for each in (model, apart))
    np.testing.assert_allclose(found.residual, expected.residual, rtol=1e-9)


def test_a_plain_first_layer_is_still_compressed():
    model, inputs, _ = odd("in place")
    assert Sharpness(model, inputs).read().full_products == 0
    model, inputs, _ = case("mlp", n=50, dtype=torch.float32)
    model[0].register_forward_hook(lambda module, given, output: None)  # one that only looks
    assert Sharpness(model, inputs).read().full_products == 0


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("chunk", [None, 7])
def test_jacobian_norms_of_odd_models(name, chunk):
    model, inputs, _ = odd(name, n=11)
    expected = torch.linalg.matrix_norm(jacobian(model, inputs), 2)
    with torch.no_grad():
        found = jacobian_norms(model, inputs, batch_size=chunk)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)


def test_jacobian_norms_without_gradients_of_a_convolution():
    model, inputs, _ = case("convolution")
    with torch.no_grad():
        found = jacobian_norms(model, inputs)
    torch.testing.assert_close(found, torch.linalg.matrix_norm(jacobian(model, inputs), 2), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", ["mlp", "convolution"])
def test_jacobian_norms_of_a_diverged_model(name):
    model, inputs, _ = case(name)
    with torch.no_grad():
        model[0].weight.fill_(torch.nan)
    assert torch.isnan(jacobian_norms(model, inputs)).all()


def test_forward_mode_behind_a_compressed_first_layer():
    """No second derivative: J v runs the model again, in eval mode, and the reading can still be verified."""
    model, inputs, _ = case("once", n=40)
    model = nn.Sequential(model, nn.Dropout(0.5)).train()
    exact = float(torch.linalg.eigvalsh(GaussNewton(model, inputs).dense())[-1])
    found = Sharpness(model, inputs, max_products=40).read(verify=True, tol=1e-6)
    assert found.full_products == 1
    np.testing.assert_allclose(found.value, exact, rtol=1e-6)


@pytest.mark.parametrize("name", ["mlp", "convolution", "tied"])
def test_parameter_hooks_do_not_act_on_products(name):
    model, inputs, labels = case(name)
    expected = [kind(model, inputs, labels).dense() for kind in (GaussNewton, Hessian)]
    norms = jacobian_norms(model, inputs)
    top = Sharpness(model, inputs, max_products=40).read(tol=1e-6).value
    for p in model.parameters():
        p.register_hook(lambda g: 3 * g)
    for kind, matrix in zip((GaussNewton, Hessian), expected, strict=True):
        torch.testing.assert_close(kind(model, inputs, labels).dense(), matrix)
    torch.testing.assert_close(jacobian_norms(model, inputs), norms)
    np.testing.assert_allclose(Sharpness(model, inputs, max_products=40).read(tol=1e-6).value, top, rtol=1e-9)


def test_a_weight_reached_past_its_name_moves_with_it():
    torch.manual_seed(0)
    model, inputs = _hidden_reference().double(), torch.randn(9, 5, dtype=torch.float64)
    same = Reused().double()
    same.load_state_dict(model.state_dict())
    torch.testing.assert_close(GaussNewton(model, inputs).dense(), GaussNewton(same, inputs).dense())


def _replace_layer(model):
    model[2] = nn.Linear(6, 4).double()


def _through_data(model):
    model[2].weight.data.mul_(3)


def _new_data(model):
    model[2].weight.data = model[2].weight.data * 3


def _from_vector(model):
    vector = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    nn.utils.vector_to_parameters(1.5 * vector, model.parameters())


MOVES = {"layer": _replace_layer, "data in place": _through_data, "new data": _new_data, "from a vector": _from_vector}


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("kind", [GaussNewton, Hessian])
def test_every_way_of_moving_a_model_is_noticed_and_followed(kind, move):
    model, inputs, labels = case("mlp")
    operator = kind(model, inputs, labels)
    v = torch.randn(operator.dim, dtype=operator.dtype)
    operator.matvec(v)
    MOVES[move](model)
    with pytest.raises(BadInput, match="make a new one"):
        operator.matvec(v)
    operator.refresh()
    torch.testing.assert_close(operator.matvec(v), kind(model, inputs, labels).matvec(v))
    assert operator.parameters["2.weight"] is model[2].weight


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("before", [nn.Identity, nn.Tanh], ids=["compressed", "whole"])
def test_a_reader_follows_every_move(move, before):
    net, inputs, _ = case("mlp", n=40)
    model = nn.Sequential(before(), net)
    reader = Sharpness(model, inputs, max_products=40)
    reader.read()
    MOVES[move](net)
    exact = float(GaussNewton(model, inputs).top(1, 1e-8, max_products=200).values[0])
    np.testing.assert_allclose(reader.read(tol=1e-6).value, exact, rtol=1e-5)


def test_a_replaced_first_layer_is_followed():
    model, inputs, _ = case("mlp", n=40)
    reader = Sharpness(model, inputs, max_products=40)
    model[0] = nn.Linear(5, 6).double()
    exact = float(GaussNewton(model, inputs).top(1, 1e-8, max_products=200).values[0])
    np.testing.assert_allclose(reader.read(tol=1e-6).value, exact, rtol=1e-5)
    assert reader.parameters["0.weight"] is model[0].weight


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model[2].requires_grad_(False),
        lambda model: model.float(),
        lambda model: model.__setitem__(0, nn.Linear(5, 6, bias=False).double()),
    ],
)
@pytest.mark.parametrize("kind", [Sharpness, GaussNewton])
def test_another_set_of_parameters_needs_another_reader(kind, change):
    model, inputs, _ = case("mlp")
    reader = kind(model, inputs)
    change(model)
    with pytest.raises(BadInput, match="make a new"):
        reader.read() if kind is Sharpness else reader.refresh()


@pytest.mark.parametrize("change", [lambda m: m[4].requires_grad_(False), lambda m: m.float()])
def test_an_operator_notices_another_set_of_parameters(change):
    model, inputs, _ = case("mlp")
    operator = GaussNewton(model, inputs)
    change(model)
    with pytest.raises(BadInput, match="make a new one"):
        operator.matvec(torch.ones(operator.dim, dtype=operator.dtype))


def test_running_statistics_are_part_of_the_model():
    model, inputs, _ = case("batch norm")
    operator = GaussNewton(model, inputs)
    v = torch.ones(operator.dim, dtype=operator.dtype)
    operator.matvec(v)
    operator.matvec(v)
    model.train()(inputs)
    with pytest.raises(BadInput, match="make a new one"):
        operator.matvec(v)


def test_batch_norm_without_running_statistics_ties_all_rows():
    torch.manual_seed(0)
    layers = nn.Linear(5, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.Tanh(), nn.Linear(4, 3)
    model, inputs = nn.Sequential(*layers).double(), torch.randn(20, 5, dtype=torch.float64)
    labels = torch.randint(0, 3, (20,))
    operator = Hessian(model, inputs, labels)
    torch.testing.assert_close(operator.dense(), dense_hessian(model, inputs, labels, "ce"))
    assert operator.facts["batch_norm"] == "train"
    exact = float(torch.linalg.eigvalsh(dense_gauss_newton(model, inputs, labels, "ce"))[-1])
    np.testing.assert_allclose(Sharpness(model, inputs, max_products=60).read(tol=1e-6).value, exact, rtol=1e-6)
    for call in (GaussNewton, Sharpness):
        with pytest.raises(BadInput, match="in one batch"):
            call(model, inputs, batch_size=7)
    with pytest.raises(BadInput, match="ties the rows"):
        jacobian_norms(model, inputs)


def test_weight_norm_is_refused_by_the_hessian_alone():
    torch.manual_seed(0)
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(5, 6))
    model, inputs = nn.Sequential(layer, nn.Tanh(), nn.Linear(6, 3)), torch.randn(9, 5)
    labels = torch.randint(0, 3, (9,))
    with pytest.raises(BadInput, match="remove_parametrizations"):
        Hessian(model, inputs, labels)
    GaussNewton(model, inputs)
    nn.utils.parametrize.remove_parametrizations(layer, "weight")
    matrix = Hessian(model, inputs, labels).dense()
    torch.testing.assert_close(matrix, matrix.T, rtol=1e-4, atol=1e-6)


def test_a_model_that_is_sure_keeps_its_hessian():
    """Where the loss is all rounding, the model itself is not at fault."""
    model, inputs, labels = case("mlp", dtype=torch.float32)
    with torch.no_grad():
        model[4].weight.mul_(1e3)
        model[4].bias.copy_(torch.tensor([60.0, 0.0, -60.0]))
    assert torch.isfinite(Hessian(model, inputs, labels).matvec(torch.ones(79))).all()


class Counting(nn.Module):
    """Counts its calls in a buffer, in place, and keeps the last mean in another, by assignment."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(5, 3)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(5))

    def forward(self, x):
        self.calls += 1
        self.mean = x.mean(0).detach()
        return self.net(x)


def test_buffers_that_a_forward_pass_changes_are_put_back():
    model, inputs = Counting(), torch.randn(9, 5)
    mean = model.mean
    operator = GaussNewton(model, inputs)
    operator.top(1)
    Sharpness(model, inputs).read()
    jacobian_norms(model, inputs)
    assert model.calls == 0
    assert model.mean is mean
    assert (mean == 0).all()


def test_two_threads_never_hold_models_at_once():
    inside, most = [], []
    model = nn.Linear(3, 2)

    def hold():
        for _ in range(20):
            with frozen(model, "eval"):
                inside.append(1)
                most.append(len(inside))
                threading.Event().wait(0.0005)
                inside.pop()

    threads = [threading.Thread(target=hold) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 1
    assert model.training


def test_threads_agree_with_one_another():
    models = [case(name, seed=seed) for seed, name in enumerate(["convolution", "mlp", "convolution"])]
    expected = [GaussNewton(model, inputs).dense() for model, inputs, _ in models]
    found = {}

    def measure(index):
        model, inputs, _ = models[index]
        found[index] = GaussNewton(model, inputs, memory=0).dense()

    threads = [threading.Thread(target=measure, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index, matrix in enumerate(expected):
        torch.testing.assert_close(found[index], matrix)


@pytest.mark.parametrize("name", ["mlp", "convolution"])
@pytest.mark.parametrize(
    "around",
    [lambda: torch.autocast("cpu", torch.bfloat16), torch.inference_mode, torch.no_grad],
    ids=["autocast", "inference", "no grad"],
)
def test_autocast_and_inference_mode_change_nothing(around, name):
    model, inputs, labels = case(name, dtype=torch.float32)

    def measure():
        first, second = GaussNewton(model, inputs), Hessian(model, inputs, labels)
        v = torch.ones(first.dim)
        return (
            first.top(2).values,
            second.matvec(v),
            jacobian_norms(model, inputs),
            torch.tensor(Sharpness(model, inputs.clone()).read(verify=True).value),
            torch.tensor([point.largest for point in curvature_along_sam(model, inputs, labels, 0.1, 2)]),
        )

    expected = measure()
    with around():
        found = measure()
    for a, b in zip(expected, found, strict=True):
        assert torch.equal(a, b)


def test_attention_by_its_plain_formula():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
            self.head = nn.Linear(8, 3)

        def forward(self, x):
            return self.head(self.layer(x).mean(1))

    torch.manual_seed(0)
    model, inputs, labels = Attention().double(), torch.randn(6, 4, 8, dtype=torch.float64), torch.randint(0, 3, (6,))
    operator = Hessian(model, inputs, labels)
    v = torch.randn(operator.dim, dtype=torch.float64)
    logits, theta = flat_function(model, inputs)
    loss = lambda t: functional.cross_entropy(logits(t), labels)  # noqa: E731
    with frozen(model, "eval"):
        _, expected = torch.autograd.functional.vhp(loss, theta, v)
    torch.testing.assert_close(operator.matvec(v), expected)
    assert torch.backends.mha.get_fastpath_enabled()
    assert torch.backends.cuda.flash_sdp_enabled()


def test_a_copy_of_an_operator_goes_on_with_its_own_model():
    model, inputs, labels = case("mlp")
    operator = Hessian(model, inputs, labels)
    v = torch.ones(operator.dim, dtype=operator.dtype)
    expected = operator.matvec(v)
    twin = copy.deepcopy(operator)
    twin.refresh()
    assert torch.equal(twin.matvec(v), expected)
    assert twin.parameters["0.weight"] is not model[0].weight


@pytest.mark.parametrize("logit", [18.5, 40.0])
def test_a_sure_softmax_keeps_its_curvature(logit):
    """p_y ≈ 1 − 1e-8, where p ⊙ (u − ⟨p, u⟩) cancels in float32."""
    torch.manual_seed(0)
    model, inputs = nn.Linear(4, 3), 0.1 * torch.randn(30, 4)
    with torch.no_grad():
        model.bias.copy_(torch.tensor([logit, 0.0, 0.3]))
    exact = float(torch.linalg.eigvalsh(GaussNewton(copy.deepcopy(model).double(), inputs.double()).dense())[-1])
    operator = GaussNewton(model, inputs)
    top = float(operator.top(1, 1e-4).values[0])
    np.testing.assert_allclose(top, exact, rtol=1e-3)
    assert float(operator.bottom(1, 1e-4).values[0]) >= -1e-6 * top


@pytest.mark.parametrize("inside", [True, False], ids=["the model itself", "a wrapper"])
def test_a_compiled_model_is_read_as_it_was_written(inside):
    """Compiled graphs call no hooks, by which the first layer is found, and cannot be differentiated twice."""

    def network():
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 3))

    x, y = torch.randn(30, 6, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 3
    model = network()
    if inside:
        model.compile(backend="aot_eager")
    compiled = model if inside else torch.compile(model, backend="aot_eager")
    nn.functional.cross_entropy(compiled(x), y).backward()  # there is a graph by now
    plain = network()
    assert Sharpness(compiled, x, y).read() == Sharpness(plain, x, y).read()
    assert torch.equal(Hessian(compiled, x, y).top(1).values, Hessian(plain, x, y).top(1).values)

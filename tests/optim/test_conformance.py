"""What every step rule must do; the rows are in `cases.RULES`."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

import surefoot as sf
from surefoot.errors import BadInput
from tests.optim.cases import RULES, TWO_PASS, Rule, batch, closure, criterion, network, same, train, twin, weights

every = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
two_pass = pytest.mark.parametrize("rule", TWO_PASS, ids=lambda rule: rule.name)
# The dominant space alone is where SGD makes no progress (the paper's finding), and bSAM adds noise.
descends = [rule for rule in RULES if rule.name not in ("dom",)]


@pytest.mark.parametrize("rule", descends, ids=lambda rule: rule.name)
def test_descends(rule: Rule) -> None:
    model = network()
    torch.manual_seed(0)
    opt = rule.build(model, 0.05)
    x, y = batch()
    losses = [float(opt.step(closure(model, opt, x, y)).detach()) for _ in range(80)]
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.reduced], ids=lambda rule: rule.name)
def test_reduces_to_the_simpler_rule_to_the_bit(rule: Rule) -> None:
    assert rule.reduced is not None
    assert rule.simpler is not None
    ours, theirs = network(norm=True, dropout=0.2), network(norm=True, dropout=0.2)
    one, other = rule.reduced(ours, 0.05), rule.simpler(theirs, 0.05)
    torch.manual_seed(3)
    train(ours, one, 4)
    torch.manual_seed(3)
    train(theirs, other, 4)
    assert same(ours, theirs)
    assert all(torch.equal(a, b) for a, b in zip(ours.buffers(), theirs.buffers(), strict=True))


@every
def test_saved_and_loaded_it_goes_on_to_the_bit(rule: Rule) -> None:
    model = network(norm=True)
    opt = rule.build(model, 0.05)
    train(model, opt, 3)
    saved_model, saved = copy.deepcopy(model.state_dict()), copy.deepcopy(opt.state_dict())
    torch.manual_seed(5)
    train(model, opt, 3, seed=9)
    other = network(seed=8, norm=True)
    other.load_state_dict(saved_model)
    loaded = rule.build(other, 0.5)  # its rate comes from the state
    loaded.load_state_dict(saved)
    torch.manual_seed(5)
    train(other, loaded, 3, seed=9)
    assert same(model, other)


@every
def test_state_survives_torch_save(rule: Rule, tmp_path: object) -> None:
    model = network()
    opt = rule.build(model, 0.05)
    train(model, opt, 2)
    torch.save(opt.state_dict(), f"{tmp_path}/state.pt")
    read = torch.load(f"{tmp_path}/state.pt", weights_only=True)
    opt.load_state_dict(read)
    assert set(read) == {"state", "param_groups"}


@every
def test_copies_and_pickles_go_on_to_the_bit(rule: Rule) -> None:
    model = network()
    opt = rule.build(model, 0.05)
    train(model, opt, 2)
    if rule.name in ("bulk", "dom"):
        copied_model, copied = copy.deepcopy((model, opt))
    else:
        copied_model, copied = pickle.loads(pickle.dumps((model, opt)))
    for each, rule_of in ((model, opt), (copied_model, copied)):
        torch.manual_seed(5)
        train(each, rule_of, 2, seed=9)
    assert same(model, copied_model)


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_dtype_is_kept(rule: Rule, dtype: torch.dtype) -> None:
    if dtype == torch.bfloat16 and rule.name in ("bulk", "dom"):
        pytest.skip("curvature is not measured in bfloat16")
    model = network().to(dtype)
    opt = rule.build(model, 0.05)
    x, y = batch()
    loss = opt.step(closure(model, opt, x.to(dtype), y))
    assert loss.dtype == dtype
    assert all(p.dtype == dtype and bool(torch.isfinite(p).all()) for p in model.parameters())


@every
def test_zero_gradient(rule: Rule) -> None:
    model = network()
    opt = rule.build(model, 0.05)
    x, y = batch()
    loss_of = criterion(opt)

    def still() -> torch.Tensor:
        opt.zero_grad()
        loss = loss_of(model(x), y) * 0.0
        loss.backward()
        return loss

    opt.step(still)
    assert all(bool(torch.isfinite(p).all()) for p in model.parameters())
    if rule.passes == 2 and rule.name != "bsam":
        assert opt.last["epsilon"] == 0.0  # type: ignore[attr-defined]


@every
def test_parameter_without_gradient_is_left_alone(rule: Rule) -> None:
    class Unused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = network()
            self.idle = nn.Parameter(torch.ones(2, 2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x)

    model = Unused()
    opt = rule.build(model, 0.05)
    train(model, opt, 3)
    assert torch.equal(model.idle, torch.ones(2, 2))


@every
def test_frozen_parameters_are_untouched(rule: Rule) -> None:
    model = network()
    model[0].weight.requires_grad_(False)  # type: ignore[union-attr, operator]
    before = model[0].weight.clone()  # type: ignore[union-attr, operator]

    class Trainable(nn.Module):
        """The model, seen without its frozen part: what a user hands to an optimizer."""

        def __init__(self) -> None:
            super().__init__()
            self.all = model

        def parameters(self, recurse: bool = True):  # type: ignore[no-untyped-def]
            return (p for p in self.all.parameters() if p.requires_grad)

        def named_parameters(self, *args, **kwargs):  # type: ignore[no-untyped-def]
            return ((name, p) for name, p in super().named_parameters() if p.requires_grad)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.all(x)

    seen = Trainable()
    opt = rule.build(seen, 0.05)
    train(model, opt, 3)
    assert torch.equal(before, model[0].weight)  # type: ignore[union-attr, arg-type]


@two_pass
def test_batch_norm_advances_once(rule: Rule) -> None:
    """USERS 2: other packages update running statistics in both passes."""
    model = network(norm=True)
    reference = twin(model)
    opt = rule.build(model, 0.0)
    x, y = batch()
    torch.manual_seed(0)
    opt.step(closure(model, opt, x, y))
    if rule.name != "bsam":  # its first pass is at noisy weights
        reference(x)
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            assert torch.equal(getattr(model[2], name), getattr(reference[2], name))  # type: ignore[index]
    assert int(model[2].num_batches_tracked) == 1  # type: ignore[index, arg-type]


@pytest.mark.parametrize("kind", ["compiled", "scripted", "direct", "functional", "assigned"])
def test_batch_norm_advances_once_however_it_is_called(kind: str) -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm, self.last = nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.first(x)
            if kind == "direct":
                h = self.norm.forward(h)
            elif kind == "functional":
                h = nn.functional.batch_norm(h, self.norm.running_mean, self.norm.running_var, training=True)
            elif kind == "assigned":
                self.norm.running_mean = 0.9 * self.norm.running_mean + 0.1 * h.detach().mean(0)  # type: ignore[operator]
            else:
                h = self.norm(h)
            return self.last(h)

    torch.manual_seed(0)
    model: nn.Module = network(norm=True) if kind in ("compiled", "scripted") else Own()
    reference = twin(model)
    called: nn.Module = model
    if kind == "compiled":
        called = torch.compile(model, backend="eager")  # type: ignore[assignment]
    elif kind == "scripted":
        called = model = torch.jit.script(model)
    opt = sf.optim.SAM(torch.optim.SGD(model.parameters(), lr=0.0))
    x, y = batch()
    for _ in range(3):
        opt.step(closure(called, opt, x, y))
        reference(x)
    for a, b in zip(model.buffers(), reference.buffers(), strict=True):
        assert torch.allclose(a, b, atol=1e-6)


@two_pass
def test_random_numbers_advance_once_and_masks_are_shared(rule: Rule) -> None:
    model = network(dropout=0.5)
    opt = rule.build(model, 0.0)
    if isinstance(opt, sf.optim.BSAM):
        pytest.skip("draws noise of its own")
    x, y = batch()
    masks: list[torch.Tensor] = []
    model[2].register_forward_hook(lambda module, inputs, output: masks.append(output == 0))  # type: ignore[index, operator]
    torch.manual_seed(1)
    opt.step(closure(model, opt, x, y))
    after = torch.rand(3)
    torch.manual_seed(1)
    model(x)
    assert torch.equal(after, torch.rand(3))
    assert len(masks) == 3
    assert torch.equal(masks[0], masks[1])


@two_pass
def test_the_perturbation_is_of_this_batch(rule: Rule) -> None:
    """USERS 1: other packages perturb with the gradient of the batch before, or not at all in the first step."""
    model = network()
    opt = rule.build(model, 0.05)
    points: list[list[torch.Tensor]] = []
    x, y = batch()
    run = closure(model, opt, x, y)

    def seen() -> torch.Tensor:
        points.append(weights(model))
        return run()

    before = weights(model)
    loss = opt.step(seen)
    assert len(points) == 2
    assert float(loss.detach()) > 0
    assert not all(torch.equal(a, b) for a, b in zip(points[1], before, strict=True))
    if rule.name.startswith(("sam", "csam")):
        probe = network()
        nn.CrossEntropyLoss()(probe(x), y).backward()
        norm = torch.cat([p.grad.flatten() for p in probe.parameters() if p.grad is not None]).norm()
        for moved, p in zip(points[1], probe.parameters(), strict=True):
            assert torch.allclose(moved, p + 0.05 * p.grad / norm, atol=1e-6)  # type: ignore[operator]


@two_pass
def test_accumulation_over_micro_batches_equals_the_large_batch(rule: Rule) -> None:
    """USERS 4: the closure runs every micro-batch, in both passes."""
    if rule.name == "bsam":
        pytest.skip("noise")
    whole, split = network().double(), network().double()
    one, other = rule.build(whole, 0.05), rule.build(split, 0.05)
    x, y = batch()
    x = x.double()
    loss_of = criterion(other)

    def pieces() -> torch.Tensor:
        other.zero_grad()
        total = torch.zeros(())
        for at in range(0, len(x), 8):
            loss = loss_of(split(x[at : at + 8]), y[at : at + 8]) * 8 / len(x)
            loss.backward()
            total = total + loss.detach()
        return total

    for _ in range(3):
        one.step(closure(whole, one, x, y))
        other.step(pieces)
    for a, b in zip(whole.parameters(), split.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-10)


@two_pass
def test_gradients_gathered_before_the_step_are_refused(rule: Rule) -> None:
    model = network()
    opt = rule.build(model, 0.05)
    x, y = batch()
    train(model, opt, 1)
    before = weights(model)
    criterion(opt)(model(x), y).backward()
    with pytest.raises(BadInput, match="every micro-batch"):
        opt.step(closure(model, opt, x, y, zero=False))
    assert same(model, before)
    opt.zero_grad(set_to_none=False)
    opt.step(closure(model, opt, x, y))


@two_pass
def test_a_closure_that_forgets_to_zero_gives_the_same_step(rule: Rule) -> None:
    ours, theirs = network(), network()
    one, other = rule.build(ours, 0.05), rule.build(theirs, 0.05)
    x, y = batch()
    for _ in range(3):
        torch.manual_seed(0)
        one.step(closure(ours, one, x, y))
        torch.manual_seed(0)
        other.step(closure(theirs, other, x, y, zero=False))
    assert same(ours, theirs)


@two_pass
def test_misuse_raises(rule: Rule) -> None:
    model = network()
    opt = rule.build(model, 0.05)
    x, y = batch()
    loss_of = criterion(opt)
    with pytest.raises(BadInput, match="closure"):
        opt.step()
    before = weights(model)
    with pytest.raises(BadInput, match="backward"):
        opt.step(lambda: loss_of(model(x), y))
    train(model, opt, 1)
    before = weights(model)
    with pytest.raises(BadInput, match="backward"):  # stale gradients of the step before do not hide it
        opt.step(lambda: loss_of(model(x), y))
    assert same(model, before)


@two_pass
def test_a_closure_that_fails_in_the_second_pass_leaves_the_weights(rule: Rule) -> None:
    model = network(norm=True)
    opt = rule.build(model, 0.05)
    x, y = batch()
    run = closure(model, opt, x, y)
    calls = []

    def failing() -> torch.Tensor:
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("disk full")
        return run()

    before = weights(model)
    with pytest.raises(RuntimeError, match="disk full"):
        opt.step(failing)
    assert same(model, before)
    opt.zero_grad()
    assert torch.isfinite(opt.step(run))


@every
def test_learning_rate_schedulers_work(rule: Rule) -> None:
    model = network()
    opt = rule.build(model, 0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(opt, 1, gamma=0.5)
    rates = [group["lr"] for group in opt.param_groups]
    train(model, opt, 1)
    scheduler.step()
    assert [group["lr"] for group in opt.param_groups] == [rate / 2 for rate in rates]
    if isinstance(opt, sf.optim.TwoPass):
        assert [group["lr"] for group in opt.base.param_groups] == [rate / 2 for rate in rates]


@every
def test_a_rate_of_zero_moves_nothing(rule: Rule) -> None:
    model = network()
    before = weights(model)
    train(model, rule.build(model, 0.0), 2)
    assert same(model, before)


@pytest.mark.parametrize("rule", [r for r in RULES if r.name not in ("bulk", "dom")], ids=lambda rule: rule.name)
def test_parameter_groups(rule: Rule) -> None:
    model = network()
    opt = rule.build(model, 0.05)
    extra = nn.Parameter(torch.ones(3))
    opt.add_param_group({"params": [extra], "lr": 0.5})
    x, y = batch()
    loss_of = criterion(opt)

    def run() -> torch.Tensor:
        loss = loss_of(model(x) + extra, y)
        loss.backward()
        return loss

    opt.step(run)
    assert not torch.equal(extra, torch.ones(3))
    assert opt.param_groups[-1]["lr"] == 0.5
    if isinstance(opt, sf.optim.TwoPass):
        assert opt.base.param_groups is opt.param_groups
        with pytest.raises(BadInput, match="empty"):
            opt.add_param_group({"params": []})


@two_pass
@pytest.mark.parametrize("around", [True, False], ids=["autocast around the step", "autocast in the closure"])
def test_bfloat16_autocast_sees_the_perturbed_weights(rule: Rule, around: bool) -> None:
    """An autocast around the step keeps cast weights: they must not outlive the perturbation."""
    ours, theirs = network(), network()
    x, y = batch()

    def step(model: nn.Module, outside: bool) -> None:
        opt = rule.build(model, 0.05)
        run = closure(model, opt, x, y)

        def inside() -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return run()

        torch.manual_seed(0)
        if outside:
            with torch.autocast("cpu", torch.bfloat16):
                opt.step(run)
        else:
            opt.step(inside)

    step(ours, around)
    step(theirs, False)
    assert same(ours, theirs)


@pytest.mark.parametrize("rule", [rule for rule in TWO_PASS if rule.name != "bsam"], ids=lambda rule: rule.name)
def test_grad_scaler(rule: Rule) -> None:
    """USERS 3: the scaled run equals the unscaled one; an overflow skips the step and lowers the scale."""
    ours, theirs = network().double(), network().double()
    x, y = batch()
    x = x.double()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    one, other = rule.build(ours, 0.05), rule.build(theirs, 0.05)
    loss_of = criterion(one)
    factor = 1.0

    def scaled() -> torch.Tensor:
        one.zero_grad()
        loss = loss_of(ours(x), y) * factor
        scaler.scale(loss).backward()
        return loss

    for _ in range(3):
        one.step(scaled, scaler=scaler)  # type: ignore[call-arg]
        scaler.update()
        other.step(closure(theirs, other, x, y))
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-9)
    before, state = weights(ours), copy.deepcopy(one.state_dict()["state"])
    factor = float("inf")
    one.step(scaled, scaler=scaler)  # type: ignore[call-arg]
    scaler.update()
    assert same(ours, before)
    assert scaler.get_scale() < 2.0**10
    after = one.state_dict()["state"]
    for index, entry in state.items():
        for name, value in entry.items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(after[index][name]))


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.passes == 1], ids=lambda rule: rule.name)
def test_grad_scaler_steps_rules_of_one_pass_itself(rule: Rule) -> None:
    ours, theirs = network().double(), network().double()
    x, y = batch()
    x = x.double()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    one, other = rule.build(ours, 0.05), rule.build(theirs, 0.05)
    for _ in range(3):
        one.zero_grad()
        scaler.scale(nn.functional.cross_entropy(ours(x), y)).backward()
        scaler.step(one)
        scaler.update()
        other.step(closure(theirs, other, x, y))
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-9)


@two_pass
def test_gradient_clipping_in_the_closure(rule: Rule) -> None:
    model = network()
    opt = rule.build(model, 0.1)
    x, y = batch()
    run = closure(model, opt, x, y)
    norms = []

    def clipped() -> torch.Tensor:
        loss = run()
        nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        norms.append(nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None]))
        return loss

    opt.step(clipped)
    assert len(norms) == 2
    assert float(norms[1]) <= 1e-3 * (1 + 1e-5)


def test_gradient_clipping_under_a_scaler_by_a_hook_of_the_base() -> None:
    model = network()
    opt = sf.optim.SAM(torch.optim.SGD(model.parameters(), lr=1.0))
    opt.base.register_step_pre_hook(lambda *_: nn.utils.clip_grad_norm_(model.parameters(), 1e-3) and None)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    x, y = batch()

    def scaled() -> torch.Tensor:
        loss = nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        return loss

    before = weights(model)
    opt.step(scaled, scaler=scaler)
    moved = torch.cat([(a - b).flatten() for a, b in zip(weights(model), before, strict=True)]).norm()
    assert float(moved) == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize(
    "name", ["GD", "SGD", "AdamW", "SAM", "ASAM", "VASSO", "CSAM", "BSAM", "Muon", "BulkSGD", "DomSGD"]
)
def test_every_rule_is_a_torch_optimizer(name: str) -> None:
    assert issubclass(getattr(sf.optim, name), torch.optim.Optimizer)

"""`SurefootCallback` under `Trainer.fit`: the run stays as it is, readings arrive, rules take their two gradients."""

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.plugins.precision import MixedPrecision
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import surefoot as sf
from surefoot.errors import BadInput
from surefoot.integrations.lightning import SurefootCallback
from surefoot.runs.records import read_journal

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),  # inside Lightning, of torch's pytree
    pytest.mark.filterwarnings("ignore:.*does not have many workers:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*The number of training batches:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*callbacks used to create the checkpoint:UserWarning"),
]

RULES = {
    "sgd": lambda opt: opt,
    "sam": lambda opt: sf.optim.SAM(opt, rho=0.1),
    "csam": lambda opt: sf.optim.CSAM(opt, rho=0.1),
    "vasso": lambda opt: sf.optim.VASSO(opt, rho=0.1),
}


def rows():
    random = torch.Generator().manual_seed(0)
    x = torch.randn(80, 6, generator=random)
    return x, (x[:, :3] + 0.3 * torch.randn(80, 3, generator=random)).argmax(1)


X, Y = rows()
TRAIN, TEST = (X[:60], Y[:60]), (X[60:], Y[60:])


class Module(LightningModule):
    def __init__(self, rule="sgd"):
        super().__init__()
        torch.manual_seed(1)
        self.rule, self.loss, self.seen = rule, nn.CrossEntropyLoss(), 0
        self.net = nn.Sequential(nn.Linear(6, 10), nn.BatchNorm1d(10), nn.Tanh(), nn.Dropout(0.2), nn.Linear(10, 3))

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        x, y = batch
        self.seen += 1
        return self.loss(self(x), y)

    def configure_optimizers(self):
        opt = RULES[self.rule](torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9))
        if self.rule == "csam":
            self.loss = opt.outer(nn.CrossEntropyLoss())
        return opt


def loader():
    return DataLoader(TensorDataset(*TRAIN), batch_size=10)


def fit(module, *callbacks, epochs=2, ckpt_path=None, logger=False, **options):
    torch.manual_seed(2)
    trainer = Trainer(
        max_epochs=epochs, accelerator="cpu", logger=logger, callbacks=list(callbacks), enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=any(isinstance(c, ModelCheckpoint) for c in callbacks),
        **options,
    )  # fmt: skip
    trainer.fit(module, loader(), ckpt_path=ckpt_path)
    return module


def same(a, b):
    return all(torch.equal(u, v) for u, v in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def steps(callback):
    return [reading["step"] for reading in callback.tracker.readings]


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("rule", RULES)
def test_the_run_is_the_same_with_and_without_it(rule, precision):
    callback = SurefootCallback(TRAIN, TEST, every=5)
    watched = fit(Module(rule), callback, precision=precision)
    assert same(watched, fit(Module(rule), precision=precision))
    assert steps(callback) == [0, 5, 10]
    assert watched.seen == (12 if rule == "sgd" else 24)
    assert ("rule.epsilon" in callback.tracker.readings[-1]) == (rule != "sgd")


@pytest.mark.parametrize("rule", ["sam", "csam"])
def test_two_passes_are_those_of_a_loop_of_ones_own(rule):
    twin = Module(rule)
    opt = twin.configure_optimizers()
    torch.manual_seed(2)
    for _ in range(2):
        for x, y in loader():

            def closure(x=x, y=y):
                opt.zero_grad()
                loss = twin.loss(twin(x), y)
                loss.backward()
                return loss

            opt.step(closure)
    assert same(fit(Module(rule)), twin)


def test_accumulation_counts_steps_of_the_optimizer():
    callback = SurefootCallback(TRAIN, TEST, every={"calibration": 1})
    watched = fit(Module(), callback, accumulate_grad_batches=3)
    assert steps(callback) == [0, 1, 2, 3, 4]
    assert same(watched, fit(Module(), accumulate_grad_batches=3))


@pytest.mark.parametrize("rule", ["sgd", "vasso"])
def test_a_resumed_fit_goes_on_in_the_journal_to_the_bit(rule, tmp_path):
    def module():
        made = Module(rule)
        made.net[3].p = 0.0  # Lightning's checkpoints do not hold the random state
        return made

    def callback(name):
        return SurefootCallback(TRAIN, TEST, every={"calibration": 4, "curvature": 4}, out=tmp_path / name)

    whole = fit(module(), callback("whole"), epochs=4)
    saved = ModelCheckpoint(tmp_path / "saved", save_top_k=-1, filename="{step}")
    fit(module(), callback("parts"), saved, epochs=3)
    # From step 12, though the journal goes to 16: what it holds beyond is cut off and written again.
    again = callback("parts")
    resumed = fit(module(), again, epochs=4, ckpt_path=tmp_path / "saved" / "step=12.ckpt")
    assert steps(again) == [16, 20, 24]
    assert same(whole, resumed)
    journals = [(tmp_path / name / "journal.jsonl").read_bytes() for name in ("whole", "parts")]
    assert journals[0] == journals[1]


def test_a_checkpoint_made_without_it_begins_at_its_step(tmp_path):
    fit(Module(), ModelCheckpoint(tmp_path / "saved", filename="{step}"), epochs=1)
    callback = SurefootCallback(TRAIN, TEST, every=3, out=tmp_path / "journal")
    fit(Module(), callback, epochs=2, ckpt_path=tmp_path / "saved" / "step=6.ckpt")
    assert steps(callback) == [6, 9, 12]


def test_a_second_fit_of_one_trainer_goes_on(tmp_path):
    callback = SurefootCallback(TRAIN, TEST, every=6, out=tmp_path)
    module = fit(Module(), callback)
    module.trainer.fit_loop.max_epochs = 3
    module.trainer.fit(module, loader())
    assert [line["step"] for line in read_journal(tmp_path / "journal.jsonl")[0]] == [0, 6, 12, 18]


def test_another_run_does_not_write_into_the_journal(tmp_path):
    fit(Module(), SurefootCallback(TRAIN, TEST, out=tmp_path), epochs=1)
    with pytest.raises(BadInput, match="already holds a journal"):
        fit(Module(), SurefootCallback(TRAIN, TEST, out=tmp_path), epochs=1)


def test_the_journal_is_closed_when_training_fails(tmp_path):
    class Failing(Module):
        def training_step(self, batch, index):
            if self.trainer.global_step == 3:
                raise RuntimeError("the user's own")
            return super().training_step(batch, index)

    callback = SurefootCallback(TRAIN, TEST, every=1, out=tmp_path)
    with pytest.raises(RuntimeError, match="the user's own"):
        fit(Failing(), callback)
    assert callback.tracker._writer is None
    assert len(read_journal(tmp_path / "journal.jsonl")[0]) == 4


def test_readings_go_to_the_trainers_loggers(tmp_path):
    fit(Module(), SurefootCallback(TRAIN, TEST, every=6), logger=CSVLogger(tmp_path, name="", version=""))
    header, *lines = (tmp_path / "metrics.csv").read_text().splitlines()
    assert {"step", "train.ece", "sharpness", "test.log_q"} <= set(header.split(","))
    assert len(lines) == 3


def test_another_model_than_the_module_may_be_read():
    class Silent(Module):
        def forward(self, x):
            raise AssertionError("not asked")

        def training_step(self, batch, index):
            return self.loss(self.net(batch[0]), batch[1])

    module = Silent()
    callback = SurefootCallback(TRAIN, TEST, model=module.net, every=6)
    fit(module, callback)
    p = sf.Predictions.of(module.net, *TEST)
    assert callback.tracker.readings[-1]["test.ece"] == float(sf.metrics.ece(p))


@pytest.mark.parametrize("watched", [True, False])
def test_accumulation_with_two_passes_is_refused(watched):
    callbacks = [SurefootCallback(TRAIN, TEST)] if watched else []
    match = "accumulate_grad_batches must be 1" if watched else "gradients were computed before step"
    with pytest.raises(BadInput, match=match):
        fit(Module("sam"), *callbacks, accumulate_grad_batches=2)


@pytest.mark.parametrize("watched", [True, False])
def test_float16_with_two_passes_is_refused(watched):
    callbacks = [SurefootCallback(TRAIN, TEST)] if watched else []
    plugin = MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu"))
    with pytest.raises(BadInput, match="bf16-mixed" if watched else "needs a closure"):
        fit(Module("sam"), *callbacks, plugins=[plugin])


def test_float16_with_one_pass_works():
    plugin = MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu"))
    callback = SurefootCallback(TRAIN, TEST, every=6)
    fit(Module(), callback, plugins=[plugin])
    assert steps(callback) == [0, 6, 12]


def test_micro_batches_in_one_closure_by_manual_optimization():
    """The recipe of docs/INTEGRATIONS.md."""

    class Manual(Module):
        def __init__(self):
            super().__init__("sam")
            self.automatic_optimization = False
            self.held = []

        def training_step(self, batch, index):
            self.held.append(batch)
            if len(self.held) < 3:
                return
            opt, held, self.held = self.optimizers(), self.held, []

            def closure():
                opt.zero_grad()
                losses = [self.loss(self(x), y) / len(held) for x, y in held]
                for loss in losses:
                    self.manual_backward(loss)
                return sum(losses)

            opt.step(closure)

    callback = SurefootCallback(TRAIN, TEST, every={"calibration": 1})
    fit(Manual(), callback)
    assert steps(callback) == [0, 1, 2, 3, 4]
    assert callback.tracker.readings[-1]["rule.epsilon"] == pytest.approx(0.1)


def test_what_is_logged_can_be_that_of_the_first_pass():
    class Logged(Module):
        told = ()

        def training_step(self, batch, index):
            loss = super().training_step(batch, index)
            if self.optimizers().ascending:
                self.told = (*self.told, float(loss.detach()))
            return loss

    module = Logged("sam")
    callback = SurefootCallback(TRAIN, TEST, every={"calibration": 1})
    fit(module, callback, gradient_clip_val=0.5)
    assert list(module.told) == [reading["rule.loss"] for reading in callback.tracker.readings[1:]]


def test_true_bfloat16_is_read_without_curvature():
    with pytest.raises(BadInput, match="curvature needs float32"):
        fit(Module(), SurefootCallback(TRAIN, TEST), precision="bf16-true")
    callback = SurefootCallback(TRAIN, TEST, every={"calibration": 6, "margins": 6})
    fit(Module(), callback, precision="bf16-true")
    assert steps(callback) == [0, 6, 12]


def test_options_are_checked_at_once():
    with pytest.raises(BadInput, match=r"has no option 'evry'.*did you mean 'every'"):
        SurefootCallback(TRAIN, TEST, evry=5)


def test_rank_perturbations_of_their_own_are_refused():
    from surefoot.integrations.lightning import _check_two_passes

    module = Module()
    rule = sf.optim.SAM(torch.optim.SGD(module.parameters(), lr=0.1), per_rank=True)

    class Two:
        world_size, accumulate_grad_batches, precision_plugin = 2, 1, None

    with pytest.raises(BadInput, match="per_rank"):
        _check_two_passes(rule, Two(), module)
    _check_two_passes(rule.base, Two(), module)


def test_two_ranks_read_together_and_one_writes(tmp_path):
    def callback(name):
        return SurefootCallback(TRAIN, TEST, every=3, out=tmp_path / name)

    fit(Module("sam"), callback("two"), devices=2, strategy="ddp_fork")  # 60 rows in steps of 2 × 10
    fit(Module("sam"), callback("one"))
    two, one = (read_journal(tmp_path / name / "journal.jsonl")[0] for name in ("two", "one"))
    assert [line["step"] for line in two] == [0, 3, 6]
    assert two[-1]["rule.epsilon"] == pytest.approx(0.1)
    assert two[0] == pytest.approx(one[0], rel=1e-5, abs=1e-6)


@pytest.mark.filterwarnings("ignore:.*have no `val_dataloader`", "ignore:Checkpoint directory")
def test_a_checkpoint_that_is_only_validated_does_not_take_the_journal_back(tmp_path):
    class Judged(Module):
        def validation_step(self, batch, index):
            self.log("loss", self.loss(self(batch[0]), batch[1]))

    callback = SurefootCallback(TRAIN, TEST, every=3, out=tmp_path / "journal")
    module = fit(Judged(), callback, ModelCheckpoint(tmp_path / "saved", save_top_k=-1, filename="{step}"))
    module.trainer.validate(module, loader(), ckpt_path=tmp_path / "saved" / "step=6.ckpt", verbose=False)
    module.trainer.fit_loop.max_epochs = 3
    module.trainer.fit(module, loader())
    steps_read = [line["step"] for line in read_journal(tmp_path / "journal" / "journal.jsonl")[0]]
    assert steps_read == [0, 3, 6, 9, 12, 15, 18]


def test_several_steps_in_one_batch_leap_over_no_reading():
    class Often(Module):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch, index):
            opt = self.optimizers()
            for _ in range(1 if index == 0 else 3):  # steps 1, 4, 7, ...: none is a multiple of 3
                opt.zero_grad()
                self.manual_backward(self.loss(self(batch[0]), batch[1]))
                opt.step()

    callback = SurefootCallback(TRAIN, TEST, every={"calibration": 3})
    fit(Often(), callback, epochs=1)
    assert steps(callback) == [0, 4, 7, 10, 13, 16]


def test_several_callbacks_of_one_trainer_have_names(tmp_path):
    def pair():
        return [SurefootCallback(TRAIN, TEST, every=every, name=f"each {every}") for every in (4, 6)]

    saved = ModelCheckpoint(tmp_path, filename="{step}")
    fit(Module(), *pair(), saved, epochs=1)
    again = pair()
    fit(Module(), *again, epochs=2, ckpt_path=tmp_path / "step=6.ckpt")
    assert [steps(callback) for callback in again] == [[8, 12], [12]]


def test_a_failing_logger_of_the_trainer_is_called_by_its_name(tmp_path):
    class Broken(CSVLogger):
        def log_metrics(self, *_, **__):
            raise OSError("full")

    with pytest.warns(RuntimeWarning, match="logger Broken failed with OSError: full"):
        fit(Module(), SurefootCallback(TRAIN, TEST, every=6), logger=Broken(tmp_path), log_every_n_steps=1000)


def test_any_loss_reads_as_its_name_does():
    """Those of torch and ours, as everywhere; tests/test_loss.py has the table."""
    for loss, name in ((nn.CrossEntropyLoss(reduction="sum"), "ce"), (sf.losses.SquaredError("half"), "mse-half")):
        callbacks = [SurefootCallback(TRAIN, TEST, every=6, loss=given, name=str(given)) for given in (loss, name)]
        fit(Module(), *callbacks, epochs=1)
        by_object, by_name = (callback.tracker.readings for callback in callbacks)
        assert by_object == by_name
        assert by_object[-1]["sharpness"] > 0

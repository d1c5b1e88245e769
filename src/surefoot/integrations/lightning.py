"""A callback that takes readings during a `Trainer.fit` of Lightning; see docs/INTEGRATIONS.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from torch import nn
from torch.optim import Optimizer

from surefoot.dataset import DatasetLike
from surefoot.errors import BadInput, MissingDependency
from surefoot.integrations.options import Options, check_callback_options, own_rows
from surefoot.training.tracker import Tracker, numbers_of

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.loggers import Logger
except ImportError as error:
    raise MissingDependency(
        "surefoot.integrations.lightning needs Lightning; install it with: pip install 'surefoot[lightning]'"
    ) from error

__all__ = ["SurefootCallback"]


class SurefootCallback(Callback):
    """A callback that runs a `surefoot.Tracker` during a fit.

    The tracker counts Lightning's ``global_step``, the updates of the optimizer. The callback leaves the run
    bit-exactly as it is. Every reading is written to ``out`` and to the loggers of the trainer. Lightning's checkpoints
    contain the state of the tracker, and ``fit(ckpt_path=...)`` continues the journal.

    Every rank is given all rows and reads a share of them. Readings are of all rows, and rank 0 writes the readings.

    Args:
        train: training rows to read, as in `surefoot.Tracker`: (inputs, labels), or a loader of such pairs.
        test: test rows to read.
        val: validation rows to read, or None.
        model: a module from inputs to logits; None takes the LightningModule, whose ``forward`` must return logits.
        name: distinguishes several of these callbacks of one trainer in the checkpoints.
        options: further arguments of `surefoot.Tracker`: ``every``, ``budget``, ``out``, ``loss`` and so on.

    Attributes:
        tracker: the tracker, or None before training begins; ``tracker.readings`` are the readings of this process.

    Raises:
        BadInput: when there is no such option.

    Example:
        >>> import torch
        >>> rows = torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64)
        >>> SurefootCallback(train=rows, test=rows, every=100).tracker is None  # Trainer(callbacks=[...]) takes it
        True
    """

    def __init__(
        self,
        train: DatasetLike,
        test: DatasetLike,
        val: DatasetLike | None = None,
        model: nn.Module | None = None,
        name: str = "",
        **options: Unpack[Options],
    ) -> None:
        self._train, self._test, self._val, self._model, self._name = train, test, val, model, name
        self._fitting = True
        self._options = check_callback_options(options)
        self._loaded: dict[str, Any] | None = None
        self.tracker: Tracker | None = None

    @property
    def state_key(self) -> str:
        """Key of the state in Lightning's checkpoints."""
        return super().state_key + (f"({self._name})" if self._name else "")

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Note the stage before a checkpoint is loaded.

        `validate` and `test` also load checkpoints; the journal must not return to those.

        Args:
            trainer: the trainer.
            pl_module: the LightningModule.
            stage: ``"fit"``, ``"validate"``, ``"test"`` or ``"predict"``.
        """
        self._fitting, self._loaded = stage == "fit", None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Make the tracker and take the first reading.

        At this point, Lightning has loaded its checkpoint and made the optimizers.

        Args:
            trainer: the trainer.
            pl_module: the LightningModule.

        Raises:
            BadInput: when the trainer cannot run an optimizer of two gradients as configured, or rows differ between
                ranks.
        """
        for optimizer in trainer.optimizers:
            _check_two_passes(optimizer, trainer, pl_module)
        begun = trainer.global_step
        # A second fit of the same trainer continues as after loading a checkpoint.
        before = self._loaded or (self.state_dict() if begun else {})
        self._loaded = None
        options: Options = {**self._options}
        options["loggers"] = [*options.get("loggers", ()), *map(_TrainersLogger, trainer.loggers)]
        self.tracker = Tracker(
            pl_module if self._model is None else self._model,
            own_rows("train", self._train),
            own_rows("test", self._test),
            None if self._val is None else own_rows("val", self._val),
            trainer.optimizers[0] if len(trainer.optimizers) == 1 else None,
            start=begun,
            ranks=True,
            **options,
        )
        if before:
            self.tracker.load_state_dict(before)
        self.tracker.__enter__()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Take a reading if a step was taken and a reading is due; micro-batches of one step share the step's number.

        Args:
            trainer: the trainer.
            pl_module: the LightningModule.
            outputs: not used.
            batch: not used.
            batch_idx: not used.
        """
        assert self.tracker is not None
        if trainer.global_step:
            self.tracker.step(trainer.global_step - 1)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Close the journal.

        Args:
            trainer: the trainer.
            pl_module: the LightningModule.
        """
        self._close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Close the journal.

        Args:
            trainer: the trainer.
            pl_module: the LightningModule.
            exception: not used.
        """
        self._close()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the tracker for Lightning's checkpoint.

        Returns:
            The state; empty before training begins.
        """
        return {} if self.tracker is None else self.tracker.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the state of Lightning's checkpoint until the tracker is made.

        Args:
            state_dict: a result of `state_dict`.
        """
        if self._fitting:
            self._loaded = state_dict

    def _close(self) -> None:
        """Close the journal if there is a tracker."""
        if self.tracker is not None:
            self.tracker.__exit__(None, None, None)


class _TrainersLogger:
    """A logger of the trainer as a logger of the tracker."""

    def __init__(self, logger: Logger) -> None:
        self._logger, self.told_as = logger, type(logger).__name__

    def log(self, reading: Mapping[str, Any]) -> None:
        """Write the numbers of a reading."""
        self._logger.log_metrics(numbers_of(reading), reading["step"])

    def close(self) -> None:
        """Do nothing: the trainer closes its loggers."""


def _check_two_passes(optimizer: Optimizer, trainer: Trainer, module: LightningModule) -> None:
    """A clear error, before the first step, where the trainer cannot run an optimizer of two gradients."""
    if not getattr(optimizer, "needs_closure", False) or not module.automatic_optimization:
        return
    name = type(optimizer).__name__
    if trainer.world_size > 1 and getattr(optimizer, "per_rank", False):
        raise BadInput(
            f"{name} with per_rank=True needs a first gradient of each rank alone, and Lightning averages it: leave "
            "out per_rank, or use manual optimization with no_sync while the optimizer's alone is true"
        )
    if trainer.accumulate_grad_batches > 1:
        raise BadInput(
            f"{name} takes two gradients of the whole batch, and Lightning shows it the last micro-batch only: "
            f"accumulate_grad_batches must be 1; got {trainer.accumulate_grad_batches}. Take larger batches, or manual "
            "optimization with every micro-batch in one closure (docs/INTEGRATIONS.md)"
        )
    if getattr(trainer.precision_plugin, "scaler", None) is not None:
        raise BadInput(
            f"{name} takes two gradients, and Lightning's '16-mixed' runs the closure once itself, before its scaler "
            "steps; use precision='bf16-mixed', or a loop of your own with step(closure, scaler=scaler)"
        )

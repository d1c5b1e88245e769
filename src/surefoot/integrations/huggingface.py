"""A callback that takes readings during the training of a `transformers.Trainer`; see docs/INTEGRATIONS.md."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from surefoot.errors import BadInput, MissingDependency
from surefoot.integrations.options import Options, check_callback_options, own_rows
from surefoot.training.tracker import Tracker

try:
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
except ImportError as error:
    raise MissingDependency(
        "surefoot.integrations.huggingface needs transformers; install it with: pip install 'surefoot[transformers]'"
    ) from error

__all__ = ["Logits", "SurefootCallback"]

_LABELS = ("labels", "label")
_STATE = "surefoot.pt"  # name of the file in every checkpoint folder of the Trainer


class Logits(nn.Module):
    """A model of transformers as a function of one tensor, which stacks the columns of the model's inputs.

    Args:
        model: a classifier whose output has logits.
        names: names of the model's arguments, one per column.
    """

    def __init__(self, model: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute logits.

        Args:
            inputs: (b, ...) for one column, or (b, columns, ...) for several.

        Returns:
            (b, k) logits.

        Raises:
            BadInput: when the output of the model has no logits.
        """
        columns = (inputs,) if len(self.names) == 1 else inputs.unbind(1)
        # With bf16=True Accelerate replaces the model's forward by a forward that casts. Readings use the precision of
        # the weights, as everywhere else.
        called = getattr(self.model, "_original_forward", self.model)
        output = called(**dict(zip(self.names, columns, strict=True)))
        # With return_dict=False and without a loss, the logits are the first entry.
        logits: Tensor | None = output[0] if isinstance(output, tuple) else getattr(output, "logits", None)
        if logits is None:
            raise BadInput(f"model must give an output with logits, as classifiers do; got {type(output).__name__}")
        return logits


class SurefootCallback(TrainerCallback):
    """A callback that runs a `surefoot.Tracker` during training.

    The tracker counts the Trainer's ``global_step``, the updates of the optimizer. The callback leaves the run
    bit-exactly as it is. Every checkpoint folder contains the state of the tracker, and
    ``train(resume_from_checkpoint=...)`` continues the same journal.

    Args:
        train: training rows to read. The rows are a mapping of tensors by the names of the model's arguments, as a
            tokenizer returns with padding, and ``labels``; or a data set of such rows. Several columns must have equal
            shapes and dtypes (``input_ids``, ``attention_mask``, ``token_type_ids``).
        test: test rows to read, with the columns of ``train``.
        val: validation rows to read, with the columns of ``train``; or None.
        options: further arguments of `surefoot.Tracker`: ``every``, ``budget``, ``out``, ``loss``, ``loggers`` and so
            on.

    Attributes:
        tracker: the tracker, or None before training begins; ``tracker.readings`` are the readings of this process.

    Raises:
        BadInput: when rows are not as described, or there is no such option.

    Example:
        >>> tokens = torch.zeros(4, 3, dtype=torch.int64)
        >>> rows = {"input_ids": tokens, "attention_mask": tokens, "labels": torch.zeros(4, dtype=torch.int64)}
        >>> SurefootCallback(train=rows, test=rows, every=100).tracker is None  # trainer.add_callback(...) takes it
        True
    """

    def __init__(self, train: Any, test: Any, val: Any = None, **options: Unpack[Options]) -> None:
        self._names, inputs, labels = _columns("train", train)
        self._train, self._test = (inputs, labels), self._like_train("test", test)
        self._val = None if val is None else self._like_train("val", val)
        self._options = check_callback_options(options)
        self.tracker: Tracker | None = None

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        optimizer: Any = None,
        **kwargs: Any,
    ) -> None:
        """Make the tracker and take the first reading, or continue from the checkpoint.

        Args:
            args: arguments of the Trainer.
            state: state of the Trainer.
            control: not used.
            model: the model in training.
            optimizer: the optimizer of the Trainer.
            kwargs: not used.

        Raises:
            BadInput: when the optimizer needs a closure, which the Trainer does not pass, or rows differ between ranks.
        """
        own = getattr(optimizer, "optimizer", optimizer)  # Accelerate wraps the optimizer
        if getattr(own, "needs_closure", False):
            raise BadInput(
                f"{type(own).__name__} takes two gradients a step, and transformers' Trainer calls step() without a "
                "closure; train with an optimizer of one gradient (sf.optim.Muon, torch.optim.AdamW), with Lightning, "
                "or in a loop of your own"
            )
        self.tracker = Tracker(
            Logits(model, self._names),
            own_rows("train", self._train),
            own_rows("test", self._test),
            None if self._val is None else own_rows("val", self._val),
            own,
            start=state.global_step,
            ranks=True,
            **self._options,
        )
        saved = _folder(args, state) / _STATE
        if state.global_step and saved.exists():
            self.tracker.load_state_dict(torch.load(saved, weights_only=True))
        self.tracker.__enter__()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Take a reading if a reading is due.

        Args:
            args: not used.
            state: state of the Trainer.
            control: not used.
            kwargs: not used.
        """
        assert self.tracker is not None
        self.tracker.step(state.global_step - 1)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Write the state of the tracker into the checkpoint folder of the Trainer.

        Args:
            args: arguments of the Trainer.
            state: state of the Trainer.
            control: not used.
            kwargs: not used.
        """
        assert self.tracker is not None
        folder = _folder(args, state)
        if state.is_world_process_zero and folder.is_dir():
            torch.save(self.tracker.state_dict(), folder / _STATE)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Close the journal.

        Args:
            args: not used.
            state: not used.
            control: not used.
            kwargs: not used.
        """
        if self.tracker is not None:
            self.tracker.__exit__(None, None, None)

    def _like_train(self, name: str, given: Any) -> tuple[Tensor, Tensor]:
        """Inputs and labels of rows that must have the columns of the training rows."""
        names, inputs, labels = _columns(name, given)
        if names != self._names:
            raise BadInput(f"{name} must have the columns of train, {self._names}; got {names}")
        return inputs, labels


def _folder(args: TrainingArguments, state: TrainerState) -> Path:
    """The checkpoint folder of the Trainer for this step."""
    return Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"


def _columns(name: str, given: Any) -> tuple[tuple[str, ...], Tensor, Tensor]:
    """Names of the columns of inputs, the columns as one tensor, and the labels (n,)."""
    columns = dict(given) if isinstance(given, Mapping) else _gathered(name, given)
    labels = next((columns.pop(key) for key in _LABELS if key in columns), None)
    if labels is None or not columns:
        raise BadInput(f"{name} must have columns of inputs and 'labels'; got {', '.join(columns) or 'labels alone'}")
    try:
        tensors = {key: torch.as_tensor(column) for key, column in columns.items()}
        classes = torch.as_tensor(labels)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadInput(f"{name}: every column must be a tensor, padded to one length; {error}") from error
    if len({(column.shape, column.dtype) for column in tensors.values()}) > 1:
        kinds = ", ".join(f"{key} {column.dtype} {tuple(column.shape)}" for key, column in tensors.items())
        raise BadInput(f"{name}: columns of inputs must be alike in shape and dtype; got {kinds}; leave some out")
    stack = list(tensors.values())
    return tuple(tensors), stack[0] if len(stack) == 1 else torch.stack(stack, dim=1), classes


def _gathered(name: str, rows: Any) -> dict[str, Any]:
    """The columns of a data set of mappings."""
    try:
        examples = [dict(rows[index]) for index in range(len(rows))]
        return {key: torch.stack([torch.as_tensor(example[key]) for example in examples]) for key in examples[0]}
    except (TypeError, ValueError, KeyError, IndexError, RuntimeError) as error:
        raise BadInput(
            f"{name} must be a mapping of columns, or a data set of rows that are mappings, padded to one length; "
            f"got {type(rows).__name__} ({' '.join(str(error).split())[:120]})"
        ) from error

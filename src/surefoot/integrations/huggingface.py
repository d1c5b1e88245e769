"""Readings along a `transformers.Trainer`, by a callback; see docs/INTEGRATIONS.md."""

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
_STATE = "surefoot.pt"  # in each of the Trainer's checkpoint folders


class Logits(nn.Module):
    """A model of transformers as a function of one tensor, in which the columns of its inputs are stacked."""

    def __init__(self, model: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (b, k) of inputs (b, ...) of one column, or (b, columns, ...) of several."""
        columns = (inputs,) if len(self.names) == 1 else inputs.unbind(1)
        # Under bf16=True Accelerate replaces the model's forward by one that casts; a reading is in the weights' own
        # precision, as everywhere else.
        called = getattr(self.model, "_original_forward", self.model)
        said = called(**dict(zip(self.names, columns, strict=True)))
        # With return_dict=False, the loss being left out, logits come first.
        logits: Tensor | None = said[0] if isinstance(said, tuple) else getattr(said, "logits", None)
        if logits is None:
            raise BadInput(f"model must give an output with logits, as classifiers do; got {type(said).__name__}")
        return logits


class SurefootCallback(TrainerCallback):
    """A `surefoot.Tracker` along a training: steps are the Trainer's ``global_step``, its optimizer's updates.

    The run is the same with and without it, to the bit. The tracker's state lies in each checkpoint folder, and
    ``train(resume_from_checkpoint=...)`` goes on in the same journal.

    Args:
        train, test, val: rows to read: a mapping of tensors by the names of the model's arguments, as a tokenizer
            returns it with padding, and ``labels``; or a data set of such rows. Several columns must be alike in shape
            and kind (``input_ids``, ``attention_mask``, ``token_type_ids``).
        options: further arguments of `surefoot.Tracker`: ``every``, ``budget``, ``out``, ``loss``, ``loggers``, ...

    Attributes:
        tracker: the tracker, once training began; ``tracker.readings`` are those of this process.
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
        """Make the tracker and read, or go on where the checkpoint was made."""
        rule = getattr(optimizer, "optimizer", optimizer)  # Accelerate wraps it
        if getattr(rule, "needs_closure", False):
            raise BadInput(
                f"{type(rule).__name__} takes two gradients a step, and transformers' Trainer calls step() without a "
                "closure; train with a rule of one gradient (sf.optim.Muon, torch.optim.AdamW), with Lightning, or in "
                "a loop of your own"
            )
        self.tracker = Tracker(
            Logits(model, self._names),
            own_rows("train", self._train),
            own_rows("test", self._test),
            None if self._val is None else own_rows("val", self._val),
            rule,
            start=state.global_step,
            ranks=True,
            **self._options,
        )
        saved = _folder(args, state) / _STATE
        if state.global_step and saved.exists():
            found = torch.load(saved, weights_only=True)
            self.tracker.load_state_dict(found["tensors"], found["plain"])
        self.tracker.__enter__()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Read, if a reading is due."""
        assert self.tracker is not None
        self.tracker.step(state.global_step - 1)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Put the tracker's state beside what the Trainer saved."""
        assert self.tracker is not None
        folder = _folder(args, state)
        if state.is_world_process_zero and folder.is_dir():
            tensors, plain = self.tracker.state_dict()
            torch.save({"tensors": tensors, "plain": plain}, folder / _STATE)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Close the journal."""
        if self.tracker is not None:
            self.tracker.__exit__(None, None, None)

    def _like_train(self, name: str, given: Any) -> tuple[Tensor, Tensor]:
        names, inputs, labels = _columns(name, given)
        if names != self._names:
            raise BadInput(f"{name} must have the columns of train, {self._names}; got {names}")
        return inputs, labels


def _folder(args: TrainingArguments, state: TrainerState) -> Path:
    """Where the Trainer keeps its checkpoint of this step."""
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
    found = list(tensors.values())
    return tuple(tensors), found[0] if len(found) == 1 else torch.stack(found, dim=1), classes


def _gathered(name: str, rows: Any) -> dict[str, Any]:
    """The columns of a data set of mappings."""
    try:
        examples = [dict(rows[index]) for index in range(len(rows))]
        return {key: torch.stack([torch.as_tensor(each[key]) for each in examples]) for key in examples[0]}
    except (TypeError, ValueError, KeyError, IndexError, RuntimeError) as error:
        raise BadInput(
            f"{name} must be a mapping of columns, or a data set of rows that are mappings, padded to one length; "
            f"got {type(rows).__name__} ({' '.join(str(error).split())[:120]})"
        ) from error

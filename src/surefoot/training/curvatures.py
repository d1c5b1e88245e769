"""The readings of curvature along a run, each started from where it ended the time before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from surefoot.curvature import Hessian, Sharpness
from surefoot.curvature.batch_sharpness import batch_sharpness
from surefoot.curvature.sharpness import SharpnessReading
from surefoot.errors import BadInput
from surefoot.loss import CrossEntropy, Loss
from surefoot.ranks import Ranks
from surefoot.seeds import generator
from surefoot.training.ascent import PLACES, ascent_of, radius_of

__all__ = ["Curvatures"]

Record = dict[str, Any]


class Curvatures:
    """Sharpness of both parts, the ends of the Hessian's spectrum, batch sharpness, and the way that SAM climbs.

    Args:
        parts: this rank's (inputs, labels) by name; ``rows`` how many of each all ranks have.
        batch: rows in a training step, in which prices are counted.
        sample: examples of a part that its sharpness and the ascent are read on; all if None.
        optimizer: whose ascent is read.
    """

    def __init__(
        self,
        model: nn.Module,
        parts: Mapping[str, tuple[Tensor, Tensor]],
        rows: Mapping[str, int],
        loss: Loss,
        batch: int,
        seed: int,
        sample: int | None,
        optimizer: Optimizer | None,
        ranks: Ranks,
    ) -> None:
        self._model, self._parts, self._rows, self._loss, self._batch = model, parts, rows, loss, batch
        self._seed, self._sample, self._optimizer, self._ranks = seed, sample, optimizer, ranks
        self._readers: dict[str, Sharpness] = {}  # of each part whose sharpness is read
        self._starts: dict[str, Tensor] = {}  # of each end of the Hessian's spectrum

    def count(self, part: str) -> int:
        """Examples of a part that its sharpness is read on."""
        return self._rows[part] if self._sample is None else min(self._sample, self._rows[part])

    def check_ascent(self) -> None:
        """A clear error where there is no ascent to read."""
        if not radius_of(self._optimizer):
            raise BadInput(
                "readings of 'ascent' need an optimizer that climbs along the gradient: SAM, VASSO or CSAM, with one "
                "rho above 0 for all its groups"
            )
        if not isinstance(self._loss, CrossEntropy):
            raise BadInput("readings of 'ascent' are of the cross-entropy; leave them out for another loss")
        if self._ranks.count > 1:
            raise BadInput("readings of 'ascent' are of one process; leave out ascent, or ranks")

    def set_up(self, due: list[str]) -> float:
        """Make the readers of sharpness ready; the price of finding principal directions, the first time."""
        price = 0.0
        for part, groups in {"train": ("curvature", "bounds"), "test": ("test_curvature",)}.items():
            if set(groups) & set(due):
                first = part not in self._readers
                price += 4.5 * (self.count(part) / self._batch) if self._reader(part).compressed and first else 0.0
        return price

    def read(self, group: str, record: Record) -> float:
        """Add what a group reads to the record; its price in gradient steps, 0 for a group that is not ours."""
        of = self._GROUPS.get(group)
        return 0.0 if of is None else of(self, record)

    def verified(self, record: Record) -> SharpnessReading:
        """The sharpness of the training set, its error bounded by a product with the whole matrix."""
        reading = self._reader("train").read(verify=True)
        record |= {"sharpness": reading.value, "sharpness_residual": reading.residual}
        return reading

    def state_dict(self) -> dict[str, Tensor]:
        """What the next readings start from."""
        readers = {
            f"{_prefix(part)}sharpness.{name}": value
            for part, reader in self._readers.items()
            for name, value in reader.state_dict().items()
        }
        return readers | {f"hessian.{name}": start.clone() for name, start in self._starts.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Put back what `state_dict` gave."""
        for part in ("train", "test"):
            found = _under(f"{_prefix(part)}sharpness.", state)
            if found:
                self._reader(part).load_state_dict(found)
        self._starts = {name: start.clone() for name, start in _under("hessian.", state).items()}

    @property
    def _passes(self) -> float:
        """A pass over the training set, in gradient steps."""
        return self._rows["train"] / self._batch

    def _reader(self, part: str) -> Sharpness:
        if part not in self._readers:
            some = self.count(part) if self.count(part) < self._rows[part] else None
            settings: dict[str, Any] = {"seed": self._seed, "sample": some, "ranks": self._ranks.count > 1}
            self._readers[part] = Sharpness(self._model, *self._parts[part], self._loss, **settings)
        return self._readers[part]

    def _sharpness(self, record: Record) -> float:
        if "sharpness" in record:
            return 0.0  # the bounds needed it, and had it verified
        return self._sharpness_of("train", record)

    def _test_sharpness(self, record: Record) -> float:
        return self._sharpness_of("test", record)

    def _sharpness_of(self, part: str, record: Record) -> float:
        reading, count = self._reader(part).read(), self.count(part)
        name = f"{_prefix(part)}sharpness"
        record |= {name: reading.value, f"{name}_residual": reading.residual}
        if count < self._rows[part]:
            record[f"{name}_sample"] = count
        # A full product costs 1.0 to 1.5 gradient steps, a compressed one about an eighth of one.
        return count / self._batch * (1 + (1.5 * reading.full_products or 0.12 * reading.matvecs))

    def _hessian(self, record: Record) -> float:
        operator = self._full_hessian()
        record["gradient_norm"] = float(operator.gradient().norm())
        return self._passes + self._edge("hessian", operator, record, largest=True)

    def _hessian_min(self, record: Record) -> float:
        return self._edge("hessian_min", self._full_hessian(), record, largest=False)

    def _full_hessian(self) -> Hessian:
        return Hessian(self._model, *self._parts["train"], self._loss, ranks=self._ranks.count > 1)

    def _edge(self, name: str, operator: Hessian, record: Record, largest: bool) -> float:
        tol, most = (1e-2, 24) if largest else (0.1, 40)
        found, start = operator.follow(self._starts.pop(name, None), tol, largest, max_matvecs=most)
        record |= {name: float(found.values[0]), f"{name}_residual": float(found.residuals[0])}
        if start is not None:
            self._starts[name] = start
        return self._passes * found.matvecs

    def _batches(self, record: Record) -> float:
        settings: dict[str, Any] = {"tol": 0.1, "max_batches": 40, "ranks": self._ranks.count > 1}
        found = batch_sharpness(
            self._model, *self._parts["train"], self._batch, self._seed, loss=self._loss, **settings
        )
        record |= {"batch_sharpness": found.value, "batch_sharpness_error": found.standard_error}
        return (3.0 if self._passes == 1 else 8.0) * found.batches  # small batches pay for their checks

    def _ascent(self, record: Record) -> float:
        """κ_min on the way from θ to θ̃ on the training examples, and λ (Tan et al. 2026, Figure 2)."""
        x, y = self._parts["train"]
        count = self.count("train")
        if count < len(y):
            drawn = torch.randperm(len(y), generator=generator(self._seed, "sample"))[:count]
            x, y = x[drawn], y[drawn]
        record |= ascent_of(self._model, x, y, radius_of(self._optimizer))
        return 2 * 40 * PLACES * len(y) / self._batch  # both ends of the spectrum, some forty products each

    _GROUPS: Mapping[str, Callable[[Curvatures, Record], float]] = {
        "curvature": _sharpness,
        "test_curvature": _test_sharpness,
        "hessian": _hessian,
        "hessian_min": _hessian_min,
        "batch_sharpness": _batches,
        "ascent": _ascent,
    }


def _prefix(part: str) -> str:
    """Before the name of a part's sharpness: that of the training set is the plain one."""
    return "" if part == "train" else f"{part}."


def _under(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}

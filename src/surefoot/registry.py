"""Registry entries: one literal record with all that the library knows of a method. No torch.

Each package keeps its records in a table of its own, such as `surefoot.optim.registry.OPTIMIZERS`. Command line, specs,
studies, figures and tests read these tables; none of them enumerates methods.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

__all__ = ["MOROSINI2026", "TAN2026", "Citation", "Entry", "MetricEntry", "table"]


@dataclass(frozen=True)
class Citation:
    """The work that a method is from.

    Attributes:
        authors: family names, as a text cites them.
        year: of publication.
        title: of the work.
    """

    authors: str
    year: int
    title: str

    def __str__(self) -> str:
        return f"{self.authors} ({self.year}), {self.title!r}"


MOROSINI2026 = Citation("Morosini et al.", 2026, "Too Sharp, Too Sure: When Calibration Follows Curvature")
TAN2026 = Citation("Tan et al.", 2026, "Towards Understanding the Calibration Benefits of Sharpness-Aware Minimization")


@dataclass(frozen=True)
class Entry:
    """What every method has: a name, a builder, and where the method is from.

    Attributes:
        name: the name in specs, on the command line and in tables.
        builder: ``"module:callable"``, a class or a function. The module is imported on first use.
        fixed: arguments of the builder that the name stands for: ``"resnet20"`` is ``CifarResNet`` of depth 20.
        given: names of the builder's arguments that the library supplies, such as the model or the number of classes.
        citation: the work that the method is from; None for what needs none.
    """

    name: str
    builder: str
    fixed: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    given: tuple[str, ...] = field(default=(), kw_only=True)
    citation: Citation | None = field(default=None, kw_only=True)

    def resolve(self) -> Any:
        """The class or function that ``builder`` names."""
        return resolve(self.builder)

    def build(self, *args: Any, **options: Any) -> Any:
        """Call the builder with the entry's fixed arguments and these."""
        return self.resolve()(*args, **self.fixed, **options)

    def parameters(self) -> dict[str, inspect.Parameter]:
        """The builder's parameters that are neither fixed nor supplied by the library: a user's options, by name."""
        signature = inspect.signature(self.resolve())
        return {
            name: each
            for name, each in signature.parameters.items()
            if name not in self.fixed and name not in self.given
        }


@dataclass(frozen=True)
class MetricEntry(Entry):
    """A metric of predictions: a function from `Predictions` to a `Value`.

    Attributes:
        label: the heading in tables; by default the name with spaces.
        better: whether the higher or the lower value is better; None for a metric that is neither.
        bins: whether the builder takes a number of bins.
        costly: whether the metric takes more than one pass over the logits and a sort. Summaries leave it out.
        tracked: whether readings along training hold the metric: of all parts of the data, of the test part, or not.
            One that is read of all parts can choose weights and settings on validation.
        shifted: whether the metric is read on corrupted images.
    """

    label: str = field(default="", kw_only=True)
    better: Literal["higher", "lower"] | None = field(default="lower", kw_only=True)
    bins: bool = field(default=False, kw_only=True)
    costly: bool = field(default=False, kw_only=True)
    tracked: Literal["all", "test"] | None = field(default=None, kw_only=True)
    shifted: bool = field(default=False, kw_only=True)

    @property
    def heading(self) -> str:
        """The metric's name in tables.

        >>> MetricEntry("mean_confidence", "surefoot.metrics.scores:mean_confidence").heading
        'mean confidence'
        """
        return self.label or self.name.replace("_", " ")


E = TypeVar("E", bound=Entry)


def table(entries: Iterable[E]) -> dict[str, E]:
    """The entries by name, in their order.

    Raises:
        ValueError: if two entries have one name.
    """
    result: dict[str, E] = {}
    for entry in entries:
        if entry.name in result:
            raise ValueError(f"the name {entry.name!r} stands in the table twice")
        result[entry.name] = entry
    return result


def resolve(reference: str) -> Any:
    """What ``"module:name"`` names.

    >>> resolve("math:sqrt")(9.0)
    3.0
    """
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)

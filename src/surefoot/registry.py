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

from surefoot.errors import BadInput

__all__ = [
    "MOROSINI2026", "TAN2026", "CalibratorEntry", "Citation", "DatasetEntry", "EnsembleEntry", "Entry", "LossEntry",
    "MetricEntry", "OptimizerEntry", "resolve", "table",
]  # fmt: skip


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
        given: names of the builder's arguments that are no user's options: the library supplies them, such as the
            model or the number of classes, or leaves them at their defaults.
        former_options: current name by former name of an option. Specs with a former name are read for good, and run
            ids are hashes of the former names.
        citation: the work that the method is from; None for what needs none.
    """

    name: str
    builder: str
    fixed: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    given: tuple[str, ...] = field(default=(), kw_only=True)
    former_options: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    citation: Citation | None = field(default=None, kw_only=True)

    def resolve(self) -> Any:
        """Import the class or function that ``builder`` names.

        Returns:
            The class or function.
        """
        return resolve(self.builder)

    def build(self, *args: Any, **options: Any) -> Any:
        """Call the builder with the entry's fixed arguments and further arguments.

        Args:
            args: positional arguments.
            options: keyword arguments.

        Returns:
            The builder's result.
        """
        return self.resolve()(*args, **self.fixed, **options)

    def parameters(self) -> dict[str, inspect.Parameter]:
        """List the builder's parameters that are a user's options.

        Returns:
            The parameters by name.
        """
        signature = inspect.signature(self.resolve())
        return {
            name: parameter
            for name, parameter in signature.parameters.items()
            if name not in self.fixed and name not in self.given
        }

    def refusal(self, kind: str, options: Mapping[str, Any], error: Exception) -> BadInput:
        """Explain an error of Python or torch that the builder raised.

        Args:
            kind: kind of the method, such as ``"optimizer"``.
            options: the options that the builder was given.
            error: the error.

        Returns:
            An error that names the first option of another type than its default, or else all options.

        Example:
            >>> print(Entry("gd", "surefoot.optim.gd:GD").refusal("optimizer", {"lr": "x"}, TypeError("'<' …")))
            optimizer gd cannot take lr='x'; check the type of each value
        """
        if isinstance(error, BadInput):
            return error
        parameters = self.parameters()
        for name, value in options.items():
            default = parameters[name].default if name in parameters else None
            form = _form_of(default)
            if form and not _has_form(value, default):
                return BadInput(f"{kind} {self.name}: {name} must be {form}, such as {default!r}; got {value!r}")
        shown = ", ".join(f"{name}={value!r}" for name, value in options.items())
        reason = f": {' '.join(str(error).split())}"
        if isinstance(error, TypeError):
            reason = "; check the type of each value"
        return BadInput(f"{kind} {self.name} cannot take {shown or 'its default options'}{reason}")

    def current_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Give the options of a spec their current names.

        Args:
            options: the options, in either spelling.

        Returns:
            The options under current names, in the same order.

        Raises:
            BadInput: if an option is given in both spellings.

        Example:
            >>> Entry("power", "math:pow", former_options={"base": "x"}).current_options({"base": 2.0})
            {'x': 2.0}
        """
        for former, current in self.former_options.items():
            if former in options and current in options:
                raise BadInput(f"{self.name}: {former!r} is the former name of {current!r}; give {current!r} alone")
        return {self.former_options.get(name, name): value for name, value in options.items()}

    def hashed_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Give the options of a spec their former names, which the run's id is a hash of.

        Args:
            options: the options, in either spelling.

        Returns:
            The options under former names, in the same order.

        Example:
            >>> Entry("power", "math:pow", former_options={"base": "x"}).hashed_options({"x": 2.0})
            {'base': 2.0}
        """
        former = {current: name for name, current in self.former_options.items()}
        return {former.get(name, name): value for name, value in options.items()}


@dataclass(frozen=True)
class MetricEntry(Entry):
    """A metric of predictions: a function from `Predictions` to a `Value`.

    Attributes:
        label: the heading in tables; by default the name with spaces.
        better: whether the higher or the lower value is better; None for a metric that is neither.
        bins: whether the builder takes a number of bins.
        costly: whether summaries leave the metric out: one that takes more than one pass over the logits and a sort, or
            one that refines another metric of the summary.
        tracked: whether readings along training hold the metric: of all parts of the data, of the test part, or not.
            One that is read of all parts can choose weights and settings on validation.
        shifted: whether the metric is read on corrupted images.
        needs: what the predictions must be: ``"classes"`` for the probabilities of all classes, ``"two classes"`` for
            the probabilities of two, ``"binary"`` for two classes in one column or two, or ``"any"``.
        soft: whether soft labels suffice; False for a metric that compares right rows with wrong rows.
    """

    label: str = field(default="", kw_only=True)
    better: Literal["higher", "lower"] | None = field(default="lower", kw_only=True)
    bins: bool = field(default=False, kw_only=True)
    costly: bool = field(default=False, kw_only=True)
    tracked: Literal["all", "test"] | None = field(default=None, kw_only=True)
    shifted: bool = field(default=False, kw_only=True)
    needs: Literal["any", "classes", "two classes", "binary"] = field(default="any", kw_only=True)
    soft: bool = field(default=True, kw_only=True)

    @property
    def heading(self) -> str:
        """The metric's name in tables.

        >>> MetricEntry("mean_confidence", "surefoot.metrics.scores:mean_confidence").heading
        'mean confidence'
        """
        return self.label or self.name.replace("_", " ")


@dataclass(frozen=True)
class OptimizerEntry(Entry):
    """An optimizer of the training loop.

    Attributes:
        gradients: gradients of a batch in one step.
        directions: options of an optimizer that finds the sharpest directions, with their defaults: ``k`` of them,
            found every ``refresh`` steps. Empty for all others.
        colour: the colour in figures, such as ``"#0072B2"``; by default the palette's next.
    """

    gradients: int = field(default=1, kw_only=True)
    directions: Mapping[str, int] = field(default_factory=dict, kw_only=True)
    colour: str | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class LossEntry(Entry):
    """A training loss: a loss of logits and labels, or an objective that needs more.

    Attributes:
        gradients: what one call costs with the default options, in gradients of the cross-entropy.
        needs_validation: whether the loss looks at validation examples after each epoch.
        colour: as of `OptimizerEntry`.
    """

    gradients: int = field(default=1, kw_only=True)
    needs_validation: bool = field(default=False, kw_only=True)
    colour: str | None = field(default=None, kw_only=True)

    def parameters(self) -> dict[str, inspect.Parameter]:
        """List the options as `Entry.parameters` does, without ``reduction``: the loop takes the mean.

        Returns:
            The parameters by name.
        """
        return {name: parameter for name, parameter in super().parameters().items() if name != "reduction"}


@dataclass(frozen=True)
class EnsembleEntry(Entry):
    """An ensemble of networks.

    Attributes:
        repeats: the option that says how often the ensemble sees each batch, with its default; None if once.
        separate: whether the members are runs of their own.
    """

    repeats: tuple[str, int] | None = field(default=None, kw_only=True)
    separate: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class CalibratorEntry(Entry):
    """A post-hoc calibrator.

    Attributes:
        keeps_order: whether no predicted class can change.
        auto: the settings with which `Auto` considers the calibrator by default; None if `Auto` does not.
        auto_rows: number of rows from which `Auto` considers the calibrator.
        module: what makes a torch module of a fitted calibrator, as ``"module:callable"``; None if nothing does.
    """

    keeps_order: bool = field(default=False, kw_only=True)
    auto: Mapping[str, Any] | None = field(default_factory=dict, kw_only=True)
    auto_rows: int = field(default=0, kw_only=True)
    module: str | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class DatasetEntry(Entry):
    """A data set by name; the builder reads it from the folder of data, or returns None if its files are missing.

    Attributes:
        what: the data set in a few words.
        embedded: whether the data set is always there, without a folder of data.
        remedy: what to do where its files are missing.
        fetch: what brings the data set into the folder of data, as ``"module:callable"``; None if nothing does.
        corrupted: the folder of its official corruptions; None if there are none.
    """

    what: str = field(kw_only=True)
    embedded: bool = field(default=False, kw_only=True)
    remedy: str = field(default="", kw_only=True)
    fetch: str | None = field(default=None, kw_only=True)
    corrupted: str | None = field(default=None, kw_only=True)


# torch writes numbers of any kind as 0, such as the default of momentum.
_FORMS = {bool: "true or false", int: "a number", float: "a number", str: "text"}


def _form_of(default: Any) -> str | None:
    """The type of an option in words, by its default; None if the default does not say it."""
    if isinstance(default, tuple | list):
        inner = {type(item) for item in default}
        plural = {int: "integers", float: "numbers", str: "texts"}.get(inner.pop()) if len(inner) == 1 else None
        return f"a list of {plural}" if plural else "a list"
    return _FORMS.get(type(default))


def _has_form(value: Any, default: Any) -> bool:
    """Whether a value has the type of the default; an integer is a number, and true and false are not."""
    if isinstance(default, tuple | list):
        return isinstance(value, tuple | list) and (
            not default or all(isinstance(item, type(default[0])) or _is_number(item, default[0]) for item in value)
        )
    return isinstance(value, type(default)) if isinstance(default, bool | str) else _is_number(value, default)


def _is_number(value: Any, default: Any) -> bool:
    return isinstance(default, int | float) and isinstance(value, int | float) and not isinstance(value, bool)


E = TypeVar("E", bound=Entry)


def table(entries: Iterable[E]) -> dict[str, E]:
    """Make a table of entries.

    Args:
        entries: the entries.

    Returns:
        The entries by name, in their order.

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
    """Import an object by reference.

    Args:
        reference: ``"module:name"``.

    Returns:
        The object.

    Example:
        >>> resolve("math:sqrt")(9.0)
        3.0
    """
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)

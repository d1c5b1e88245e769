"""The specification of a run: typed tables, read from TOML and checked, and the run id.

An error names the wrong key, its value and the nearest right name. The run id is a hash of the specification.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from surefoot.deprecated import current_key, current_keys, former_keys, renamed_property, warn_renamed
from surefoot.ensembles.registry import ENSEMBLES
from surefoot.errors import BadInput
from surefoot.losses.registry import LOSSES
from surefoot.metrics.registry import check_validation
from surefoot.runs.records import canonical
from surefoot.training.schedule import GROUPS
from surefoot.training.spec_errors import ClearErrors, clear_error
from surefoot.validation import check_int, check_options

__all__ = [
    "BestSpec",
    "DataSpec",
    "Named",
    "ReadingScheduleSpec",
    "RunSpec",
    "ScheduleSpec",
    "ShiftSpec",
    "StopSpec",
    "TrackSpec",
    "members_of",
    "number_of",
    "read_spec",
]  # fmt: skip

SCHEMA = 1
_LARGEST = 3.4e38  # the largest float32
_FRACTION = re.compile(r"(-?\d{1,15}(?:\.\d{1,15})?)/(\d{1,15}(?:\.\d{1,15})?)")


def number_of(value: Any) -> Any:
    """Convert fractions such as ``"2/70"``, as papers write learning rates, to numbers.

    Args:
        value: A value of a spec. Tables and lists are converted item by item, since an optimizer may have a base
            optimizer with a rate of its own.

    Returns:
        The number for a fraction; any other value unchanged, but tuples as lists.

    Raises:
        BadInput: If the denominator is 0.

    Example:
        >>> number_of({"lr": "3/4", "name": "sgd"})
        {'lr': 0.75, 'name': 'sgd'}
    """
    if isinstance(value, dict):
        return {key: number_of(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [number_of(item) for item in value]
    fraction = _FRACTION.fullmatch(value) if isinstance(value, str) else None
    if fraction is None:
        return value
    if float(fraction[2]) == 0:
        raise BadInput(f"a fraction needs a denominator above 0; got {value!r}")
    return float(fraction[1]) / float(fraction[2])


class _Table(BaseModel, metaclass=ClearErrors):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Named(BaseModel, metaclass=ClearErrors):
    """A name of a registry and the arguments of the named entry, which the entry checks.

    Attributes:
        name: Name of a model, a loss, an optimizer or an ensemble.

    Example:
        >>> Named(name="focal", gamma=2.0).options
        {'gamma': 2.0}
    """

    model_config = ConfigDict(extra="allow", frozen=True)
    form: ClassVar = "a name, or a table with a name"
    name: str

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of the entry, without the name."""
        return dict(self.model_extra or {})


class DataSpec(_Table):
    """The table ``data``: the data set and its preparation by `surefoot.data.prepare.prepare`.

    Attributes:
        name: Name of the data set, or ``arrays:NAME`` for a file of the user.
        train: Number of training examples; all that are not held out if None.
        val: Number of validation examples, which are held out from the training set.
        test: Number of test examples; all if None.
        order: ``"random"`` draws the examples by the seed; ``"first"`` takes the first ones.
        standardise: ``"feature"``, ``"channel"`` or ``"none"``.
        noisy: Share of training labels, in [0, 1), that are replaced by another class.
        augment: Whether images are cropped and flipped.
    """

    name: str = "digits"
    train: int | None = Field(default=None, ge=1)
    val: int = Field(default=0, ge=0)
    test: int | None = Field(default=None, ge=1)
    order: Literal["random", "first"] = "random"
    standardise: Literal["feature", "channel", "none"] = "feature"
    noisy: float = Field(default=0.0, ge=0, lt=1)
    augment: bool = False


class ScheduleSpec(_Table):
    """The table ``schedule``: factor of the learning rate by step.

    Attributes:
        name: ``"constant"``, ``"cosine"`` or ``"step"``.
        warm_up: Number of steps over which the factor rises linearly.
        milestones: Steps at which ``"step"`` multiplies by ``factor``.
        factor: The factor of ``"step"``, above 0.
        floor: The last factor of ``"cosine"``, in [0, 1].
    """

    name: Literal["constant", "cosine", "step"] = "constant"
    warm_up: int = Field(default=0, ge=0)
    milestones: tuple[int, ...] = ()
    factor: float = Field(default=0.1, gt=0)
    floor: float = Field(default=0.0, ge=0, le=1)


class StopSpec(_Table):
    """The table ``stop``: length of the run and batch size.

    Attributes:
        steps: Number of steps; exactly one of ``steps`` and ``epochs`` is given.
        epochs: Number of passes over the training examples.
        batch: Number of examples of a step, or ``"full"`` for all.
    """

    steps: int | None = Field(default=None, ge=1)
    epochs: int | None = Field(default=None, ge=1)
    batch: int | Literal["full"] = "full"

    @field_validator("batch")
    @classmethod
    def _positive(cls, value: int | str) -> int | str:
        if isinstance(value, int) and value < 1:
            raise ValueError("must be at least 1, or 'full'")
        return value

    @model_validator(mode="after")
    def _one_of(self) -> StopSpec:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("give either steps or epochs")
        return self


class ReadingScheduleSpec(_Table):
    """Schedule of a group of readings: every ``every`` steps, or at ``log`` log-spaced steps."""

    form: ClassVar = "a number of steps, a table with every or log,"
    every: int | None = Field(default=None, ge=1)
    log: int | None = Field(default=None, ge=2)

    @model_validator(mode="after")
    def _one_of(self) -> ReadingScheduleSpec:
        if self.every is not None and self.log is not None:
            raise ValueError("give either every or log")
        return self


class CurvatureSpec(ReadingScheduleSpec):
    """Schedule of the sharpness readings, and their number of examples ``sample`` (all if None).

    ``sample`` also applies to readings of the ascent and to the sharpness of the test set.
    """

    sample: int | None = Field(default=None, ge=1)


class TrackSpec(_Table):
    """The table ``track``: groups of readings and their schedules.

    A group is True or False, a number of steps, or a table with ``every`` or ``log``. A group without its own schedule
    uses ``every`` of this table. The groups are described in `surefoot.training.groups`.

    Attributes:
        every: Number of steps between readings.
        budget: Share of the gradient steps, in (0, 1], that readings may cost; replaces ``every``.
        calibration: Accuracy, losses and calibration errors.
        margins: Margins and their moment log Q.
        curvature: Sharpness of the training loss; its table may have ``sample``, a number of examples.
        hessian: Largest eigenvalue of the Hessian.
        hessian_min: Smallest eigenvalue of the Hessian.
        batch_sharpness: Batch sharpness.
        histograms: Histograms of margins and confidence, and the reliability table.
        bounds: Bounds of the theorems of Morosini et al. (2026).
        robust: Robust margins; needs ``eps``.
        ascent: Curvature along SAM's ascent step (Tan et al. 2026).
        test_curvature: Sharpness of the test loss.
        eps: Radius of the ball of robust margins, in units of the raw data; needs ``robust``.
        norm: Norm of the ball, ``"inf"`` or ``"2"``.
    """

    every: int = Field(default=50, ge=1)
    budget: float | None = Field(default=None, gt=0, le=1)
    calibration: ReadingScheduleSpec | bool = True
    margins: ReadingScheduleSpec | bool = True
    curvature: CurvatureSpec | bool = True
    hessian: ReadingScheduleSpec | bool = False
    hessian_min: ReadingScheduleSpec | bool = False
    batch_sharpness: ReadingScheduleSpec | bool = False
    histograms: ReadingScheduleSpec | bool = False
    bounds: ReadingScheduleSpec | bool = False
    robust: ReadingScheduleSpec | bool = False
    ascent: ReadingScheduleSpec | bool = False
    test_curvature: ReadingScheduleSpec | bool = False
    eps: float | None = Field(default=None, gt=0)
    norm: Literal["inf", "2"] = "inf"

    @field_validator(*GROUPS, mode="before")
    @classmethod
    def _bare_number(cls, value: Any) -> Any:
        return {"every": value} if isinstance(value, int) and not isinstance(value, bool) else value

    @field_validator("eps", "budget", mode="before")
    @classmethod
    def _fraction(cls, value: Any) -> Any:
        return number_of(value)

    @model_validator(mode="after")
    def _one_way(self) -> TrackSpec:
        tables = [table for name in GROUPS if isinstance(table := getattr(self, name), ReadingScheduleSpec)]
        schedules = [table for table in tables if table.every is not None or table.log is not None]
        if self.budget is not None and ("every" in self.model_fields_set or schedules):
            raise ValueError("a budget spaces the readings itself; give budget or every, not both")
        return self

    @model_validator(mode="after")
    def _ball(self) -> TrackSpec:
        if (self.robust is not False) != (self.eps is not None):
            raise ValueError("robust margins need eps, the radius in units of the raw data, and eps needs robust")
        return self

    @property
    def sample(self) -> int | None:
        """Number of examples on which curvature is read; None for all."""
        return self.curvature.sample if isinstance(self.curvature, CurvatureSpec) else None

    @model_validator(mode="after")
    def _bounds_of_all(self) -> TrackSpec:
        if self.sample is not None and self.bounds is not False:
            raise ValueError("bounds compare with the sharpness of all examples; leave out curvature.sample, or bounds")
        return self


class BestSpec(_Table):
    """The table ``best``: keep the weights of the best validation reading, and stop early.

    Attributes:
        metric: Name of the metric, such as ``"val.nll"``.
        patience: Number of readings without improvement after which the run stops; None never stops early.
    """

    metric: str = "val.nll"
    patience: int | None = Field(default=None, ge=1)

    @field_validator("metric")
    @classmethod
    def _of_validation(cls, name: str) -> str:
        return check_validation(name)


class ShiftSpec(_Table):
    """The table ``shift``: corrupted test images and out-of-distribution data on which a finished run is evaluated.

    Attributes:
        corruptions: Names of corruptions, or ``"all"``.
        severities: Severities from 1 to 5.
        ood: Names of out-of-distribution data sets.
        rows: Number of examples of each data set, at least 20, from the front; all if None.
    """

    corruptions: tuple[str, ...] = ("all",)
    severities: tuple[int, ...] = Field(default=(1, 2, 3, 4, 5), min_length=1)
    ood: tuple[str, ...] = ()
    rows: int | None = Field(default=None, ge=20)

    @field_validator("corruptions", "ood", mode="before")
    @classmethod
    def _one(cls, given: Any) -> Any:
        return [given] if isinstance(given, str) else given

    @model_validator(mode="after")
    def _known(self) -> ShiftSpec:
        from surefoot.shift.corruptions import SEVERITIES, kinds_named

        kinds_named(self.corruptions)
        wrong = [severity for severity in self.severities if severity not in SEVERITIES]
        if wrong:
            raise ValueError(f"severities must be integers from 1 to 5; got {wrong[0]}")
        return self


class RunSpec(_Table):
    """The specification of a run.

    Attributes:
        seed: Seed of everything random.
        threads: Number of threads of torch.
        ranks: Number of processes that share every batch; 1 is stored as None.
        dtype: ``"float32"`` or ``"float64"``, the type of weights and inputs.
        data: The data set and its preparation.
        model: Name and options of the model.
        loss: Name and options of the loss.
        optimizer: Name and options of the optimizer.
        schedule: Factor of the learning rate by step.
        stop: Length of the run and batch size.
        track: Groups of readings and their schedules.
        best: Which weights are kept as the best ones; None keeps none.
        ensemble: Name and options of an ensemble; None trains one network.
        shift: Shifted data on which the finished run is evaluated; None for no such data.
        checkpoint: Number of steps between checkpoints.

    Example:
        >>> spec = RunSpec(optimizer="sgd", stop={"steps": 10})
        >>> spec.data.name, spec.model.name, spec.loss.name, spec.stop.batch
        ('digits', 'mlp', 'ce', 'full')
    """

    seed: int = Field(default=0, ge=0)
    threads: int = Field(default=1, ge=1)
    ranks: int | None = Field(default=None, ge=1)
    dtype: Literal["float32", "float64"] = "float32"
    data: DataSpec = DataSpec()
    model: Named = Named(name="mlp")
    loss: Named = Named(name="ce")
    optimizer: Named
    schedule: ScheduleSpec = ScheduleSpec()
    stop: StopSpec
    track: TrackSpec = TrackSpec()
    best: BestSpec | None = None
    ensemble: Named | None = None
    shift: ShiftSpec | None = None
    checkpoint: int = Field(default=200, ge=1)
    rule = renamed_property("rule", "optimizer")

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        _check_plain(given, "")
        if "rule" in given:  # `spec_of` takes the former key of files without a notice
            warn_renamed("the argument rule", "optimizer", stacklevel=5)
        return current_keys(given)

    @model_validator(mode="after")
    def _best_needs_readings(self) -> RunSpec:
        if self.best is not None and self.data.val == 0:
            raise ValueError(f"best.metric {self.best.metric} needs validation examples; set data.val")
        if self.best is not None and self.track.calibration is False:
            raise ValueError(f"best.metric {self.best.metric} needs readings of calibration; set track.calibration")
        return self

    @model_validator(mode="after")
    def _loss_needs_validation(self) -> RunSpec:
        entry = LOSSES.get(self.loss.name)
        if entry is not None and entry.needs_validation and self.data.val == 0:
            raise ValueError(f"loss {self.loss.name} looks at validation examples after each epoch; set data.val")
        return self

    @model_validator(mode="after")
    def _members_share_their_data(self) -> RunSpec:
        if self.ensemble is not None and self.ensemble.name == "deep" and self.data.order != "first":
            raise ValueError(
                "the members of a deep ensemble have different seeds and must have the same examples; set data.order = "
                "'first'"
            )
        return self

    @field_validator("ranks")
    @classmethod
    def _alone(cls, value: int | None) -> int | None:
        return None if value == 1 else value

    @model_validator(mode="after")
    def _equal_shares(self) -> RunSpec:
        if self.ranks is not None and self.ensemble is not None and self.ensemble.name == "deep":
            raise ValueError("the members of a deep ensemble are runs of their own; train them without ranks")
        count, batch = self.ranks or 1, self.stop.batch
        if batch != "full" and int(batch) % count:
            raise ValueError(f"stop.batch must be a multiple of ranks, which share it equally; got {batch} and {count}")
        return self

    @field_validator("data", "model", "loss", "optimizer", "schedule", "ensemble", mode="before")
    @classmethod
    def _bare_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else number_of(value)

    def resolved(self) -> dict[str, Any]:
        """All settings with their defaults, as plain values.

        Settings that later versions added are left out if they are not given, so that older runs keep their ids.

        Returns:
            The tables of the spec, as JSON can hold them.
        """
        settings = self.model_dump(mode="json")
        if self.track.sample is None and isinstance(settings["track"]["curvature"], dict):
            del settings["track"]["curvature"]["sample"]
        for group in ("ascent", "test_curvature"):
            if settings["track"][group] is False:
                del settings["track"][group]
        added = ("ensemble", "shift", "ranks")
        return {key: value for key, value in settings.items() if value is not None or key not in added}

    def run_id(self, digest: str) -> str:
        """The run's id: a hash of the resolved spec, the schema's version and the data.

        Args:
            digest: Digest of the data set, as `surefoot.data.sets.DataSet.digest` returns it.

        Returns:
            The first sixteen hexadecimal digits of the SHA-256 hash.
        """
        settings = self.resolved()
        for key, part, entries in (("loss", self.loss, LOSSES), ("ensemble", self.ensemble, ENSEMBLES)):
            if part is not None and part.name in entries:
                settings[key] = entries[part.name].hashed_options(settings[key])
        text = canonical({"schema": SCHEMA, "spec": former_keys(settings), "data": digest})
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def members_of(spec: RunSpec) -> list[RunSpec]:
    """The specs of the members of a deep ensemble.

    Members differ from the ensemble's spec in their seeds, which no other ensemble of the same size uses. A run
    without an ensemble that has the seed of a member is that member, and is not trained again.

    Args:
        spec: A spec whose ensemble is ``"deep"``.

    Returns:
        One spec for each member.

    Raises:
        BadInput: If the ensemble has an unknown option, or ``members`` is not a positive integer.

    Example:
        >>> spec = RunSpec(optimizer="sgd", stop={"steps": 10}, data={"order": "first"}, seed=2,
        ...                ensemble={"name": "deep", "members": 3})
        >>> [member.seed for member in members_of(spec)]
        [6, 7, 8]
    """
    assert spec.ensemble is not None
    check_options("ensemble deep", spec.ensemble.options, ["members"])
    size = check_int("ensemble.members", spec.ensemble.options.get("members", 5), 1)
    return [spec.model_copy(update={"ensemble": None, "seed": spec.seed * size + m}) for m in range(size)]


def read_spec(path: Path, changes: list[str] | None = None) -> RunSpec:
    r"""Read a spec from a TOML file and apply changes.

    Args:
        path: The file.
        changes: Changes such as ``"optimizer.lr=0.1"``. The values are TOML; a value that is no TOML is text.

    Returns:
        The spec.

    Raises:
        BadInput: If there is no such file, the file is no TOML, or a setting is not valid.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "run.toml"
        ...     _ = path.write_text('optimizer = "sgd"\nstop.steps = 10')
        ...     spec = read_spec(path, ["optimizer.lr=0.1", "loss=focal"])
        >>> spec.optimizer.options, spec.loss.name
        ({'lr': 0.1}, 'focal')
    """
    table = current_keys(read_toml(path, "spec"))
    current_keys(dict.fromkeys(re.split(r"[.=]", change, maxsplit=1)[0].strip() for change in changes or []))
    for change in changes or []:
        _change(table, change)
    return spec_of(table, path.name)


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The tables of a TOML file; ``what`` names its content in errors."""
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError as error:
        raise BadInput(f"no {what} at {str(path)!r}; give the path of a .toml file") from error
    except (OSError, ValueError, RecursionError) as error:  # endless numbers and brackets raise no TOMLDecodeError
        raise BadInput(f"{path.name} is no TOML file: {error}") from error


def spec_of(table: dict[str, Any], source: str = "spec") -> RunSpec:
    """Check plain tables and make a `RunSpec`; the error names the key, its form and the nearest right name."""
    try:
        return RunSpec.model_validate(current_keys(table))
    except ValidationError as error:
        raise clear_error(error, RunSpec, source) from error


def _check_plain(value: Any, place: str) -> None:
    """Refuse what a spec's file cannot hold, and numbers that no training uses: infinite, NaN or beyond float32."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            _check_plain(item, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list | tuple):
        for item in value:
            _check_plain(item, place)
    elif isinstance(value, float) and not abs(value) <= _LARGEST:
        raise BadInput(f"{place} must be a finite number; got {value}")
    elif hasattr(value, "tolist") and not isinstance(value, float):  # a tensor, an array or a number of numpy
        raise BadInput(
            f"{place} must be a number or a list of Python; got {type(value).__name__}; give .item() or .tolist() of it"
        )
    elif not isinstance(value, None | bool | int | float | str | PurePath | BaseModel):
        raise BadInput(f"{place} must be a number, text, a list or a table; got {value!r}")


def _change(table: dict[str, Any], change: str) -> None:
    key, equals, text = change.partition("=")
    if not equals or not key.strip():
        raise BadInput(f"changes must be key=value, such as optimizer.lr=0.1; got {change!r}")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    *path, last = current_key(key).split(".")
    place = table
    for part in path:
        inner = place.setdefault(part, {})
        if isinstance(inner, str):  # loss = "ce", and then loss.gamma is set
            inner = place[part] = {"name": inner}
        if not isinstance(inner, dict):
            raise BadInput(f"changes: {key}: {part!r} is a value, not a table")
        place = inner
    place[last] = value

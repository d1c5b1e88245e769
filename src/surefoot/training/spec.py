"""What a run is: a typed specification read from TOML, an error with the nearest name where it is wrong, its hash."""

from __future__ import annotations

import hashlib
import re
import tomllib
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from surefoot.errors import BadInput
from surefoot.losses.registry import LOSSES
from surefoot.metrics.registry import check_validation
from surefoot.runs.records import canonical
from surefoot.spellings import current_key, current_keys, former_keys
from surefoot.training.schedule import GROUPS
from surefoot.training.spec_errors import clear_error
from surefoot.validation import check_int, check_options

__all__ = [
    "BestSpec",
    "DataSpec",
    "Named",
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
_LARGEST = 3.4e38  # of float32
_FRACTION = re.compile(r"(-?\d{1,15}(?:\.\d{1,15})?)/(\d{1,15}(?:\.\d{1,15})?)")


def number_of(value: Any) -> Any:
    """A word such as ``"2/70"``, as papers write learning rates, is the number; anything else is itself.

    Tables and lists are looked through: an optimizer may have a base with a rate of its own.
    """
    if isinstance(value, dict):
        return {key: number_of(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [number_of(each) for each in value]
    found = _FRACTION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return value
    if float(found[2]) == 0:
        raise BadInput(f"a fraction needs a denominator above 0; got {value!r}")
    return float(found[1]) / float(found[2])


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Named(BaseModel):
    """A name and its own arguments, which the thing of that name checks."""

    model_config = ConfigDict(extra="allow", frozen=True)
    form: ClassVar = "a name, or a table with a name"
    name: str

    @property
    def options(self) -> dict[str, Any]:
        """The arguments without the name."""
        return dict(self.model_extra or {})


class DataSpec(_Table):
    """Arguments of `surefoot.data.prepare.prepare`, and whether images are cropped and flipped."""

    name: str = "digits"
    train: int | None = Field(default=None, ge=1)
    val: int = Field(default=0, ge=0)
    test: int | None = Field(default=None, ge=1)
    order: Literal["random", "first"] = "random"
    standardise: Literal["feature", "channel", "none"] = "feature"
    noisy: float = Field(default=0.0, ge=0, lt=1)
    augment: bool = False


class ScheduleSpec(_Table):
    """The learning rate over the run, as a factor."""

    name: Literal["constant", "cosine", "step"] = "constant"
    warm_up: int = Field(default=0, ge=0)
    milestones: tuple[int, ...] = ()
    factor: float = Field(default=0.1, gt=0)
    floor: float = Field(default=0.0, ge=0, le=1)


class StopSpec(_Table):
    """When the run ends, and how many rows a step sees."""

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


class CadenceSpec(_Table):
    """How often a group of readings is taken: every so many steps, or at that many log-spaced steps."""

    form: ClassVar = "a number of steps, a table with every or log,"
    every: int | None = Field(default=None, ge=1)
    log: int | None = Field(default=None, ge=2)

    @model_validator(mode="after")
    def _one_of(self) -> CadenceSpec:
        if self.every is not None and self.log is not None:
            raise ValueError("give either every or log")
        return self


class CurvatureSpec(CadenceSpec):
    """Also how many examples are read, by ascents and of the test set too; all if not given."""

    sample: int | None = Field(default=None, ge=1)


class TrackSpec(_Table):
    """Which readings are taken and when; a group without a cadence of its own takes ``every``."""

    every: int = Field(default=50, ge=1)
    budget: float | None = Field(default=None, gt=0, le=1)
    calibration: CadenceSpec | bool = True
    margins: CadenceSpec | bool = True
    curvature: CurvatureSpec | bool = True
    hessian: CadenceSpec | bool = False
    hessian_min: CadenceSpec | bool = False
    batch_sharpness: CadenceSpec | bool = False
    histograms: CadenceSpec | bool = False
    bounds: CadenceSpec | bool = False
    robust: CadenceSpec | bool = False
    ascent: CadenceSpec | bool = False
    test_curvature: CadenceSpec | bool = False
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
        tables = [table for name in GROUPS if isinstance(table := getattr(self, name), CadenceSpec)]
        cadences = [table for table in tables if table.every is not None or table.log is not None]
        if self.budget is not None and ("every" in self.model_fields_set or cadences):
            raise ValueError("a budget spaces the readings itself; give budget or every, not both")
        return self

    @model_validator(mode="after")
    def _ball(self) -> TrackSpec:
        if (self.robust is not False) != (self.eps is not None):
            raise ValueError("robust margins need eps, the radius in units of the raw data, and eps needs robust")
        return self

    @property
    def sample(self) -> int | None:
        """Examples that curvature is read on, if not all."""
        return self.curvature.sample if isinstance(self.curvature, CurvatureSpec) else None

    @model_validator(mode="after")
    def _bounds_of_all(self) -> TrackSpec:
        if self.sample is not None and self.bounds is not False:
            raise ValueError("bounds compare with the sharpness of all examples; leave out curvature.sample, or bounds")
        return self


class BestSpec(_Table):
    """Keep the weights of the best validation reading; with ``patience``, stop after so many readings without one."""

    metric: str = "val.nll"
    patience: int | None = Field(default=None, ge=1)

    @field_validator("metric")
    @classmethod
    def _of_validation(cls, given: str) -> str:
        return check_validation(given)


class ShiftSpec(_Table):
    """What a finished run is also read on: corrupted test images and foreign sets, the first ``rows`` of each."""

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
            raise ValueError(f"severities must be whole numbers from 1 to 5; got {wrong[0]}")
        return self


class RunSpec(_Table):
    """A whole run."""

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

        What came later and is not given is left out, so that older runs keep their names.
        """
        found = self.model_dump(mode="json")
        if self.track.sample is None and isinstance(found["track"]["curvature"], dict):
            del found["track"]["curvature"]["sample"]
        for group in ("ascent", "test_curvature"):
            if found["track"][group] is False:
                del found["track"][group]
        later = ("ensemble", "shift", "ranks")
        return {key: value for key, value in found.items() if value is not None or key not in later}

    def run_id(self, digest: str) -> str:
        """First sixteen hexadecimal digits of the hash of the resolved spec, the schema and the data's digest."""
        text = canonical({"schema": SCHEMA, "spec": former_keys(self.resolved()), "data": digest})
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def members_of(spec: RunSpec) -> list[RunSpec]:
    """The specs of a deep ensemble's members: the same run from other seeds, which no other ensemble uses.

    A run without an ensemble that has one of those seeds is that member, and is not trained again.
    """
    assert spec.ensemble is not None
    check_options("ensemble deep", spec.ensemble.options, ["members"])
    size = check_int("ensemble.members", spec.ensemble.options.get("members", 5), 1)
    return [spec.model_copy(update={"ensemble": None, "seed": spec.seed * size + m}) for m in range(size)]


def read_spec(path: Path, changes: list[str] | None = None) -> RunSpec:
    """The spec in a TOML file, with ``a.b=value`` changes, whose values are TOML too (bare words are text)."""
    table = current_keys(read_toml(path, "spec"))
    for change in changes or []:
        _change(table, change)
    return spec_of(table, path.name)


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The tables of a TOML file that holds a spec or a study."""
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError as error:
        raise BadInput(f"no {what} at {str(path)!r}; give the path of a .toml file") from error
    except (OSError, ValueError, RecursionError) as error:  # endless numbers and brackets are no TOMLDecodeError
        raise BadInput(f"{path.name} is no TOML file: {error}") from error


def spec_of(table: dict[str, Any], source: str = "spec") -> RunSpec:
    """A `RunSpec` of plain tables, or an error that names the key, what it must be, and the nearest right one."""
    _check_finite(table, source, "")
    try:
        return RunSpec.model_validate(current_keys(table))
    except ValidationError as error:
        raise clear_error(error, RunSpec, source) from error


def _check_finite(value: Any, source: str, place: str) -> None:
    """No number in a spec may be infinite, NaN or beyond float32: JSON has no word for it, and nothing trains by it."""
    if isinstance(value, dict):
        for key, item in value.items():
            _check_finite(item, source, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list | tuple):
        for item in value:
            _check_finite(item, source, place)
    elif isinstance(value, float) and not abs(value) <= _LARGEST:
        raise BadInput(f"{source}: {place} must be a finite number; got {value}")


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

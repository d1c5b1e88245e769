"""Former names: of Python, until 0.3; of specs, studies and scales, for good.

Names of version 0.1 still work in 0.2.x, each with a `DeprecationWarning` that names the new name. Files and folders
with former spec keys, names of studies or scales stay readable. `docs/MIGRATING.md` lists all of them.
"""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

from surefoot import errors
from surefoot.errors import BadInput

__all__ = [
    "OLD_MODULES",
    "OLD_NAMES",
    "current_key",
    "current_keys",
    "current_name",
    "former_keys",
    "former_name",
    "install",
    "old_value",
    "renamed_arguments",
    "renamed_names",
    "renamed_property",
    "warn_renamed",
]

P = ParamSpec("P")
R = TypeVar("R")

OLD_MODULES: Mapping[str, str] = {
    "surefoot.curvature.linearised": "surefoot.curvature.operator",
    "surefoot.curvature.gauss_newton": "surefoot.curvature.operator",
    "surefoot.optim.csam": "surefoot.optim.sam",
    "surefoot.optim.passes": "surefoot.optim.base",
    "surefoot.training.loggers": "surefoot.training.tracker",
    "surefoot.training.api": "surefoot.training.run",
    "surefoot.training.examples": "surefoot.runs.writer",
    "surefoot.training.best": "surefoot.training.loop",
    "surefoot.training.state": "surefoot.training.assemble",
    "surefoot.studies.gather": "surefoot.studies.folder",
    "surefoot.reports.api": "surefoot.reports.page",
    "surefoot.reports.places": "surefoot.reports.runs",
    "surefoot.reports.figures.colours": "surefoot.reports.figures.legend",
    "surefoot.reports.figures.portrait": "surefoot.reports.figures.panels",
    "surefoot.data.pickles": "surefoot.data.formats",
    "surefoot.reports.frames": "surefoot.reports.runs",
    "surefoot.reports.page.png": "surefoot.reports.page.payload",
    "surefoot.reports.specs": "surefoot.reports.figures.compare",
    "surefoot.studies.facts": "surefoot.studies.plan",
    "surefoot.studies.costs": "surefoot.studies.plan",
    "surefoot.training.readings": "surefoot.training.groups",
    "surefoot.curvature.parameters": "surefoot.curvature.problem",
    "surefoot.metrics.noise": "surefoot.metrics.ece",
    "surefoot.metrics.summary": "surefoot.metrics.registry",
    "surefoot.columns": "surefoot.predictions",
    "surefoot.checks": "surefoot.validation",
    "surefoot.door": "surefoot.validation",
    "surefoot.curvature.losses": "surefoot.loss",
    "surefoot.ensembles.names": "surefoot.ensembles.registry",
    "surefoot.losses.base": "surefoot.loss",
    "surefoot.losses.held": "surefoot.losses.frozen_network",
    "surefoot.losses.names": "surefoot.losses.registry",
    "surefoot.losses.squared_error": "surefoot.loss",
    "surefoot.models.deep_resnet": "surefoot.models.resnet",
    "surefoot.models.layout": "surefoot.models.resnet",
    "surefoot.models.names": "surefoot.models.registry",
    "surefoot.models.start": "surefoot.models.resnet",
    "surefoot.optim.names": "surefoot.optim.registry",
    "surefoot.optim.rules": "surefoot.optim.base",
    "surefoot.posthoc.methods": "surefoot.posthoc.registry",
    "surefoot.reports.columns": "surefoot.runs.columns",
    "surefoot.reports.figures.names": "surefoot.reports.figures.legend",
    "surefoot.reports.figures.paper_a": "surefoot.reports.figures.morosini2026",
    "surefoot.reports.figures.paper_b": "surefoot.reports.figures.tan2026",
    "surefoot.reports.figures.repaired": "surefoot.reports.figures.recalibration",
    "surefoot.reports.figures.strokes": "surefoot.reports.figures.mpl_style",
    "surefoot.reports.figures.thin": "surefoot.reports.figures.downsample",
    "surefoot.reports.figures.sweeps": "surefoot.reports.figures.tan2026",
    "surefoot.reports.repair": "surefoot.reports.recalibration",
    "surefoot.reports.serve.keeper": "surefoot.reports.serve.refresher",
    "surefoot.reports.text": "surefoot.text",
    "surefoot.shift.foreign": "surefoot.shift.ood",
    "surefoot.studies.crew": "surefoot.studies.workers",
    "surefoot.studies.host": "surefoot.studies.node_worker",
    "surefoot.studies.merge": "surefoot.studies.grid",
    "surefoot.studies.parts": "surefoot.training.assemble",
    "surefoot.studies.roles": "surefoot.studies.spec",
    "surefoot.studies.statistics": "surefoot.statistics",
    "surefoot.training.cadence": "surefoot.training.schedule",
    "surefoot.training.checkpoint": "surefoot.runs.checkpoint",
    "surefoot.training.coupling": "surefoot.statistics",
    "surefoot.training.journal": "surefoot.runs.records",
    "surefoot.training.lock": "surefoot.runs.records",
    "surefoot.training.members": "surefoot.training.spec",
    "surefoot.training.opened": "surefoot.training.loaded",
    "surefoot.training.overview": "surefoot.runs.reader",
    "surefoot.training.records": "surefoot.runs.records",
    "surefoot.reports.diagram": "surefoot.evaluation.evaluation",
    "surefoot.reports.encode": "surefoot.text",
    "surefoot.reports.serve.progress": "surefoot.runs.reader",
    "surefoot.reports.verdict": "surefoot.evaluation.evaluation",
    "surefoot.training.ascent": "surefoot.training.groups",
    "surefoot.training.curvatures": "surefoot.training.groups",
    "surefoot.training.splits": "surefoot.dataset",
}

# Old name -> new name, within the module or package that has it now, or as "module:name" in another one. A module that
# was renamed serves the old names under its old path; the others do so by `renamed_names`. The values of `_COMPUTED`
# have no name now: their rows say in words where they come from.
OLD_NAMES: Mapping[str, Mapping[str, str]] = {
    "surefoot.curvature": {"Convex": "FunctionLoss"},
    "surefoot.data.prepare": {"Split": "surefoot.dataset:Dataset"},
    "surefoot.data.sets": {
        "DataSet": "StoredData",
        "SETS": "surefoot.data.registry:DATASETS",
    },
    "surefoot.dataset": {
        "Split": "DatasetLike",
        "as_split": "as_dataset(...).take()",
    },
    "surefoot.ensembles.registry": {"ensemble_named": "build_ensemble"},
    "surefoot.errors": {"RunTaken": "RunLocked"},
    "surefoot.files": {"open_plain": "open_file"},
    "surefoot.loss": {
        "Convex": "FunctionLoss",
        "LogitLoss": "Loss",
        "checked": "_checked",
        "flag": "surefoot.validation:check_bool",
        "loss_named": "as_loss",
        "names_classes": "Loss.reads_classes",
        "non_negative": "surefoot.validation:check_non_negative",
        "whole_labels": "check_integer_labels",
        "within": "surefoot.validation:check_within",
    },
    "surefoot.losses": {"lift": "as_objective"},
    "surefoot.losses.cross_entropy": {"CrossEntropy": "surefoot.loss:CrossEntropy"},
    "surefoot.losses.frozen_network": {
        "constant": "detached_statistics",
        "held": "frozen_network",
        "recorded": "recorded_statistics",
    },
    "surefoot.losses.objective": {"lift": "as_objective"},
    "surefoot.losses.registry": {"objective_named": "build_objective"},
    "surefoot.losses.slopes": {"rival_gaps": "runner_up_gaps"},
    "surefoot.margins.examples": {"rivals": "runner_ups"},
    "surefoot.metrics.exact": {"whole_sums": "int_sums"},
    "surefoot.metrics.registry": {
        "COSTLY": "METRICS[name].costly",
        "HIGHER_IS_BETTER": "higher_is_better(name)",
    },
    "surefoot.models": {"model_named": "build_model"},
    "surefoot.models.registry": {"model_named": "build_model"},
    "surefoot.optim.base": {
        "Rule": "BaseOptimizer",
        "non_negative": "surefoot.validation:check_non_negative",
    },
    "surefoot.optim.registry": {
        "RULES": "OPTIMIZERS",
        "rule_named": "build_optimizer",
    },
    "surefoot.posthoc": {
        "METHODS": "CALIBRATORS",
        "calibrator_named": "build_calibrator",
        "doubts": "check_splits",
    },
    "surefoot.posthoc.compare": {"doubts": "check_splits"},
    "surefoot.posthoc.registry": {
        "METHODS": "CALIBRATORS",
        "calibrator_named": "build_calibrator",
    },
    "surefoot.reports.figures.curves": {
        "Sureness": "ConfidenceCurve",
        "sureness": "confidence_curve",
    },
    "surefoot.reports.figures.downsample": {"thin": "downsample"},
    "surefoot.reports.figures.mpl_style": {"said": "drawable"},
    "surefoot.reports.figures.panels": {"FINAL": "final_quantities()"},
    "surefoot.reports.figures.recalibration": {
        "draw_repaired": "draw_recalibration",
        "save_repaired": "save_recalibration",
    },
    "surefoot.reports.page": {"Shelf": "surefoot.reports.page.payload:PayloadCache"},
    "surefoot.reports.page.payload": {"Shelf": "PayloadCache"},
    "surefoot.reports.recalibration": {"fit_doubts": "fit_warnings"},
    "surefoot.reports.serve.refresher": {"Keeper": "Refresher"},
    "surefoot.runs.columns": {"whole_lines": "complete_lines"},
    "surefoot.runs.reader": {"progress": "RunReader(folder).progress()"},
    "surefoot.runs.records": {
        "parted": "split_arrays",
        "restored": "decode_nonfinite",
        "taken": "is_locked",
    },
    "surefoot.shift.measure": {"foreign_rows": "ood_rows"},
    "surefoot.shift.official": {"OFFICIAL": "surefoot.data.registry.DATASETS[name].corrupted"},
    "surefoot.shift.ood": {
        "foreign_by_name": "ood_by_name",
        "foreign_images": "ood_images",
    },
    "surefoot.statistics": {"coupling": "sharpness_correlations"},
    "surefoot.studies.cluster": {
        "RayCrew": "RayWorkers",
        "ray_crew": "ray_workers",
    },
    "surefoot.studies.node_worker": {"Host": "NodeWorker"},
    "surefoot.studies.plan": {
        "GRADIENTS": "surefoot.losses.registry.LOSSES[name].gradients",
        "Library": "DatasetIndex",
        "PASSES": "surefoot.optim.registry.OPTIMIZERS[name].gradients",
        "SetFacts": "DatasetInfo",
    },
    "surefoot.studies.workers": {"Crew": "Workers"},
    "surefoot.theory.population": {"deviation": "hoeffding_term"},
    "surefoot.training.loaded": {"Opened": "LoadedRun"},
    "surefoot.training.shifted": {"foreign_sets": "ood_sets"},
    "surefoot.training.spec": {"CadenceSpec": "ReadingScheduleSpec"},
    "surefoot.training.tracker": {
        "Cadence": "surefoot.training.schedule:Schedule",
        "Split": "surefoot.dataset:DatasetLike",
        "as_split": "as_dataset(...).take()",
    },
    "surefoot.validation": {
        "as_labels": "Predictions(scores, labels).labels",
        "fraction": "check_fraction",
        "known_options": "check_options",
        "nearest": "suggest",
        "positive": "check_positive",
        "whole": "check_int",
    },
}

# Values of names that were tables or functions of their own, by module and name.
_COMPUTED: Mapping[tuple[str, str], Callable[[], Any]] = {
    ("surefoot.dataset", "as_split"): lambda: _as_split,
    ("surefoot.loss", "names_classes"): lambda: lambda loss: loss.reads_classes,
    ("surefoot.metrics.registry", "COSTLY"): lambda: tuple(
        name for name, entry in _object("surefoot.metrics.registry:METRICS").items() if entry.costly
    ),
    ("surefoot.metrics.registry", "HIGHER_IS_BETTER"): lambda: frozenset(
        name for name, entry in _object("surefoot.metrics.registry:METRICS").items() if entry.better == "higher"
    ),
    ("surefoot.reports.figures.panels", "FINAL"): lambda: tuple(
        _object("surefoot.reports.figures.panels:final_quantities")()
    ),
    ("surefoot.runs.reader", "progress"): lambda: (
        lambda place: _object("surefoot.runs.reader:RunReader")(place).progress()
    ),
    ("surefoot.shift.official", "OFFICIAL"): lambda: {
        name: entry.corrupted
        for name, entry in _object("surefoot.data.registry:DATASETS").items()
        if entry.corrupted is not None
    },
    ("surefoot.studies.plan", "GRADIENTS"): lambda: {
        name: entry.gradients
        for name, entry in _object("surefoot.losses.registry:LOSSES").items()
        if entry.gradients > 1
    },
    ("surefoot.studies.plan", "PASSES"): lambda: {
        name: entry.gradients for name, entry in _object("surefoot.optim.registry:OPTIMIZERS").items()
    },
    ("surefoot.training.tracker", "as_split"): lambda: _as_split,
    ("surefoot.validation", "as_labels"): lambda: _as_labels,
}


def _as_split(name: str, given: Any) -> Any:
    """Inputs and labels of what `surefoot.data.as_dataset` takes."""
    return _object("surefoot.dataset:as_dataset")(name, given).take()


def _as_labels(value: Any, shape: tuple[int, ...]) -> Any:
    """Labels (n,) as integers, checked for scores of a shape (n, k)."""
    return _object("surefoot.predictions:Predictions")([[0.0] * shape[1]] * shape[0], value).labels


def _object(reference: str) -> Any:
    """The object of a reference ``"module:name"``."""
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


# Former name: current name. A longer name may follow either after a hyphen, as in "paper-a-table1" or "cores2-100".
_ALIASES = {"paper-a": "morosini2026", "paper-b": "tan2026", "cores2": "cpu-small"}

# Former key of a run's spec: current key. The ids of runs are hashes of the former spelling, so that they stay.
_KEYS = {"rule": "optimizer"}


def renamed_names(module: str, stacklevel: int = 3) -> Callable[[str], Any]:
    """A ``__getattr__`` for ``module`` that serves its row of `OLD_NAMES`.

    Args:
        module: the module's dotted name, usually ``__name__``.
        stacklevel: frames from the warning to the line that uses the name.

    Returns:
        A function from an attribute's name to its value. It raises `AttributeError` for a name that never was.
    """
    names = OLD_NAMES[module]

    def attribute(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        new = names[name]
        if ":" in new:
            new = new.replace(":", ".")
        elif (module, name) not in _COMPUTED:
            new = f"{module}.{new}"
        warn_renamed(f"{module}.{name}", new, stacklevel)
        return old_value(module, name)

    return attribute


def old_value(module: str, name: str) -> Any:
    """The value of an old name, without a warning.

    Args:
        module: a key of `OLD_NAMES`.
        name: an old name in its row.

    Returns:
        The value.

    Example:
        >>> old_value("surefoot.validation", "whole").__name__
        'check_int'
    """
    if (module, name) in _COMPUTED:
        return _COMPUTED[module, name]()
    home, colon, new = OLD_NAMES[module][name].rpartition(":")
    return getattr(importlib.import_module(home if colon else module), new)


def renamed_arguments(**names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function take the old spelling of some keyword arguments.

    Args:
        **names: new name by old name, as in ``renamed_arguments(chunk="batch_size")``.

    Returns:
        A decorator. The decorated function raises `TypeError` if both spellings of an argument are given.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            for old in names.keys() & kwargs.keys():
                if names[old] in kwargs:
                    raise TypeError(f"{old} is the old name of {names[old]}; give {names[old]} alone")
                warn_renamed(f"the argument {old}", names[old], stacklevel=3)
                kwargs[names[old]] = kwargs.pop(old)
            return function(*args, **kwargs)

        return wrapper

    return decorate


def renamed_property(old: str, new: str) -> property:
    """A property under an old name that returns the attribute of the new name.

    Args:
        old: the old name, for the warning.
        new: the attribute that has the value.

    Returns:
        The property.
    """

    def value(self: Any) -> Any:
        warn_renamed(f"the property {old}", new)
        return getattr(self, new)

    return property(value, doc=f"Old name of `{new}`.")


def install() -> None:
    """Make the old modules and the old errors importable; called once, by the package's root."""
    vars(errors)["__getattr__"] = renamed_names(errors.__name__)  # here, since this module needs the errors
    if not any(isinstance(finder, _OldModules) for finder in sys.meta_path):
        sys.meta_path.append(_OldModules())
        sys.meta_path.insert(0, _OldNames())


class _OldNames(importlib.abc.MetaPathFinder):
    """Gives the modules that `OLD_NAMES` lists, and that serve no names of their own, a ``__getattr__``."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in OLD_NAMES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and type(spec.loader) is importlib.machinery.SourceFileLoader:
            spec.loader = _LoaderOfOldNames(fullname, spec.loader.path)
        return spec


class _LoaderOfOldNames(importlib.machinery.SourceFileLoader):
    """Python's loader of source files, which then adds the ``__getattr__``."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        vars(module).setdefault("__getattr__", renamed_names(module.__name__))


class _OldModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of `OLD_MODULES`, after every other finder has failed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.util.spec_from_loader(fullname, self) if fullname in OLD_MODULES else None

    def exec_module(self, module: ModuleType) -> None:
        new = OLD_MODULES[module.__name__]
        warn_renamed(f"the module {module.__name__}", new)
        target = importlib.import_module(new)
        names = OLD_NAMES.get(new, {})

        def attribute(name: str) -> Any:
            return old_value(new, name) if name in names else getattr(target, name)

        module.__dict__["__getattr__"] = attribute
        module.__class__ = _OldModule


class _OldModule(ModuleType):
    """An old module. Importing ``surefoot.metrics.summary`` hides the function of that name, so the module calls it."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(self, self.__name__.rpartition(".")[2])(*args, **kwargs)


def warn_renamed(old: str, new: str, stacklevel: int = 3) -> None:
    """Say that a name has a new name.

    Args:
        old: the old name.
        new: the new name.
        stacklevel: frames from the warning to the line that uses the old name.
    """
    warnings.warn(f"{old} is now {new}; the old name leaves in 0.3", DeprecationWarning, stacklevel=stacklevel)


def current_keys(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of a run's spec with current keys.

    Args:
        spec: Tables as in a spec or a part of one, in either spelling.

    Returns:
        The same tables under current keys, in the same order.

    Raises:
        BadInput: If a key is given in both spellings.

    Example:
        >>> current_keys({"rule": {"name": "sgd"}, "seed": 0})
        {'optimizer': {'name': 'sgd'}, 'seed': 0}
    """
    both = next((former for former, current in _KEYS.items() if former in spec and current in spec), None)
    if both is not None:
        raise BadInput(f"{both!r} is the former name of {_KEYS[both]!r}; give {_KEYS[both]!r} alone")
    return {_KEYS.get(key, key): value for key, value in spec.items()}


def former_keys(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of a run's spec with former keys, which the run's id is a hash of.

    Args:
        spec: Tables as in a spec or a part of one, with current keys.

    Returns:
        The same tables under former keys, in the same order.

    Example:
        >>> former_keys({"optimizer": {"name": "sgd"}, "seed": 0})
        {'rule': {'name': 'sgd'}, 'seed': 0}
    """
    former = {current: name for name, current in _KEYS.items()}
    return {former.get(key, key): value for key, value in spec.items()}


def current_key(path: str) -> str:
    """A dotted path in a spec with current keys.

    Args:
        path: A dotted path, in either spelling.

    Returns:
        The path with a current key.

    Example:
        >>> current_key("rule.lr"), current_key("data.train")
        ('optimizer.lr', 'data.train')
    """
    first, dot, rest = path.strip().partition(".")
    return _KEYS.get(first, first) + dot + rest


def current_name(name: str) -> str:
    """The current name of a study or scale.

    Args:
        name: Any name, former or current.

    Returns:
        The current name, or ``name`` itself if it has no alias.

    Example:
        >>> current_name("paper-a-table1"), current_name("cores2"), current_name("mine")
        ('morosini2026-table1', 'cpu-small', 'mine')
    """
    return _replaced(name, _ALIASES)


def former_name(name: str) -> str:
    """The former name of a study or scale.

    Args:
        name: A current name.

    Returns:
        The former name, or ``name`` itself if the name has no alias.

    Example:
        >>> former_name("morosini2026-table1"), former_name("mine")
        ('paper-a-table1', 'mine')
    """
    return _replaced(name, {current: former for former, current in _ALIASES.items()})


def _replaced(name: str, names: dict[str, str]) -> str:
    for given, wanted in names.items():
        if name == given or name.startswith(f"{given}-"):
            return wanted + name.removeprefix(given)
    return name

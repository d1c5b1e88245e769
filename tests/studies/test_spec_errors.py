"""No field of a run's or a study's spec answers a wrong value in pydantic's words."""

import copy
import typing

import pytest
from pydantic import BaseModel

from surefoot.errors import BadInput
from surefoot.studies.spec import StudySpec, study_of
from surefoot.training.spec import RunSpec, spec_of

RUN = {"optimizer": {"name": "gd", "lr": 0.1}, "stop": {"steps": 1}}
STUDY = {
    "name": "s",
    "base": RUN,
    "axes": {"m": [{"name": "a", "over": {"lr": [1]}, "at": {}}], "lr": {"key": "optimizer.lr", "values": [1, 2]}},
    "scales": {"small": {"seeds": [0], "over": {"lr": [1]}}},
    "select": {"method": "a", "axes": ["lr"]},
    "tables": [{"name": "t"}],
    "zip": {},
}
WRONG = ["nonsense", "", -1, 0, 1.5, True, None, [], ["x"], [[]], [1.5], [None], {}, {"nonsense": 1}, {1: 2}, object()]
PYDANTIC = (
    "Input should",
    "valid ",
    "type=",
    "Spec",
    "literal[",
    "tuple[",
    "Field required",
    "Extra",
    "pydantic",
    "unction",
)


def paths(model, prefix=()):
    """Every field, those of the tables within too; a dictionary and a list by one key that the examples hold."""
    for name, field in model.model_fields.items():
        own = (*prefix, name)
        yield own
        yield from inner(field.annotation, own)


def inner(kind, own):
    for each in (kind,) if typing.get_origin(kind) in (tuple, dict) else typing.get_args(kind) or (kind,):
        if isinstance(each, type) and issubclass(each, BaseModel):
            yield from paths(each, own)


MADE = {  # paths through dictionaries and lists, which `paths` does not enter
    RunSpec: list(paths(RunSpec)),
    StudySpec: [
        *paths(StudySpec),
        *(("axes", "m", 0, name) for name in ("name", "over", "at")),
        ("axes", "m"),
        ("axes", "m", 0),
        ("axes", "m", 0, "over", "lr"),
        *(("axes", "lr", name) for name in ("key", "values", "nonsense")),
        *(("scales", "small", name) for name in ("seeds", "over")),
        ("scales", "small"),
        *paths(StudySpec.model_fields["tables"].annotation.__args__[0], ("tables", 0)),
        ("tables", 0),
        ("zip", "g"),
    ],
}


def changed(table, path, value):
    table = copy.deepcopy(table)
    at = table
    for part in path[:-1]:
        if isinstance(at, dict) and not isinstance(at.get(part), dict | list):
            at[part] = {}
        at = at[part]
    at[path[-1]] = value
    return table


CASES = [(model, path) for model, made in MADE.items() for path in made]


@pytest.mark.parametrize(("model", "path"), CASES, ids=[f"{m.__name__}.{'.'.join(map(str, p))}" for m, p in CASES])
def test_every_wrong_value_is_answered_in_our_words(model, path):
    table, make = (RUN, spec_of) if model is RunSpec else (STUDY, study_of)
    refused = 0
    for value in WRONG:
        try:
            make(changed(table, path, value))
        except BadInput as error:
            refused += 1
            text = str(error)
            assert not any(word in text for word in PYDANTIC), text
            key = text.split(" must be ")[0]
            assert not any(key.endswith(f".{kind}") for kind in ("int", "bool", "float", "str")), text
    assert refused


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("stop", "batch"), "half", "spec: stop.batch must be an integer or 'full'; got 'half'"),
        (("stop", "batch"), 0, "spec: stop.batch: must be at least 1, or 'full'"),
        (("stop", "steps"), "many", "spec: stop.steps must be an integer of at least 1; got 'many'"),
        (("data", "noisy"), 2, "spec: data.noisy must be a number of at least 0 and below 1; got 2"),
        (("data", "order"), "frist", "must be 'random' or 'first'; got 'frist'; did you mean 'first'?"),
        (("schedule",), 3, "spec: schedule must be a table; got 3"),
        (("schedule", "milestones"), [1, "x"], "spec: schedule.milestones.1 must be an integer; got 'x'"),
        (("shift", "severities"), [], "spec: shift.severities must be a list of integers, one at least; got []"),
        (("track", "hessian"), "often", "must be a number of steps, a table with every or log, or true or false"),
        (("track", "hessian"), {"every": 0}, "spec: track.hessian.every must be an integer of at least 1; got 0"),
        (("track", "hessian"), {"evry": 5}, "spec: there is no key 'track.hessian.evry'; did you mean 'every'?"),
        (("optimizer",), None, "spec: optimizer must be a name, or a table with a name; got None"),
        (("model",), {}, "spec: the key 'model.name' is missing; it must be text"),
        (("stop",), {}, "spec: stop: give either steps or epochs"),
    ],
)
def test_sentences(path, value, says):
    with pytest.raises(BadInput) as error:
        spec_of(changed(RUN, path, value))
    assert says in str(error.value)


def test_sentences_of_studies():
    for path, value, says in (
        (("axes", "m", 0, "name"), 3, "study: axes.m.0.name must be text that is not empty; got 3"),
        (("axes", "m", 0), {"optimizer": "sgd"}, "study: the key 'axes.m.0.name' is missing"),
        (("name",), "a/b", "study: name must be a name of letters, digits, '.', '_' and '-'; got 'a/b'"),
        (("axes", "lr"), 3, "study: axes.lr must be a list of entries, or a table with a key and values; got 3"),
        (("tables", 0, "level"), 2, "study: tables.0.level must be a number above 0 and below 1; got 2"),
        (("axes", "lr", "entrys"), 3, "study: there is no key 'axes.lr.entrys'; there are key, values"),
    ):
        with pytest.raises(BadInput) as error:
            study_of(changed(STUDY, path, value))
        assert says in str(error.value)

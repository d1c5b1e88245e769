"""`sf.evaluate` is what the command prints."""

import json
from html.parser import HTMLParser

import numpy as np
import pytest
from typer.testing import CliRunner

import surefoot as sf
from surefoot.cli import app
from surefoot.errors import BadInput

from ..conftest import random_predictions


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "p.npz"
    random_predictions(400, 4, sharp=2.0).save(path)
    return path


def command(*arguments):
    done = CliRunner(env={"COLUMNS": "100"}).invoke(app, ["evaluate", *map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.usefixtures("few_resamples")
@pytest.mark.parametrize("options", [{}, {"bins": 10}, {"costly": True}, {"seed": 3}])
def test_it_is_what_the_command_prints(file, options):
    flags = {"bins": ["--bins", "10"], "costly": ["--all"], "seed": ["--seed", "3"]}
    given = [flag for option in options for flag in flags[option]]
    result = sf.evaluate(sf.Predictions.load(file), name="p.npz", **options)
    assert json.loads(command(file, "--json", *given)) == result.to_dict()
    assert command(file, *given).rstrip("\n") == str(result) == repr(result)


def test_its_parts(file):
    p = sf.Predictions.load(file)
    result = sf.evaluate(p, level=0.9)
    assert result.metrics == sf.metrics.summary(p)
    assert result.intervals["ece"] == sf.metrics.interval(sf.metrics.ece, p, level=0.9)
    assert (result.n, result.classes, result.level, result.verdict.level) == (400, 4, 0.9, 0.9)
    assert "90% interval" in str(result)
    assert result.sentences == result.verdict.sentences


class Cells(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.text = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.text.append(data)


@pytest.mark.usefixtures("few_resamples")
def test_the_table_of_notebooks():
    result = sf.evaluate(random_predictions(50, 3), name="<script>alert(1)</script>")
    parser = Cells()
    parser.feed(result._repr_html_())
    assert parser.tags.count("tr") == 1 + len(result.metrics)
    assert set(parser.tags) == {"p", "b", "table", "thead", "tbody", "tr", "th", "td"}
    assert set(result.sentences) < set(parser.text)


def test_every_row_right_is_no_proof():
    p = sf.Predictions(np.tile([np.log(999.0), 0], (1000, 1)), np.zeros(1000, int))
    assert "rule of three" in sf.evaluate(p).sentences[-1]
    assert len(sf.evaluate(p).to_dict()["verdict"]["sentences"]) == 4


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: sf.evaluate([0.5]), "p must be Predictions"),
        (lambda: sf.evaluate(random_predictions(9, 3), bins=0), "bins"),
        (lambda: sf.evaluate(random_predictions(9, 3), level=95), "level must lie between 0 and 1"),
    ],
)
def test_misuse(call, match):
    with pytest.raises(BadInput, match=match):
        call()

"""Rows and their means: checked on a subject whose answers are known."""

import numpy as np
import pytest
import torch

from surefoot import Predictions, metrics
from surefoot.data.prepare import prepare
from surefoot.data.sets import StoredData, load_set
from surefoot.errors import BadInput
from surefoot.posthoc import Temperature
from surefoot.reports.shift import draw_shift, save_shift
from surefoot.shift import auroc_ood
from surefoot.shift.measure import Subject, means, ood_rows, quantities, shifted_rows
from surefoot.shift.sources import generated
from surefoot.shift.view import View
from tests.shift.cases import scenes


def brightest(pictures, labels):
    """Logits are the mean of each channel, so that brightness can be followed."""
    return Predictions(pictures.mean(axis=(1, 2)) / 20, labels)


@pytest.fixture(scope="module")
def measured():
    x = scenes(60)
    y = x.mean(axis=(1, 2)).argmax(1)
    y[::4] = (y[::4] + 1) % 3
    p = brightest(x, y)
    subject = Subject("one", brightest, {"temperature": Temperature().fit(p)})
    rows = shifted_rows([subject], (x, y), generated(x, y), ("fog", "contrast"), (2, 5), resamples=20)
    return x, y, subject, rows


def test_rows(measured):
    x, y, subject, rows = measured
    assert len(rows) == 2 * (1 + 2 * 2)
    clean = rows[0]
    assert (clean["kind"], clean["severity"], clean["auroc"]) == ("clean", 0, None)
    assert clean["ece"] == pytest.approx(metrics.ece(brightest(x, y)))
    one = next(row for row in rows if (row["kind"], row["severity"], row["method"]) == ("fog", 5, "none"))
    p = brightest(*generated(x, y)("fog", 5))
    assert one["nll"] == pytest.approx(metrics.nll(p))
    assert one["auroc"] == pytest.approx(auroc_ood(brightest(x, y), p))
    assert one["ece_low"] <= one["ece_high"]
    after = next(row for row in rows if (row["kind"], row["severity"], row["method"]) == ("fog", 5, "temperature"))
    assert after["ece"] == pytest.approx(metrics.ece(subject.calibrators["temperature"].apply(p)))
    assert after["accuracy"] == one["accuracy"]


def test_means_and_quantities(measured):
    x, y, subject, rows = measured
    told = ood_rows([subject], (x, y), {"noise": np.random.default_rng(0).integers(0, 256, x.shape, np.uint8)})
    names = quantities(rows, told)
    plain = [row for row in rows if row["method"] == "none" and row["severity"]]
    assert names["shift.ece"] == pytest.approx(np.mean([row["ece"] for row in plain]))
    assert names["shift.fog.nll"] == pytest.approx(np.mean([row["nll"] for row in plain if row["kind"] == "fog"]))
    assert names["shift.temperature.accuracy"] == pytest.approx(names["shift.accuracy"])
    assert {"ood.noise.auroc", "ood.noise.fpr95", "ood.noise.energy.auroc", "ood.noise.entropy.auroc"} <= set(names)
    assert all(isinstance(value, float) for value in names.values())
    assert [mean["kind"] for mean in means(plain, "kind")] == ["fog", "contrast"]


def test_figure(measured, tmp_path):
    rows = measured[3]
    axes = draw_shift(rows).axes
    assert [axis.get_title() for axis in axes[1:]] == ["fog", "contrast"]
    line = axes[1].get_lines()[0]
    assert line.get_xdata().tolist() == [0, 2, 5]
    wanted = [row["ece"] for row in rows if row["method"] == "none" and row["kind"] in ("clean", "fog")]
    assert np.allclose(line.get_ydata(), wanted)
    save_shift(rows, tmp_path / "shift.svg")
    assert b"</svg>" in (tmp_path / "shift.svg").read_bytes()
    with pytest.raises(BadInput, match=r"\.png"):
        save_shift(rows, tmp_path / "shift.html")


def test_view_goes_there_and_back():
    data = prepare(load_set("digits", None), train=200)
    view = View(data)
    pictures = view.pictures(data.test)
    assert pictures.max() == 255  # the brightest digit, whose byte is 16
    assert view.shape == (8, 8, 1)
    # A picture's byte is nearest to sixteen steps of a digit's.
    back = view.dataset(pictures, data.test.labels.numpy())
    assert torch.equal(back.labels, data.test.labels)
    slack = 0.6 / 255 * 16 / float(data.standardise.scale.min())
    assert torch.allclose(back.take()[0], data.test.take()[0], atol=slack)
    x = scenes(8)
    colour = prepare(StoredData("own", x, np.arange(8) % 2, x, np.arange(8) % 2, 2), standardise="channel")
    bright = np.where(x == x.max(), 255, x).astype(np.uint8)
    assert x.max() == 255
    assert (View(colour).pictures(colour.test) == bright).all()
    assert torch.allclose(View(colour).dataset(x, np.arange(8)).take()[0], colour.test.take()[0], atol=1e-6)


def test_views_of_what_is_no_picture():
    x = np.random.default_rng(0).standard_normal((10, 6))
    with pytest.raises(BadInput, match="images of 1 or 3 channels"):
        View(prepare(StoredData("own", x, np.arange(10) % 2, x, np.arange(10) % 2, 2)))
    x = np.random.default_rng(0).standard_normal((10, 6, 6, 3))
    with pytest.raises(BadInput, match="start at 0"):
        View(prepare(StoredData("own", x, np.arange(10) % 2, x, np.arange(10) % 2, 2)))

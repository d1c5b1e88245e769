"""Who takes data sets: trackers, predictions, certificates, the training loop; from whatever holds them, alike."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import surefoot as sf
from surefoot import dataset
from surefoot.data.prepare import mean_and_std
from surefoot.data.sets import load_set
from surefoot.losses import as_objective
from surefoot.training.loop import Batches, train

GROUPS = dict.fromkeys(("calibration", "margins", "curvature", "hessian", "bounds", "robust"), 1)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))


@pytest.fixture(scope="module")
def examples():
    draws = np.random.default_rng(0)
    x = draws.normal(size=(70, 5)).astype(np.float32)
    return x, np.abs(x[:, :3]).argmax(1)


class Mapped(torch.utils.data.Dataset):
    def __init__(self, x, y):
        self.x, self.y = torch.from_numpy(x), y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], int(self.y[index])


def memory_map(x, tmp_path):
    np.save(tmp_path / "x.npy", x)
    return np.load(tmp_path / "x.npy", mmap_mode="r")


KINDS = {
    "data set": lambda x, y, place: sf.data.as_dataset("x", (x, y)),
    "memory map": lambda x, y, place: (memory_map(x, place), y),
    "torch data set": lambda x, y, place: Mapped(x, y),
    "loader": lambda x, y, place: DataLoader(TensorDataset(torch.from_numpy(x), torch.from_numpy(y)), 16),
}


@pytest.mark.parametrize("small", [0, 1 << 20], ids=["read at every pass", "kept"])
@pytest.mark.parametrize("kind", KINDS)
def test_readings_and_certificates_are_those_of_arrays(kind, small, examples, tmp_path, monkeypatch):
    expected = sf.Tracker(network(), examples, examples, examples, every=GROUPS, eps=0.01).read(0)
    proved = sf.theory.certify(network(), *examples, 0.01, test=examples)
    monkeypatch.setattr(dataset, "_SMALL", small)
    data = KINDS[kind](*examples, tmp_path)
    assert sf.Tracker(network(), data, data, data, every=GROUPS, eps=0.01).read(0) == expected
    assert list(sf.theory.certify(network(), data, eps=0.01, test=data)) == list(proved)
    np.testing.assert_array_equal(
        sf.Predictions.of(network(), data).logits, sf.Predictions.of(network(), *examples).logits
    )


def test_a_sample_of_a_large_loader_is_that_of_arrays(examples, monkeypatch):
    wanted = sf.Tracker(network(), examples, examples, every={"curvature": 1}, sample=20).read(0)
    monkeypatch.setattr(dataset, "_SMALL", 0)
    data = sf.data.as_dataset("x", KINDS["loader"](*examples, None))
    assert sf.Tracker(network(), data, data, every={"curvature": 1}, sample=20).read(0) == wanted
    assert data._inputs.get() is None  # never read whole


class Silent:
    """In a tracker's place."""

    def count(self, gradients):
        pass

    def advance(self, step, everything=False):
        pass


@pytest.mark.parametrize("size", [16, 70])
@pytest.mark.parametrize("kind", KINDS)
def test_training_is_that_on_arrays(kind, size, examples, tmp_path, monkeypatch):
    def weights(data):
        model, objective = network(), as_objective(sf.losses.CrossEntropy())
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        outcome = train(model, opt, objective, data, Batches(70, size, 0), 5, lambda _: 1.0, Silent())
        assert outcome.kind == "finished"
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    expected = weights(sf.data.as_dataset("x", examples))
    monkeypatch.setattr(dataset, "_SMALL", 0)
    assert torch.equal(weights(sf.data.as_dataset("x", KINDS[kind](*examples, tmp_path))), expected)


def test_an_estimator_needs_its_labels(examples):
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression().fit(*examples)
    with pytest.raises(sf.errors.BadInput, match=r"LogisticRegression needs labels: write Predictions\.of"):
        sf.Predictions.of(model, examples)


def test_moments_are_of_the_whole_digits():
    images = load_set("digits", None).x_train
    mean, std = mean_and_std(images, np.arange(len(images)), per_channel=True)
    assert (mean[0], std[0]) == (images.astype(float).mean(), images.astype(float).std())

"""Official corrupted files and out-of-distribution sets, read from small files of the same format."""

import numpy as np
import pytest
from PIL import Image

from surefoot.data.sets import load_set
from surefoot.errors import BadInput
from surefoot.shift.official import held_out, official
from surefoot.shift.ood import ood_by_name, ood_images
from surefoot.shift.sources import generated, published
from tests.shift.cases import scenes


@pytest.fixture
def cifar_c(tmp_path):
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    images = np.stack([np.full((32, 32, 3), 10 * row, np.uint8) for row in range(20)])
    np.save(folder / "fog.npy", images)
    np.save(folder / "labels.npy", np.tile(np.arange(4), 5))
    return tmp_path


def test_cifar_c_by_severity(cifar_c):
    images, labels = official("cifar10", "fog", 3, cifar_c)
    assert images[:, 0, 0, 0].tolist() == [80, 90, 100, 110]
    assert labels.tolist() == [0, 1, 2, 3]
    pictures, labels = published("cifar10", cifar_c, np.arange(2))("fog", 5)
    assert (len(pictures), labels.tolist()) == (2, [0, 1])
    with pytest.raises(BadInput, match="not those of cifar10"):
        published("cifar10", cifar_c, np.array([1, 1]))("fog", 5)


def test_imagenet_c_without_the_held_out_fifth(tmp_path):
    """By file name, not by class, so that the same images are left out of ImageNet and of each corruption."""
    names = [f"val_{number:03d}.JPEG" for number in range(20)]
    for number, name in enumerate(names):
        place = tmp_path / "ImageNet-C" / "motion_blur" / "2" / f"n{number % 3}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((16, 16, 3), 12 * number, np.uint8)).save(place / name, quality=100)
    images, labels = official("imagenet", "motion_blur", 2, tmp_path, size=16)
    assert len(images) == len(labels) == 16
    seen = sorted(round(int(image[0, 0, 0]) / 12) for image in images)
    assert seen == [number for number in range(20) if number % 5]
    assert all(round(int(image[0, 0, 0]) / 12) % 3 == label for image, label in zip(images, labels, strict=True))
    assert held_out(names).sum() == 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("digits", "fog", 1), "official corruptions of cifar10"),
        (("cifar10", "fogg", 1), "did you mean 'fog'"),
        (("cifar10", "fog", 6), "from 1 to 5"),
        (("cifar10", "snow", 1), r"no CIFAR-10-C/snow\.npy"),
        (("cifar100", "snow", 1), "CIFAR-100-C"),
        (("imagenet", "snow", 1), "ImageNet-C/snow/1"),
    ],
)
def test_official_files_that_are_not_there(cifar_c, arguments, said):
    with pytest.raises(BadInput, match=said):
        official(*arguments, cifar_c)
    with pytest.raises(BadInput, match=r"give data=\.\.\. or set SUREFOOT_DATA"):
        official("cifar10", "fog", 1, None)


def test_harmed_official_files(cifar_c):
    (cifar_c / "CIFAR-10-C" / "frost.npy").write_bytes(b"nothing")
    np.save(cifar_c / "CIFAR-10-C" / "snow.npy", np.zeros((7, 32, 32, 3), np.uint8))
    with pytest.raises(BadInput, match=r"frost\.npy is no \.npy"):
        official("cifar10", "frost", 1, cifar_c)
    with pytest.raises(BadInput, match="five severities"):
        official("cifar10", "snow", 1, cifar_c)


def test_ood_sets(tmp_path):
    x = scenes(4)
    np.savez(tmp_path / "own.npz", x=x, y=np.zeros(4))
    np.savez(tmp_path / "both.npz", x_train=x[:1], x_val=x[1:3])
    np.savez(tmp_path / "none.npz", y=np.zeros(4))
    assert (ood_images("arrays:own", tmp_path, (32, 32, 3)) == x).all()
    assert (ood_images("arrays:both", tmp_path, (32, 32, 3)) == x[1:3]).all()
    grey = ood_images("digits", None, (8, 8, 1))
    assert (grey == np.rint(load_set("digits", None).x_test * (255 / 16))).all()  # their white is 16
    assert list(ood_by_name(["arrays:own", "arrays:both", "arrays:own"], tmp_path, (32, 32, 3))) == ["own", "both"]
    with pytest.raises(BadInput, match=r"own and arrays:own\.npz would both be own"):
        ood_by_name(["arrays:own", "arrays:own.npz"], tmp_path, (32, 32, 3))
    for name, shape, said in (
        ("arrays:own", (28, 28, 1), r"shape \(28, 28, 1\)"),
        ("arrays:none", (32, 32, 3), "x_test, x_val or x"),
        ("arrays:gone", (32, 32, 3), r"no gone\.npz"),
        ("arrays:../own", (32, 32, 3), "not a path"),
        ("shvn", (32, 32, 3), "did you mean 'svhn'"),
    ):
        with pytest.raises(BadInput, match=said):
            ood_images(name, tmp_path, shape)


def test_generated_pictures_keep_their_labels():
    x, y = scenes(3), np.array([2, 0, 1])
    pictures, labels = generated(x, y, seed=1)("fog", 2)
    assert pictures.shape == x.shape
    assert (labels == y).all()

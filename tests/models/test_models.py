"""Parameter counts, shapes, and what constructors refuse."""

import pytest
import torch

from surefoot.errors import BadInput
from surefoot.models import build_model

# name, options, parameters for 10 and for 100 classes (ViT for 1000)
COUNTS = [
    ("resnet20", {}, 269_722, 275_572),
    ("resnet56", {}, 853_018, 858_868),
    ("resnet110", {}, 1_727_962, 1_733_812),
    ("wrn", {"depth": 28, "width": 10}, 36_479_194, 36_536_884),
    ("pyramidnet", {"alpha": 270}, 28_485_477, 28_511_307),
    ("pyramidnet", {"alpha": 48}, 1_772_706, None),
    ("pyramidnet", {"alpha": 84}, 3_904_446, None),
    ("resnet18", {}, 11_173_962, 11_220_132),
    ("mlp", {}, 656_810, 674_900),
]


@pytest.mark.parametrize(("name", "options", "ten", "hundred"), COUNTS, ids=lambda value: str(value))
def test_parameter_counts(name, options, ten, hundred):
    for classes, expected in ((10, ten), (100, hundred)):
        if expected is not None:
            with torch.device("meta"):
                model = build_model(name, (3, 32, 32), classes, **options)
            assert sum(p.numel() for p in model.parameters()) == expected


def test_counts_for_large_images():
    with torch.device("meta"):
        for name, options, classes, expected in (
            ("resnet18", {"stem": "large"}, 1000, 11_689_512),
            ("resnet50", {"stem": "large"}, 1000, 25_557_032),
            ("resnet18", {"stem": "small"}, 200, 11_271_432),
            ("resnet18", {"stem": "large"}, 200, 11_279_112),
            ("vit_s16", {}, 1000, 22_050_664),
            ("vit_s32", {}, 1000, 22_878_952),
        ):
            model = build_model(name, (3, 224, 224), classes, **options)
            assert sum(p.numel() for p in model.parameters()) == expected, name


@pytest.mark.parametrize(
    ("name", "options", "shape"),
    [
        ("mlp", {"dropout": 0.1}, (3, 32, 32)),
        ("mlp", {"widths": [32], "activation": "relu"}, (64,)),
        ("lenet", {}, (1, 28, 28)),
        ("lenet", {}, (3, 32, 32)),
        ("cnn", {"width": 4}, (1, 8, 8)),
        ("resnet20", {}, (3, 32, 32)),
        ("resnet18", {"dropout": 0.1}, (3, 32, 32)),
        ("wrn", {"depth": 10, "width": 1, "dropout": 0.1}, (3, 32, 32)),
        ("pyramidnet", {"depth": 20, "alpha": 12}, (3, 32, 32)),
        ("vit_s16", {"width": 24, "depth": 2, "heads": 2}, (3, 32, 32)),
    ],
)
def test_logits_and_gradients(name, options, shape):
    torch.manual_seed(0)
    model = build_model(name, shape, 7, **options)
    logits = model(torch.randn(3, *shape))
    assert logits.shape == (3, 7)
    logits.square().sum().backward()
    assert all(p.grad is not None and bool(torch.isfinite(p.grad).all()) for p in model.parameters())


def test_misuse():
    for name, options, match in (
        ("resnet21", {}, "did you mean"),
        ("wrn", {"depth": 27}, "6n \\+ 4"),
        ("wrn", {"deepth": 28}, "deepth"),
        ("pyramidnet", {"depth": 21}, "6n \\+ 2"),
        ("resnet18", {"stem": "huge"}, "stem"),
        ("mlp", {"activation": "step"}, "activation"),
        ("vit_s16", {"patch": 5}, "no option 'patch'"),
    ):
        with pytest.raises(BadInput, match=match):
            build_model(name, (3, 32, 32), 10, **options)
    with pytest.raises(BadInput, match="multiple of patch"):
        build_model("vit_s16", (3, 30, 30), 10)
    with pytest.raises(BadInput, match="images of 3 channels"):
        build_model("resnet20", (64,), 10)

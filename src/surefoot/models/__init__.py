"""Networks of Morosini et al. (2026) and Tan et al. (2026), by name."""

from typing import TYPE_CHECKING

from surefoot.deprecated import renamed_names
from surefoot.models.cnn import LeNet, SmallCNN
from surefoot.models.mlp import MLP
from surefoot.models.pyramidnet import PyramidNet
from surefoot.models.registry import MODELS, build_model
from surefoot.models.resnet import CifarResNet, ResNet
from surefoot.models.vit import ViT
from surefoot.models.wide_resnet import WideResNet

__all__ = [
    "MLP",
    "MODELS",
    "CifarResNet",
    "LeNet",
    "PyramidNet",
    "ResNet",
    "SmallCNN",
    "ViT",
    "WideResNet",
    "build_model",
]

if not TYPE_CHECKING:  # a module's __getattr__ would hide wrong names from type checkers
    __getattr__ = renamed_names(__name__)

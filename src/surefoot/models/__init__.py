"""Networks of both papers, by name."""

from surefoot.models.cnn import LeNet, SmallCNN
from surefoot.models.deep_resnet import ResNet
from surefoot.models.mlp import MLP
from surefoot.models.names import MODELS, model_named
from surefoot.models.pyramidnet import PyramidNet
from surefoot.models.resnet import CifarResNet
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
    "model_named",
]

"""Encoders: timm's models without their classifiers, and ResNets for small images under timm's own names.

`resnet18_small` is a ResNet-18 whose first convolution is 3×3 without stride or pooling, as SimCLR has it for 32²;
`resnet18_small_w16` the same with a quarter of the channels, for two cores; `resnet50_small` the larger one. After
`import randfield.learn.encoders`, `timm.create_model` knows them too.
"""

from __future__ import annotations

from typing import Any

import timm
from timm.models import register_model
from timm.models.resnet import BasicBlock, Bottleneck, ResNet
from torch import nn

__all__ = ["build", "resnet18_small", "resnet18_small_w16", "resnet50_small"]


def build(name: str) -> nn.Module:
    """An encoder: images [n, 3, h, w] to features [n, encoder.num_features]."""
    if not timm.is_model(name):
        near = ", ".join(timm.list_models(f"*{name.split('_')[0]}*")[:5]) or "resnet18_small_w16, resnet18, resnet50"
        raise ValueError(f"encoder must be a model of timm or one of {__all__[1:]}, got {name!r}; there are {near}")
    return timm.create_model(name, num_classes=0)


def _small(block: Any, layers: tuple[int, ...], width: int, **options: Any) -> ResNet:
    options = {key: value for key, value in options.items() if key in ("num_classes", "in_chans", "drop_rate")}
    # timm's plain stem has 64 channels; its deep one takes a width, and only its width is kept.
    model = ResNet(
        block, layers, stem_type="deep", stem_width=width // 2, channels=(width, 2 * width, 4 * width, 8 * width),
        base_width=width if block is Bottleneck else 64, **options,
    )  # fmt: skip
    first = nn.Conv2d(options.get("in_chans", 3), width, 3, padding=1, bias=False)
    nn.init.kaiming_normal_(first.weight, mode="fan_out", nonlinearity="relu")
    model.add_module("conv1", first)
    model.add_module("maxpool", nn.Identity())
    return model


@register_model
def resnet18_small(pretrained: bool = False, **options: Any) -> ResNet:
    """ResNet-18 for images of about 32²."""
    return _small(BasicBlock, (2, 2, 2, 2), 64, **options)


@register_model
def resnet18_small_w16(pretrained: bool = False, **options: Any) -> ResNet:
    """ResNet-18 for images of about 32², a quarter as wide."""
    return _small(BasicBlock, (2, 2, 2, 2), 16, **options)


@register_model
def resnet50_small(pretrained: bool = False, **options: Any) -> ResNet:
    """ResNet-50 for images of about 32²."""
    return _small(Bottleneck, (3, 4, 6, 3), 64, **options)

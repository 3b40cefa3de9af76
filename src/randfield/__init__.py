"""Gaussian random field augmentations for PyTorch.

Noise is filtered into fields (`fields`); fields become a matrix at every pixel, and matrices move a grid (`affine`);
one grid pulls every part of a sample (`warp`) through the same deformation, whatever its type (`functional`). Colour
takes the short way: three fields are added to hue, saturation and value (`color`). The classes of `transforms` hold the
hyper-parameters and draw; they are `torchvision.transforms.v2` transforms, and `views` puts one of them into SimCLR's
pipeline.
"""

from randfield import functional
from randfield.fields import matern, power_law, sample_field, squared_exponential
from randfield.transforms import (
    LocalAffine,
    LocalColorJitter,
    LocalHue,
    LocalRotate,
    LocalSaturation,
    LocalScale,
    LocalShear,
    LocalTransform,
    LocalTranslate,
    LocalValue,
    LocalWarp,
    from_config,
)
from randfield.views import SimCLRViews

__version__ = "0.1.0"

__all__ = [
    "LocalAffine",
    "LocalColorJitter",
    "LocalHue",
    "LocalRotate",
    "LocalSaturation",
    "LocalScale",
    "LocalShear",
    "LocalTransform",
    "LocalTranslate",
    "LocalValue",
    "LocalWarp",
    "SimCLRViews",
    "from_config",
    "functional",
    "matern",
    "power_law",
    "sample_field",
    "squared_exponential",
]

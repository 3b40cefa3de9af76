"""RGB to HSV and back, and fields added to hue, saturation and value.

Colours are planes along the third axis from the end, float, in [0, 1]: rgb[..., 3, H, W]. The formulas are those of
Python's `colorsys` (hue 0 for greys), written without sorting or branches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["hsv_to_rgb", "rgb_to_hsv", "shift"]


def rgb_to_hsv(rgb: Float[Tensor, "*batch 3 h w"]) -> Float[Tensor, "*batch 3 h w"]:
    """Hue, saturation and value of colours in [0, 1], each in [0, 1].

    >>> rgb_to_hsv(torch.tensor([0.0, 0.5, 0.5]).reshape(3, 1, 1)).flatten()
    tensor([0.5000, 1.0000, 0.5000])
    """
    red, green, blue = rgb.unbind(-3)
    value = rgb.amax(-3)
    chroma = value - rgb.amin(-3)
    grey = chroma == 0
    divisor = torch.where(grey, 1.0, chroma)
    # In the order of colorsys: where two channels tie for the maximum, red comes before green, green before blue.
    sixths = torch.where(
        value == red,
        (green - blue) / divisor,
        torch.where(value == green, 2 + (blue - red) / divisor, 4 + (red - green) / divisor),
    )
    hue = (sixths / 6) % 1.0
    saturation = chroma / torch.where(value == 0, 1.0, value)
    return torch.stack([hue, saturation, value], -3)


def hsv_to_rgb(hsv: Float[Tensor, "*batch 3 h w"]) -> Float[Tensor, "*batch 3 h w"]:
    """Colours in [0, 1] from hue (any number of turns), saturation and value.

    >>> hsv_to_rgb(torch.tensor([0.5, 1.0, 0.5]).reshape(3, 1, 1)).flatten()
    tensor([0.0000, 0.5000, 0.5000])
    """
    hue, saturation, value = hsv.unbind(-3)
    # Each channel is a trapezoid of the hue: full for two sixths of the wheel, absent for two, with ramps between.
    channels = hue.new_tensor([5.0, 3.0, 1.0]).reshape(3, 1, 1)
    sixths = (hue.unsqueeze(-3) * 6 + channels) % 6
    absent = torch.minimum(sixths, 4 - sixths).clamp(0, 1)
    chroma = (value * saturation).unsqueeze(-3)
    return value.unsqueeze(-3) - chroma * absent


def shift(
    rgb: Float[Tensor, "*batch 3 h w"],
    hue: Tensor | None = None,
    saturation: Tensor | None = None,
    value: Tensor | None = None,
) -> Float[Tensor, "*batch 3 h w"]:
    """Add to hue (it wraps), saturation and value (clamped to [0, 1]); fields broadcast against the planes.

    >>> shift(torch.tensor([1.0, 0.0, 0.0]).reshape(3, 1, 1), hue=torch.tensor([[1 / 3]])).flatten().round()
    tensor([0., 1., 0.])
    """
    h, s, v = rgb_to_hsv(rgb).unbind(-3)
    if hue is not None:
        h = h + hue
    if saturation is not None:
        s = (s + saturation).clamp(0, 1)
    if value is not None:
        v = (v + value).clamp(0, 1)
    return hsv_to_rgb(torch.stack(torch.broadcast_tensors(h, s, v), -3))

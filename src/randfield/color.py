"""RGB to HSV and back, and fields added to hue, saturation and value.

Colours are planes along the third axis from the end, float, in [0, 1]: rgb[..., 3, H, W]. The formulas are those of
Python's `colorsys` (hue 0 for greys), written without sorting or branches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from randfield import kernels
from randfield.fields import cached

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["hsv_to_rgb", "rgb_to_hsv", "shift"]


def rgb_to_hsv(rgb: Float[Tensor, "*batch 3 h w"]) -> Float[Tensor, "*batch 3 h w"]:
    """Hue, saturation and value of colours in [0, 1], each in [0, 1].

    >>> rgb_to_hsv(torch.tensor([0.0, 0.5, 0.5]).reshape(3, 1, 1)).flatten()
    tensor([0.5000, 1.0000, 0.5000])
    """
    hue, chroma, value = _from_rgb(rgb)
    return torch.stack([hue - hue.floor(), _saturation(chroma, value), value], -3)


def hsv_to_rgb(hsv: Float[Tensor, "*batch 3 h w"]) -> Float[Tensor, "*batch 3 h w"]:
    """Colours in [0, 1] from hue (any number of turns), saturation and value.

    >>> hsv_to_rgb(torch.tensor([0.5, 1.0, 0.5]).reshape(3, 1, 1)).flatten()
    tensor([0.0000, 0.5000, 0.5000])
    """
    hue, saturation, value = hsv.unbind(-3)
    return _to_rgb(hue, value * saturation, value)


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
    if kernels.shifts(rgb, hue, saturation, value):
        return kernels.shift(rgb, hue, saturation, value)
    h, chroma, v = _from_rgb(rgb)
    if hue is not None:
        h = h + hue
    if saturation is not None or value is not None:
        s = _saturation(chroma, v)
        if saturation is not None:
            s = (s + saturation).clamp_(0, 1)
        if value is not None:
            v = (v + value).clamp_(0, 1)
        chroma = v * s
    return _to_rgb(h, chroma, v)


_NOT_ZERO = 1e-20  # in the place of a divisor of zero, where the dividend is zero too


def _from_rgb(rgb: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Hue in turns within [-1/6, 5/6], chroma (value times saturation), value."""
    red, green, blue = rgb.unbind(-3)
    value = torch.maximum(torch.maximum(red, green), blue)
    chroma = value - torch.minimum(torch.minimum(red, green), blue)
    # Six times hue times chroma, as it is where red, green or blue is the largest; where two tie, red comes before
    # green and green before blue, as in colorsys. `sign` and `lerp` choose: `where` would take seven times as long.
    if_red, if_green, if_blue = green - blue, (blue - red).add_(chroma, alpha=2), (red - green).add_(chroma, alpha=4)
    sixths = if_red.lerp_(if_green.lerp_(if_blue, (value - green).sign_()), (value - red).sign_())
    hue = sixths.div_(chroma.clamp_min(_NOT_ZERO)).mul_(1 / 6)
    return hue, chroma, value


def _saturation(chroma: Tensor, value: Tensor) -> Tensor:
    return chroma / value.clamp_min(_NOT_ZERO)


@cached
def _centres(device: torch.device, dtype: torch.dtype) -> Tensor:
    return torch.tensor([0.0, 1 / 3, 2 / 3], device=device, dtype=dtype).reshape(3, 1, 1)


def _to_rgb(hue: Tensor, chroma: Tensor, value: Tensor) -> Tensor:
    # Round the wheel, a channel is all there within a sixth of its own hue (red 0, green 1/3, blue 2/3), absent from a
    # third on, and fades in between.
    distance = hue.unsqueeze(-3) - _centres(hue.device, hue.dtype)
    distance = distance.sub_(distance.round()).abs_()
    absent = distance.mul_(6).sub_(1).clamp_(0, 1)
    return torch.addcmul(value.unsqueeze(-3), absent, chroma.unsqueeze(-3), value=-1)

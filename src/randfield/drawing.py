"""What cannot be seen in a photograph: a field as colours, a deformation as a grid."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from PIL import Image, ImageDraw, ImageOps
from torch import Tensor
from torchvision.transforms.v2 import functional as tvf

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["gridded", "heat_map"]


def heat_map(g: Float[Tensor, "h w"]) -> Image.Image:
    """A field as a picture: blue for minus its largest magnitude, white for zero, red for plus."""
    levels = 127.5 * (1 + g / g.abs().max().clamp_min(1e-12))
    grey = tvf.to_pil_image(levels.round().to(torch.uint8))
    return ImageOps.colorize(grey, black="#2166ac", mid="#f7f7f7", white="#b2182b")


def gridded(photo: Image.Image) -> Image.Image:
    """The photo behind a grid of eight squares along its shorter side, centred."""
    photo = photo.copy()
    pen = ImageDraw.Draw(photo, "RGBA")
    pitch = max(4.0, min(photo.size) / 8)
    white, width = (255, 255, 255, 190), max(1, round(pitch / 14))

    def positions(length: int) -> list[float]:
        half = int(length / 2 / pitch)
        return [length / 2 + k * pitch for k in range(-half, half + 1)]

    for x in positions(photo.width):
        pen.line([(x, 0), (x, photo.height)], white, width)
    for y in positions(photo.height):
        pen.line([(0, y), (photo.width, y)], white, width)
    return photo

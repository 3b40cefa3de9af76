"""Pictures in files, as photographers and cameras leave them: turned by a tag, in any mode, sometimes broken."""

from __future__ import annotations

from pathlib import Path
from typing import IO

from PIL import Image, ImageOps, UnidentifiedImageError
from torchvision.transforms.v2 import functional as tvf

__all__ = ["as_rgb", "read", "reason"]


def read(path: Path | IO[bytes]) -> tuple[Image.Image, str]:
    """An image the right way up, and the name of its format."""
    with Image.open(path) as image:
        kind = "JPEG" if image.format == "MPO" else str(image.format)  # MPO: a JPEG that some cameras append others to
        return ImageOps.exif_transpose(image), kind


def reason(error: Exception) -> str:
    """Why a file failed, without its path."""
    if isinstance(error, UnidentifiedImageError):
        return "not an image that Pillow can read"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def as_rgb(image: Image.Image) -> Image.Image:
    """An image of any mode in RGB: more than 8 bits are stretched to what is there, transparency lies over white."""
    if image.mode.startswith(("I", "F")):  # where Pillow would cut it off
        values = tvf.pil_to_tensor(image.convert("F"))
        low, high = values.min(), values.max()
        image = tvf.to_pil_image((values - low) / (high - low).clamp_min(1e-12))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")

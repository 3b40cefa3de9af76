"""The operations of the library for every type torchvision knows; the only file that knows types.

Matrices come from fields (`rotate`, `scale`, `shear`, `translate`), multiply (`compose`) and move a grid
(`sampling_grid`); `warp` pulls anything through that grid and `shift_hsv` adds fields to colours:

>>> import torch, randfield
>>> from randfield import functional as F
>>> gx, gy = randfield.sample_field((37, 53), gamma=8.0, alpha=0.1, batch=(2,))
>>> grid = F.sampling_grid(F.compose(F.scale(gx, gy), F.rotate(gx)))
>>> F.warp(torch.rand(3, 37, 53), grid).shape
torch.Size([3, 37, 53])

`warp` accepts plain tensors and `Image` [..., C, H, W], `Video` [..., T, C, H, W], `Mask` [..., H, W], PIL images,
`KeyPoints` [..., 2] and unrotated `BoundingBoxes` [..., 4], and returns the same type and dtype. A grid without a
batch moves everything in the leading dimensions alike; a grid `[*batch, H, W, 2]` needs inputs whose leading
dimensions begin with that batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from typing import TYPE_CHECKING, Any

import PIL.Image
import torch
from torch import Tensor
from torchvision import tv_tensors
from torchvision.transforms.v2 import functional as tvf

from randfield import color, kernels
from randfield.affine import compose, folding, identity_grid, rotate, sampling_grid, scale, shear, translate
from randfield.warp import Interpolation, Padding, compute_dtype, from_values, invert, pull, source_of

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = [
    "compose",
    "folding",
    "identity_grid",
    "rotate",
    "sampling_grid",
    "scale",
    "shear",
    "shift_hsv",
    "translate",
    "warp",
]

Fill = float | Sequence[float]


# ------------------------------------------------------------------------------------------------------------- warp


@singledispatch
def warp(
    inpt: Any,
    grid: Float[Tensor, "*batch h w 2"],
    *,
    interpolation: Interpolation = "bilinear",
    padding: Padding = "reflection",
    fill: Fill = 0,
    near: bool = False,
) -> Any:
    """Pull `inpt` through `grid`, the source point (x, y) of every target pixel (see `sampling_grid`).

    Args:
        inpt: anything named at the top of this module. Masks are sampled with "nearest" whatever `interpolation` is.
            Points are inverted on the grid (pixel centres at whole numbers, as in torchvision's flips and elastic);
            a box becomes the hull of where it goes, as far as that is visible.
        grid: one grid, or one for each sample of the leading dimensions.
        interpolation: "bilinear", "bicubic" or "nearest".
        padding: what lies outside the image: its "reflection", its "border" or `fill` ("zeros").
        fill: a number or one for each channel, used with padding="zeros".
        near: a promise that no point of the grid is farther outside than the image is wide; makes reflection cheaper.

    >>> warp(torch.rand(2, 3, 37, 53), identity_grid((37, 53)), padding="zeros").shape
    torch.Size([2, 3, 37, 53])
    """
    raise TypeError(
        f"warp: cannot move {type(inpt).__name__}; expected a tensor, a PIL image or one of torchvision's Image, "
        "Video, Mask, KeyPoints, BoundingBoxes"
    )


@warp.register(torch.Tensor)
def _warp_planes(
    inpt: Tensor,
    grid: Tensor,
    *,
    interpolation: Interpolation = "bilinear",
    padding: Padding = "reflection",
    fill: Fill = 0,
    near: bool = False,
) -> Tensor:
    if inpt.ndim < 2:
        raise ValueError(f"warp: an image needs at least the dimensions [H, W], got shape {tuple(inpt.shape)}")
    image = _plain(inpt)
    batch, (height, width) = grid.shape[:-3], grid.shape[-3:-1]
    shape = (*image.shape[:-2], height, width)
    check_batch("warp", image.shape[:-2], batch, image.shape)
    if image.numel() == 0:
        return _like(image.new_empty(shape), inpt)
    # Whatever shares a grid becomes a channel, so that the sampling weights are worked out once.
    planes = image.reshape(batch.numel(), -1, *image.shape[-2:])
    warped = pull(
        planes,
        grid.reshape(-1, height, width, 2),
        interpolation=interpolation,
        padding=padding,
        fill=_fill_planes(fill, image, planes),
        near=near,
    )
    return _like(warped.reshape(shape), inpt)


@warp.register(tv_tensors.Mask)
def _warp_mask(inpt: tv_tensors.Mask, grid: Tensor, **options: Any) -> Tensor:
    return _warp_planes(inpt, grid, **(options | {"interpolation": "nearest"}))


@warp.register(PIL.Image.Image)
def _warp_pil(inpt: PIL.Image.Image, grid: Tensor, **options: Any) -> PIL.Image.Image:
    if inpt.mode in ("1", "P"):  # bits and palette indices have nothing between them
        options |= {"interpolation": "nearest"}
    image = _from_pil(inpt)
    if grid.ndim > 3:
        grid = grid.flatten(0, -4).squeeze(0)  # a PIL image is one sample
    return _to_pil(_warp_planes(image, grid, **options), like=inpt)


@warp.register(tv_tensors.KeyPoints)
def _warp_points(inpt: tv_tensors.KeyPoints, grid: Tensor, **options: Any) -> Tensor:
    points = inpt.as_subclass(Tensor)
    size = _size(grid)
    moved = _invert_pixels(points, grid, inpt.canvas_size, centre=0.5) if points.numel() else points
    return tv_tensors.wrap(_rounded(moved, points.dtype), like=inpt, canvas_size=size)


@warp.register(tv_tensors.BoundingBoxes)
def _warp_boxes(inpt: tv_tensors.BoundingBoxes, grid: Tensor, **options: Any) -> Tensor:
    if tv_tensors.is_rotated_bounding_format(inpt.format):
        raise ValueError(
            f"warp: a smooth deformation does not keep rotated boxes ({inpt.format.name}) rectangular; convert them to "
            "XYXY, or to KeyPoints of their corners"
        )
    size = _size(grid)
    boxes = inpt.as_subclass(Tensor)
    moved = boxes
    if boxes.numel():
        check_batch("warp", boxes.shape[:-1], grid.shape[:-3], boxes.shape)
        # Not in float16: neither 2049 nor a third of a pixel exists there.
        xyxy = tvf.convert_bounding_box_format(boxes.float(), inpt.format, tv_tensors.BoundingBoxFormat.XYXY)
        moved = _box_hulls(xyxy, grid, inpt.canvas_size, clamp=inpt.clamping_mode is not None)
        moved = tvf.convert_bounding_box_format(moved, tv_tensors.BoundingBoxFormat.XYXY, inpt.format)
    return tv_tensors.wrap(_rounded(moved, boxes.dtype), like=inpt, canvas_size=size)


_EDGE_POINTS = 32  # on each edge of a box; the hull of a smooth curve misses by (spacing)² · curvature / 8


def _box_hulls(boxes: Tensor, grid: Tensor, source_size: tuple[int, int], *, clamp: bool) -> Tensor:
    """Boxes (x1, y1, x2, y2) around where the boxes go: [..., 4].

    Around those points of a box's edges that land on the canvas, which know fractions of a pixel, and around the
    centres of all pixels that show the inside of the box, which no bend, fold or edge of the canvas can hide.
    """
    height, width = _size(grid)
    along = torch.linspace(0, 1, _EDGE_POINTS, device=boxes.device).unsqueeze(-1)
    first, last = boxes.unsqueeze(-2)[..., :2], boxes.unsqueeze(-2)[..., 2:]
    span = last - first
    x, y = along * span[..., :1], along * span[..., 1:]
    across, down = torch.cat([x, 0 * x], -1), torch.cat([0 * y, y], -1)
    edges = torch.cat([first + across, first + down, last - across, last - down], -2)  # [..., points, 2]
    moved = _invert_pixels(edges, grid, source_size, centre=0.0)
    low_shown, high_shown = _shown(boxes, grid, source_size)
    if not clamp:
        return torch.cat([moved.amin(-2).minimum(low_shown), moved.amax(-2).maximum(high_shown)], -1)
    canvas = moved.new_tensor([width, height])
    # A point that no pixel shows has no place; the nearest attempt, which misses it, is not one.
    missed = (_source_pixels(moved, grid, source_size) - edges).norm(dim=-1) > 0.5
    # Half a pixel inside: what shows in the outermost pixels, they say themselves.
    on_canvas = (((moved >= 0.5) & (moved <= canvas - 0.5)).all(-1) & ~missed).unsqueeze(-1)
    low = torch.where(on_canvas, moved, torch.inf).amin(-2).minimum(low_shown)
    high = torch.where(on_canvas, moved, -torch.inf).amax(-2).maximum(high_shown)
    # Nothing to be seen: an empty box at the place on the canvas nearest to where the box went.
    gone = low > high
    centre = moved.mean(-2).clamp_min(0).minimum(canvas)
    return torch.cat([torch.where(gone, centre, low), torch.where(gone, centre, high)], -1)


def _shown(boxes: Tensor, grid: Tensor, source_size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """The least and the greatest (x, y) of the centres of all pixels that show the inside of each box, [..., 2] each;
    of the outermost pixels, which stand for what lies beyond them, the edges. Infinite where there is none."""
    height, width = _size(grid)
    x, y = _to_pixels(_flat_grid(grid), source_size, centre=0.0).unbind(-1)
    low, high = [], []
    for box in boxes.reshape(len(x), -1, 4).unbind(1):  # one of each sample at a time: a plane for each is large
        left, top, right, bottom = box[:, :, None, None].unbind(1)
        inside = (x >= left) & (x <= right) & (y >= top) & (y <= bottom)
        columns, rows = inside.any(-2), inside.any(-1)
        sides = [
            _extent(columns, inside[:, 0] | inside[:, height - 1]),
            _extent(rows, inside[:, :, 0] | inside[:, :, width - 1]),
        ]
        low.append(torch.stack([least for least, _ in sides], -1))
        high.append(torch.stack([greatest for _, greatest in sides], -1))
    shape = (*boxes.shape[:-1], 2)
    return torch.stack(low, 1).reshape(shape), torch.stack(high, 1).reshape(shape)


def _extent(some: Tensor, outermost: Tensor) -> tuple[Tensor, Tensor]:
    """From where to where the columns (or rows) reach in which there is some, [b, n]: to the middle of a pixel, or to
    its edge where that pixel is an outermost one."""
    n = some.shape[-1]
    index = torch.arange(n, device=some.device)
    half = 0.5 * (some & ~outermost & (index > 0) & (index < n - 1))
    low = torch.where(some, index + half, torch.inf).amin(-1)
    return low, torch.where(some, index + 1 - half, -torch.inf).amax(-1)


def _invert_pixels(points: Tensor, grid: Tensor, source_size: tuple[int, int], *, centre: float) -> Tensor:
    """Where points go: pixel coordinates, in which a pixel's centre is `0.5 - centre` past its whole number."""
    check_batch("warp", points.shape[:-1], grid.shape[:-3], points.shape)
    moved = invert(_flat_grid(grid), _to_units(points, grid, source_size, centre=centre))
    return _to_pixels(moved, _size(grid), centre=centre).reshape(points.shape)


def _source_pixels(points: Tensor, grid: Tensor, source_size: tuple[int, int]) -> Tensor:
    source = source_of(_flat_grid(grid), _to_units(points, grid, _size(grid), centre=0.0))
    return _to_pixels(source, source_size, centre=0.0).reshape(points.shape)


def _flat_grid(grid: Tensor) -> Tensor:
    return grid.reshape(-1, *grid.shape[-3:]).float()


def _size(grid: Tensor) -> tuple[int, int]:
    return int(grid.shape[-3]), int(grid.shape[-2])


def _to_units(points: Tensor, grid: Tensor, size: tuple[int, int], *, centre: float) -> Tensor:
    """From pixels to units, [b, n, 2] for the b grids."""
    flat = points.reshape(grid.shape[:-3].numel(), -1, 2).float()
    height, width = size
    return (2 * (flat + centre) - flat.new_tensor([width, height])) / min(size)


def _to_pixels(points: Tensor, size: tuple[int, int], *, centre: float) -> Tensor:
    """From units to pixels: `centre` is the coordinate's offset from the pixel's corner."""
    height, width = size
    return (points * min(size) + points.new_tensor([width, height])) / 2 - centre


def _rounded(values: Tensor, dtype: torch.dtype) -> Tensor:
    return values.to(dtype) if dtype.is_floating_point else values.round().to(dtype)


def _fill_planes(fill: Fill, image: Tensor, planes: Tensor) -> Tensor | None:
    """The fill as a tensor that broadcasts against planes [n, c, h, w]; None where it is zero."""
    if fill == 0:
        return None
    values = torch.as_tensor(fill, dtype=torch.float64, device=image.device)
    if values.numel() == 1:
        return values.reshape(1, 1, 1).to(image.device, compute_dtype(image.dtype))
    if image.ndim < 3 or image.shape[-3] != values.numel():
        raise ValueError(
            f"warp: fill has {values.numel()} values, the image of shape {tuple(image.shape)} does not have that many "
            "channels; pass one number, one for each channel, or to a transform a dict with one of these for each type"
        )
    return (
        values.repeat(planes.shape[1] // values.numel()).reshape(-1, 1, 1).to(image.device, compute_dtype(image.dtype))
    )


# -------------------------------------------------------------------------------------------------------- shift_hsv


@singledispatch
def shift_hsv(
    inpt: Any,
    hue: Float[Tensor, "*batch h w"] | None = None,
    saturation: Float[Tensor, "*batch h w"] | None = None,
    value: Float[Tensor, "*batch h w"] | None = None,
) -> Any:
    """Add fields to the hue, saturation and value of an image: hue wraps, the others are clamped to [0, 1].

    Args:
        inpt: a tensor or `Image` [..., 3, H, W], a `Video`, or a PIL image in mode RGB (L for value alone). One channel
            has a value alone. Floating-point colours are taken to lie in [0, 1], integers up to their type's maximum.
        hue: a field in turns of the colour wheel, of the image's size.
        saturation: a field.
        value: a field.

    >>> black, g = torch.zeros(3, 37, 53, dtype=torch.uint8), torch.full((37, 53), 0.2)
    >>> shift_hsv(black, value=g).unique()
    tensor([51], dtype=torch.uint8)
    """
    raise TypeError(
        f"shift_hsv: cannot recolour {type(inpt).__name__}; expected a tensor, a PIL image, an Image or a Video"
    )


@shift_hsv.register(torch.Tensor)
def _shift_planes(
    inpt: Tensor, hue: Tensor | None = None, saturation: Tensor | None = None, value: Tensor | None = None
) -> Tensor:
    image = _plain(inpt)
    colour = hue is not None or saturation is not None
    channels = image.shape[-3] if image.ndim > 2 else 0
    if not (channels == 3 or (channels == 1 and not colour)):
        expected = "3 channels (RGB)" if colour else "3 channels (RGB), or 1 for value alone"
        raise ValueError(
            f"shift_hsv: expected {expected} in [..., C, H, W], got an image of shape {tuple(image.shape)}"
        )
    if image.dtype == torch.bool or image.is_complex():
        raise ValueError(f"shift_hsv: expected integer or floating-point colours, got {image.dtype}")
    if image.numel() == 0:
        return inpt

    def field(g: Tensor | None) -> Tensor | None:
        if g is None:
            return None
        batch = g.shape[:-2]
        check_batch("shift_hsv", image.shape[:-3], batch, image.shape)
        return g.reshape(*batch, *(1,) * (image.ndim - 3 - len(batch)), *g.shape[-2:])

    fields = [field(g) for g in (hue, saturation, value)]
    if channels == 3 and image.dtype == torch.uint8 and kernels.shifts(image, *fields):
        return _like(kernels.shift(image, *fields), inpt)
    height = image.shape[-2]
    rows = height if image.device.type != "cpu" else max(1, _AT_ONCE // (image.numel() // height))
    if rows >= height or torch.compiler.is_compiling():
        return _like(_shifted(image, *fields), inpt)
    out = torch.empty_like(image)
    for top in range(0, height, rows):
        strip = [None if g is None else g[..., top : top + rows, :] for g in fields]
        out[..., top : top + rows, :] = _shifted(image[..., top : top + rows, :], *strip)
    return _like(out, inpt)


# Values that are recoloured at a time on the CPU: a dozen temporaries of this size fit the cache, and a pixel of 1024²
# takes as long as one of 224²; all at once it would take twice as long.
_AT_ONCE = 3 * 2**16


def _shifted(image: Tensor, hue: Tensor | None, saturation: Tensor | None, value: Tensor | None) -> Tensor:
    rgb = image.to(compute_dtype(image.dtype))
    top = 1.0 if image.dtype.is_floating_point else float(torch.iinfo(image.dtype).max)
    if top != 1.0:
        rgb = rgb / top
    hue, saturation, value = (None if g is None else g.to(rgb.dtype) for g in (hue, saturation, value))
    if image.shape[-3] == 1:
        rgb = rgb if value is None else (rgb + value.unsqueeze(-3)).clamp(0, 1)
    else:
        rgb = color.shift(rgb, hue, saturation, value)
    if top != 1.0:
        rgb = rgb * top
    return from_values(rgb, image.dtype, clamp=True)


for _not_an_image in (tv_tensors.Mask, tv_tensors.KeyPoints, tv_tensors.BoundingBoxes):  # though they are tensors
    shift_hsv.register(_not_an_image, shift_hsv.dispatch(object))


@shift_hsv.register(PIL.Image.Image)
def _shift_pil(inpt: PIL.Image.Image, *args: Any, **fields: Tensor | None) -> PIL.Image.Image:
    if inpt.mode not in ("RGB", "L", "I;16"):
        raise ValueError(f"shift_hsv: expected a PIL image in mode RGB, got {inpt.mode}; use image.convert('RGB')")

    def one(g: Tensor | None) -> Tensor | None:
        return g if g is None or g.ndim == 2 else g.flatten(0, -3).squeeze(0)  # a PIL image is one sample

    return _to_pil(_shift_planes(_from_pil(inpt), *map(one, args), **{k: one(g) for k, g in fields.items()}), like=inpt)


# ------------------------------------------------------------------------------------------------------------ types


def check_batch(name: str, leading: Sequence[int], batch: Sequence[int], shape: Sequence[int]) -> None:
    """Raise unless the leading dimensions of an input begin with the batch of what is applied to it."""
    if tuple(leading[: len(batch)]) != tuple(batch):
        raise ValueError(
            f"{name}: parameters were drawn for a batch of {tuple(batch)}, but the input has shape {tuple(shape)}; its "
            "leading dimensions must begin with that batch"
        )


def _plain(inpt: Tensor) -> Tensor:
    # Not for tensors that are plain already: a compiler's graph would break there.
    return inpt.as_subclass(Tensor) if isinstance(inpt, tv_tensors.TVTensor) else inpt


def _like(out: Tensor, inpt: Tensor) -> Tensor:
    return tv_tensors.wrap(out, like=inpt) if isinstance(inpt, tv_tensors.TVTensor) else out


def _from_pil(image: PIL.Image.Image) -> Tensor:
    with torch.device("cpu"):  # where its grid is, whatever the default device
        return tvf.pil_to_tensor(image)


def _to_pil(image: Tensor, *, like: PIL.Image.Image) -> PIL.Image.Image:
    # Not torchvision's to_pil_image, which knows neither bits nor palettes nor unsigned integers of 16 bits.
    pixels = image.movedim(-3, -1).contiguous().numpy()
    if like.mode == "1":
        return PIL.Image.fromarray(pixels.squeeze(-1))
    out = PIL.Image.frombytes(like.mode, (image.shape[-1], image.shape[-2]), pixels.tobytes())
    if palette := like.getpalette():
        out.putpalette(palette)
    return out

"""Pull an image through a grid; invert a grid at points.

Grids hold source points (x, y) for every target pixel, in the convention of `affine`: the shorter side of the source
spans [-1, 1]. `pull` answers "what is at the target pixel", `invert` "where does the source point go".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from randfield import kernels
from randfield.affine import identity_grid
from randfield.fields import cached

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped

__all__ = ["Interpolation", "Padding", "compute_dtype", "from_values", "invert", "pull", "source_of"]

Interpolation = Literal["bilinear", "bicubic", "nearest"]
Padding = Literal["reflection", "border", "zeros"]


def pull(
    image: Shaped[Tensor, "n c h w"],
    grid: Float[Tensor, "n height width 2"],
    *,
    interpolation: Interpolation = "bilinear",
    padding: Padding = "reflection",
    fill: Tensor | None = None,
    near: bool = False,
) -> Shaped[Tensor, "n c height width"]:
    """Sample `image` at the points of `grid`; any dtype in, the same dtype out.

    "nearest" copies values, so it is exact for every dtype; the others compute in float32 (float64 for float64 and for
    integers of more than 16 bits) and round to the nearest integer at the end. `fill`, of shape [c, 1, 1] or less,
    is what lies outside under "zeros" padding. `near` promises that no point is farther outside than the image is wide,
    which makes reflection cheaper.
    """
    if padding not in ("reflection", "border", "zeros"):
        raise ValueError(f"warp: padding must be one of 'reflection', 'border', 'zeros', got {padding!r}")
    if interpolation not in ("bilinear", "bicubic", "nearest"):
        raise ValueError(f"warp: interpolation must be one of 'bilinear', 'bicubic', 'nearest', got {interpolation!r}")
    fill = fill if padding == "zeros" else None
    reflect = padding == "reflection"
    if interpolation == "nearest":
        return _pull_nearest(image, _unit_square(grid, *image.shape[-2:], reflect=reflect, near=near), padding, fill)
    values = image if image.dtype == torch.uint8 else image.to(compute_dtype(image.dtype))
    if interpolation == "bilinear" and padding != "zeros" and kernels.pulls(values, grid):
        values = kernels.pull(values, grid, reflect=reflect)
        return values if image.dtype == torch.uint8 else from_values(values, image.dtype)
    values = values.to(compute_dtype(image.dtype))
    grid = _unit_square(grid, *image.shape[-2:], reflect=reflect, near=near).to(values.dtype)
    if padding == "zeros":
        mode = "zeros"
    elif image.device.type == "mps":  # no border padding there: stop at the outermost pixel centres instead
        grid, mode = _clamp_to_centres(grid, image.shape[-2], image.shape[-1]), "zeros"
    else:
        mode = "border"  # a reflected grid is inside already, save for the outer half pixel
    # Sampling is linear, and zero outside: shifted by the fill, it is the fill outside.
    if fill is not None:
        values = values - fill
    values = F.grid_sample(values, grid, mode=interpolation, padding_mode=mode, align_corners=False)
    if fill is not None:
        values = values + fill
    return from_values(values, image.dtype, clamp=interpolation == "bicubic" or fill is not None)


def _pull_nearest(image: Tensor, grid: Tensor, padding: Padding, fill: Tensor | None) -> Tensor:
    n, c, height, width = image.shape
    column = (((grid[..., 0] + 1) * width - 1) / 2).round().long()
    row = (((grid[..., 1] + 1) * height - 1) / 2).round().long()
    inside_column, inside_row = column.clamp(0, width - 1), row.clamp(0, height - 1)
    index = (inside_row * width + inside_column).reshape(n, 1, -1).expand(n, c, -1)
    # Copying needs no arithmetic: move the unsigned types, which few kernels know, as signed ones of their width.
    plain = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}.get(image.dtype)
    source = image if plain is None else image.view(plain)
    values = source.flatten(-2).gather(-1, index).reshape(n, c, *grid.shape[1:3])
    values = values if plain is None else values.view(image.dtype)
    if padding != "zeros":
        return values
    inside = ((inside_column == column) & (inside_row == row)).unsqueeze(1)
    outside = torch.zeros((), device=image.device) if fill is None else fill
    if plain is not None:
        return torch.where(inside, values.long(), outside.long()).to(image.dtype)
    return torch.where(inside, values, outside.to(image.dtype))


def _unit_square(grid: Tensor, height: int, width: int, *, reflect: bool, near: bool) -> Tensor:
    """From the image's units to torch's, where each side spans [-1, 1]; points outside folded back if asked."""
    if height != width:
        grid = grid * _per_side(height, width, grid.device)
    if not reflect:
        return grid
    if near:  # u + 2 where u < -1, u - 2 where u > 1, in two passes
        return torch.sub(grid, F.softshrink(grid, 1.0), alpha=2)
    # A triangle wave of period 4, however far out. grid_sample's own reflection costs more than twice as much.
    folded = grid + 1
    folded.sub_((folded / 4).round_(), alpha=4)
    return folded.abs_().sub_(1)


@cached
def _per_side(height: int, width: int, device: torch.device) -> Tensor:
    shorter = min(height, width)
    return torch.tensor([shorter / width, shorter / height], device=device)


def _clamp_to_centres(grid: Tensor, height: int, width: int) -> Tensor:
    inset = torch.tensor([1 / width, 1 / height], dtype=grid.dtype, device=grid.device)
    return torch.maximum(torch.minimum(grid, 1 - inset), inset - 1)


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The floating-point type that images of `dtype` are computed in."""
    if dtype in (torch.float64, torch.int32, torch.int64, torch.uint32, torch.uint64):
        return torch.float64
    if dtype.is_complex:
        raise ValueError(f"warp: expected real numbers, got {dtype}; warp torch.view_as_real(image).movedim(-1, 0)")
    return torch.float32


def from_values(
    values: Shaped[Tensor, "*shape"], dtype: torch.dtype, *, clamp: bool = False
) -> Shaped[Tensor, "*shape"]:
    """Back to the dtype of an image, rounding to integers; `clamp` where the arithmetic may leave their range."""
    if dtype.is_floating_point:
        return values.to(dtype)
    if dtype == torch.bool:
        return values > 0.5
    values = values.round_()
    if clamp:
        low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
        # The maximum of a 64-bit integer is not a float64, and rounding it up would overflow.
        values = values.clamp_(low, high if high < 2**53 else high - 2**11)
    # float -> uint8 is a scalar loop in PyTorch, 80 µs at 3×224²; float -> int16 -> uint8 is vectorised, 20 µs.
    return values.to(torch.int16).to(dtype) if dtype == torch.uint8 else values.to(dtype)


def source_of(grid: Float[Tensor, "b h w 2"], points: Float[Tensor, "b n 2"]) -> Float[Tensor, "b n 2"]:
    """The source points of any target points, by bilinear interpolation of the grid; `invert` is its inverse."""
    return _source(grid, points)[0]


def _source(grid: Tensor, points: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Source points and their derivatives by x and y, [b, n, 2] each; outside, the outermost cells go on."""
    height, width = grid.shape[1:3]
    per_unit = min(height, width) / 2  # pixels
    extent = points.new_tensor([width, height])
    pixel = points * per_unit + (extent - 1) / 2
    first = pixel.floor().minimum(extent - 2).clamp_min(0)
    x, y = (pixel - first).unsqueeze(-1).unbind(-2)
    column, row = first.nan_to_num(0).long().unbind(-1)
    beside, below = (column + 1).clamp_max(width - 1), (row + 1).clamp_max(height - 1)
    flat = grid.flatten(1, 2)

    def node(row: Tensor, column: Tensor) -> Tensor:
        return flat.gather(1, (row * width + column).unsqueeze(-1).expand(-1, -1, 2))

    a, b, c, d = node(row, column), node(row, beside), node(below, column), node(below, beside)
    if width == 1:  # no cell to say how the source goes on: it keeps its distance
        b, d = (corner + corner.new_tensor([1 / per_unit, 0.0]) for corner in (b, d))
    if height == 1:
        c, d = (corner + corner.new_tensor([0.0, 1 / per_unit]) for corner in (c, d))
    by_x = torch.lerp(b - a, d - c, y) * per_unit
    by_y = torch.lerp(c - a, d - b, x) * per_unit
    return torch.lerp(torch.lerp(a, b, x), torch.lerp(c, d, x), y), by_x, by_y


def _inverse(by_x: Tensor, by_y: Tensor) -> tuple[Tensor, Tensor]:
    """The rows, for x and for y, of the inverse of the matrix of these columns; bounded where it has none."""
    determinant = by_x[..., :1] * by_y[..., 1:] - by_y[..., :1] * by_x[..., 1:]
    determinant = torch.copysign(determinant.abs().clamp_min(1e-4), determinant)
    (a, c), (b, d) = by_x.unbind(-1), by_y.unbind(-1)
    return torch.stack([d, -b], -1) / determinant, torch.stack([-c, a], -1) / determinant


_STARTS, _STEPS, _SEARCHED = 4, 12, 8


def invert(grid: Float[Tensor, "b h w 2"], points: Float[Tensor, "b n 2"]) -> Float[Tensor, "b n 2"]:
    """The target points that `grid` pulls from the source `points`: solves source(t) = p for each p.

    Newton's method on the bilinear interpolation of the grid, from the few likeliest of a coarse set of its pixels,
    each step held to a radius that shrinks when it did not help; then, for the few points of each grid that this missed
    most, once more from the cell that holds them, found among all cells. Numbers of steps and points are fixed, so that
    nothing is looked at on the host. On a grid without folds the answer is exact to a small fraction of a pixel; where
    it folds, one of the preimages is returned. Beyond its edge the grid goes on as it ends, so that a point that left
    the image gets a place outside the image. NaN stays NaN.
    """
    height, width = grid.shape[1:3]
    pixel = 2 / min(height, width)
    outermost = points.new_tensor([width - 1, height - 1]) / min(height, width)

    def badness(found: Tensor, error: Tensor) -> Tensor:
        """A miss counts; between places that do not miss, how far outside of all pixel centres they are."""
        return 1e3 * (error / pixel - 1e-3).clamp_min(0) + (found.abs() - outermost).clamp_min(0).sum(-1)

    stride = max(1, min(height, width) // 24)
    nodes = identity_grid((height, width), grid.device)[stride // 2 :: stride, stride // 2 :: stride].flatten(0, 1)
    starts = min(_STARTS, len(nodes))
    first = _lengths(points, *_newton_steps(grid, nodes)).topk(starts, largest=False).indices
    found, error = _newton(grid, nodes[first].flatten(1, 2), points.repeat_interleave(starts, 1))
    bad, best = badness(found, error).unflatten(1, (-1, starts)).min(2, keepdim=True)
    found = found.unflatten(1, (-1, starts)).gather(2, best.unsqueeze(-1).expand(-1, -1, -1, 2)).squeeze(2)

    if min(height, width) > 1 and points.shape[1]:
        cells = (identity_grid((height, width), grid.device)[:-1, :-1] + pixel / 2).flatten(0, 1)
        steps = _newton_steps(grid, cells)
        worst = bad.squeeze(2).nan_to_num(0).topk(min(_SEARCHED, points.shape[1])).indices  # [b, searched]
        pair = worst.unsqueeze(-1).expand(-1, -1, 2)
        missed = points.gather(1, pair)
        # One at a time: all cells of all grids are many.
        nearest = torch.cat([_lengths(point, *steps).argmin(-1) for point in missed.split(1, 1)], 1)
        again, error = _newton(grid, cells[nearest], missed)
        better = (badness(again, error) < bad.squeeze(2).gather(1, worst)).unsqueeze(-1)
        found = found.scatter(1, pair, torch.where(better, again, found.gather(1, pair)))
    return torch.where(points.isnan().any(-1, keepdim=True), torch.nan, found)


def _newton_steps(
    grid: Float[Tensor, "b h w 2"], starts: Float[Tensor, "m 2"]
) -> tuple[Float[Tensor, "b 2 m 2"], Float[Tensor, "b 2 m"]]:
    """Newton's first step from each of the starts towards a point p, along x and along y, is rows · p - offsets."""
    reached, by_x, by_y = _source(grid, starts.expand(len(grid), -1, -1))
    rows = torch.stack(_inverse(by_x, by_y), 1)
    return rows, (rows * reached.unsqueeze(1)).sum(-1)


def _lengths(
    points: Float[Tensor, "b n 2"], rows: Float[Tensor, "b 2 m 2"], offsets: Float[Tensor, "b 2 m"]
) -> Float[Tensor, "b n m"]:
    """How long that step is, by the longer of its two sides, for each of the points and each of the starts."""
    return (points.unsqueeze(1) @ rows.mT).sub_(offsets.unsqueeze(2)).abs_().amax(1)


def _newton(
    grid: Float[Tensor, "b h w 2"], target: Float[Tensor, "b n 2"], points: Float[Tensor, "b n 2"]
) -> tuple[Float[Tensor, "b n 2"], Float[Tensor, "b n"]]:
    """Target points whose sources are nearest to `points`, from first guesses; and how far they miss."""
    here, by_x, by_y = _source(grid, target)
    off = here - points
    error = off.norm(dim=-1, keepdim=True)
    radius = error.mul(2).clamp_min(0.25)
    for _ in range(_STEPS):
        change = torch.stack([(row * off).sum(-1) for row in _inverse(by_x, by_y)], -1)
        length = change.norm(dim=-1, keepdim=True)
        radius = torch.minimum(radius, length.clamp_min(1e-9))
        tried = target - change * (radius / length.clamp_min(1e-9))
        here, tried_by_x, tried_by_y = _source(grid, tried)
        tried_off = here - points
        tried_error = tried_off.norm(dim=-1, keepdim=True)
        better = tried_error < error
        radius = torch.where(better, radius * 4, radius / 4)
        target, off, error, by_x, by_y = (
            torch.where(better, new, old)
            for new, old in (
                (tried, target),
                (tried_off, off),
                (tried_error, error),
                (tried_by_x, by_x),
                (tried_by_y, by_y),
            )
        )
    return target, error.squeeze(-1)

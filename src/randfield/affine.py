"""Fields become a matrix at every pixel; matrices move a grid (equation 1 and appendix A of the paper).

Coordinates: origin at the centre of the image, x right, y down, pixel centres as in `align_corners=False`. The shorter
side spans [-1, 1], so that one unit is the same length along x and y and a rotation is rigid on a 37×53 image too. On
a square image these are torch's own grid coordinates.

A target pixel (x, y) takes its colour from the source point

    (x_s, y_s) = theta(x, y) · (x, y, 1),         theta[*batch, H, W, 2, 3].

Everything here comes twice. `rotate`, `scale`, `shear`, `translate`, `compose` and `sampling_grid` build the matrices
as the appendix writes them: the readable reference. `move_*` carries x and y through one atom without building a
matrix; the transforms use these, and the tests hold them to the reference.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from randfield.fields import cached

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = [
    "compose",
    "determinants",
    "folding",
    "identity_grid",
    "move_rotate",
    "move_scale",
    "move_shear",
    "move_translate",
    "rotate",
    "sampling_grid",
    "scale",
    "shear",
    "translate",
]


# ------------------------------------------------------------------------------------------- the readable reference


def _theta(rows: list[list[Tensor | float]], like: Tensor) -> Tensor:
    entries = [e if isinstance(e, Tensor) else torch.full_like(like, e) for row in rows for e in row]
    return torch.stack(torch.broadcast_tensors(*entries), -1).unflatten(-1, (2, 3))


def rotate(g: Float[Tensor, "*batch h w"]) -> Float[Tensor, "*batch h w 2 3"]:
    """Rotate by pi·g: [[cos pi g, -sin pi g, 0], [sin pi g, cos pi g, 0]] at each pixel.

    >>> rotate(torch.full((37, 53), 0.5))[0, 0].round().abs()
    tensor([[0., 1., 0.],
            [1., 0., 0.]])
    """
    cos, sin = (math.pi * g).cos(), (math.pi * g).sin()
    return _theta([[cos, -sin, 0.0], [sin, cos, 0.0]], g)


def scale(gx: Float[Tensor, "*batch h w"], gy: Float[Tensor, "*batch h w"]) -> Float[Tensor, "*batch h w 2 3"]:
    """Scale by 1 + g: [[1 + gx, 0, 0], [0, 1 + gy, 0]] at each pixel.

    >>> scale(torch.full((37, 53), 0.5), torch.zeros(37, 53))[0, 0]
    tensor([[1.5000, 0.0000, 0.0000],
            [0.0000, 1.0000, 0.0000]])
    """
    return _theta([[1 + gx, 0.0, 0.0], [0.0, 1 + gy, 0.0]], gx)


def shear(gx: Float[Tensor, "*batch h w"], gy: Float[Tensor, "*batch h w"]) -> Float[Tensor, "*batch h w 2 3"]:
    """Shear by g: [[1, gx, 0], [gy, 1, 0]] at each pixel.

    >>> shear(torch.full((37, 53), 0.5), torch.zeros(37, 53))[0, 0]
    tensor([[1.0000, 0.5000, 0.0000],
            [0.0000, 1.0000, 0.0000]])
    """
    return _theta([[1.0, gx, 0.0], [gy, 1.0, 0.0]], gx)


def translate(gx: Float[Tensor, "*batch h w"], gy: Float[Tensor, "*batch h w"]) -> Float[Tensor, "*batch h w 2 3"]:
    """Translate by g: [[1, 0, gx], [0, 1, gy]] at each pixel.

    >>> translate(torch.full((37, 53), 0.5), torch.zeros(37, 53))[0, 0]
    tensor([[1.0000, 0.0000, 0.5000],
            [0.0000, 1.0000, 0.0000]])
    """
    return _theta([[1.0, 0.0, gx], [0.0, 1.0, gy]], gx)


def compose(*thetas: Float[Tensor, "*#batch h w 2 3"]) -> Float[Tensor, "*batch h w 2 3"]:
    """The product of the 3×3 matrices at each pixel, left to right: the last one acts on the target point first.

    >>> turn = rotate(torch.full((37, 53), 0.5))
    >>> move = translate(torch.ones(37, 53), torch.zeros(37, 53))
    >>> compose(turn, move)[0, 0, :, 2].round().abs()
    tensor([0., 1.])
    """
    if not thetas:
        raise ValueError("compose: expected at least one theta")
    product = thetas[0]
    for theta in thetas[1:]:
        # Sums of products, not `@`: a batch of a million 2×2 matrix products is slow, and autocast would round it.
        linear = (product[..., :2].unsqueeze(-1) * theta[..., :2].unsqueeze(-3)).sum(-2)
        offset = (product[..., :2] * theta[..., 2].unsqueeze(-2)).sum(-1) + product[..., 2]
        product = torch.cat([linear, offset.unsqueeze(-1)], -1)
    return product


def sampling_grid(theta: Float[Tensor, "*batch h w 2 3"]) -> Float[Tensor, "*batch h w 2"]:
    """The source point (x, y) of every target pixel: theta · (x, y, 1).

    >>> sampling_grid(rotate(torch.zeros(37, 53))).shape
    torch.Size([37, 53, 2])
    """
    target = identity_grid((theta.shape[-4], theta.shape[-3]), theta.device).to(theta.dtype)
    return (theta[..., :2] * target.unsqueeze(-2)).sum(-1) + theta[..., 2]


def identity_grid(size: tuple[int, int], device: torch.device | str = "cpu") -> Float[Tensor, "h w 2"]:
    """The grid that leaves an image alone: (x, y) of every pixel centre.

    >>> identity_grid((2, 4))[0]
    tensor([[-1.5000, -0.5000],
            [-0.5000, -0.5000],
            [ 0.5000, -0.5000],
            [ 1.5000, -0.5000]])
    """
    x, y = pixel_centres(size, torch.device(device))
    return torch.stack(torch.broadcast_tensors(x, y), -1)


@cached
def pixel_centres(size: tuple[int, int], device: torch.device) -> tuple[Tensor, Tensor]:
    """x of the columns, [W], and y of the rows, [H, 1]."""
    height, width = size
    x = (torch.arange(width, dtype=torch.float64) * 2 + 1 - width) / min(size)
    y = (torch.arange(height, dtype=torch.float64) * 2 + 1 - height) / min(size)
    return x.float().to(device), y.float().unsqueeze(-1).to(device)


# ------------------------------------------------------------------------------------------- the same without matrices


Out = tuple[Tensor | None, Tensor | None]
"""Where to write the moved x and y, if not to new tensors; these may be gx and gy themselves."""


def move_rotate(x: Tensor, y: Tensor, g: Tensor, *, out: Out = (None, None)) -> tuple[Tensor, Tensor]:
    """`rotate(g)` times (x, y, 1)."""
    angle = math.pi * g
    cos, sin = angle.cos(), angle.sin()
    return torch.mul(cos, x, out=out[0]).addcmul_(sin, y, value=-1), torch.mul(sin, x, out=out[1]).addcmul_(cos, y)


def move_scale(x: Tensor, y: Tensor, gx: Tensor, gy: Tensor, *, out: Out = (None, None)) -> tuple[Tensor, Tensor]:
    """`scale(gx, gy)` times (x, y, 1)."""
    return torch.addcmul(x, gx, x, out=out[0]), torch.addcmul(y, gy, y, out=out[1])


def move_shear(x: Tensor, y: Tensor, gx: Tensor, gy: Tensor, *, out: Out = (None, None)) -> tuple[Tensor, Tensor]:
    """`shear(gx, gy)` times (x, y, 1)."""
    return torch.addcmul(x, gx, y, out=out[0]), torch.addcmul(y, gy, x, out=out[1])


def move_translate(x: Tensor, y: Tensor, gx: Tensor, gy: Tensor, *, out: Out = (None, None)) -> tuple[Tensor, Tensor]:
    """`translate(gx, gy)` times (x, y, 1)."""
    return torch.add(x, gx, out=out[0]), torch.add(y, gy, out=out[1])


# ---------------------------------------------------------------------------------------------------------- topology


def folding(grid: Float[Tensor, "*batch h w 2"]) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch"]]:
    """How much of a grid folds over: the share of pixels with a Jacobian determinant <= 0, and the least determinant.

    The determinant of d(source)/d(target) is 1 for the identity, negative where the picture is turned inside out. It is
    taken at the four corners of every cell between pixels, and the least of the four counts: where all are positive,
    the bilinear map is one to one in that cell.

    >>> fraction, least = folding(identity_grid((37, 53)))
    >>> float(fraction), round(float(least), 4)
    (0.0, 1.0)
    """
    if min(grid.shape[-3:-1]) < 2:  # no cell, nothing to fold
        batch = grid.shape[:-3]
        return grid.new_zeros(batch), grid.new_ones(batch)
    determinant = determinants(grid)
    return (determinant <= 0).float().mean((-2, -1)), determinant.amin((-2, -1))


def determinants(grid: Float[Tensor, "*batch h w 2"]) -> Float[Tensor, "*batch h-1 w-1"]:
    """The least Jacobian determinant in each cell between pixels, see `folding`."""
    pixel = 2 / min(grid.shape[-3:-1])
    x, y = grid[..., 0] / pixel, grid[..., 1] / pixel
    x_along, y_along = x.diff(dim=-1), y.diff(dim=-1)  # one pixel to the right: [H, W-1]
    x_down, y_down = x.diff(dim=-2), y.diff(dim=-2)  # one pixel down: [H-1, W]
    corners = [
        x_along[..., rows, :] * y_down[..., columns] - y_along[..., rows, :] * x_down[..., columns]
        for rows in (slice(None, -1), slice(1, None))
        for columns in (slice(None, -1), slice(1, None))
    ]
    return torch.minimum(torch.minimum(corners[0], corners[1]), torch.minimum(corners[2], corners[3]))

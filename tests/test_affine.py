"""Matrices and grids against torchvision's global transforms, torch's grids and themselves; folds on known grids."""

import itertools
import math
from typing import Any

import pytest
import torch
from torchvision.transforms.v2 import functional as tvf

from randfield import sample_field
from randfield.affine import (
    compose,
    folding,
    identity_grid,
    move_rotate,
    move_scale,
    move_shear,
    move_translate,
    rotate,
    sampling_grid,
    scale,
    shear,
    translate,
)
from randfield.functional import warp

SIZES = [(37, 37), (37, 53), (53, 37)]
MOVES: dict[Any, Any] = {rotate: move_rotate, scale: move_scale, shear: move_shear, translate: move_translate}


def fields(theta, *batch, size=(37, 53), alpha=0.4):
    """As many fields as `theta` takes."""
    return sample_field(size, gamma=4.0, alpha=alpha, batch=(1 if theta is rotate else 2, *batch)).unbind(0)


def constant(theta, *values, size):
    return theta(*(torch.full(size, float(value)) for value in values))


# ------------------------------------------------------------------------------------- constant fields, known elsewhere

# theta maps the target to its source, torchvision's parameters say where the source goes: the inverse.
GLOBAL = [
    (rotate, (0.17,), {"angle": -0.17 * 180}),
    (rotate, (-0.5,), {"angle": 90.0}),
    (scale, (0.25, 0.25), {"scale": 1 / 1.25}),
    (scale, (-0.4, -0.4), {"scale": 1 / 0.6}),
    (shear, (0.3, 0.0), {"shear": [math.degrees(math.atan(0.3)), 0.0]}),
    (shear, (0.0, -0.2), {"shear": [0.0, math.degrees(math.atan(-0.2))]}),
    (translate, (5 * 2 / 37, -3 * 2 / 37), {"translate": [-5.0, 3.0]}),  # a unit is half of the shorter side, 37 pixels
    (translate, (2.5 * 2 / 37, 0.0), {"translate": [-2.5, 0.0]}),
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("theta", "g", "parameters"), GLOBAL)
def test_constant_field_is_torchvisions_affine(theta, g, parameters, size):
    image = torch.rand(3, *size)
    settings = {"angle": 0.0, "translate": [0.0, 0.0], "scale": 1.0, "shear": [0.0, 0.0]} | parameters
    expected = tvf.affine(image, **settings, interpolation=tvf.InterpolationMode.BILINEAR)
    moved = warp(image, sampling_grid(constant(theta, *g, size=size)), padding="zeros")
    assert (expected - image).abs().mean() > 0.05  # the transform is not the identity
    torch.testing.assert_close(moved, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("theta", "g"), [(rotate, (0.3,)), (scale, (0.3, -0.2)), (shear, (0.3, -0.2)), (translate, (0.3, -0.2))]
)
def test_constant_field_is_torchs_affine_grid(theta, g, size):
    """Also where x and y differ. Torch's units differ along x and y; S takes ours to torch's."""
    matrix = constant(theta, *g, size=size)[0, 0]
    per_side = torch.tensor([min(size) / size[1], min(size) / size[0]])
    linear = per_side.diag() @ matrix[:, :2] @ per_side.reciprocal().diag()
    in_torchs = torch.cat([linear, (per_side * matrix[:, 2]).unsqueeze(-1)], -1)
    expected = torch.nn.functional.affine_grid(in_torchs.unsqueeze(0), [1, 1, *size], align_corners=False)[0]
    grid = sampling_grid(constant(theta, *g, size=size))
    torch.testing.assert_close(grid * per_side, expected, atol=1e-5, rtol=0)
    image = torch.rand(3, *size)
    sampled = torch.nn.functional.grid_sample(image.unsqueeze(0), expected.unsqueeze(0), align_corners=False)[0]
    torch.testing.assert_close(warp(image, grid, padding="zeros"), sampled, atol=1e-4, rtol=0)


@pytest.mark.parametrize("size", SIZES)
def test_constant_rotation_is_rigid(size):
    """Neighbours stay one pixel apart and at right angles, whatever the shape of the image."""
    grid = sampling_grid(constant(rotate, 0.21, size=size)) * min(size) / 2
    along, down = grid.diff(dim=1)[:-1], grid.diff(dim=0)[:, :-1]
    torch.testing.assert_close(along.norm(dim=-1), torch.ones(size[0] - 1, size[1] - 1), atol=1e-4, rtol=0)
    torch.testing.assert_close(down.norm(dim=-1), torch.ones(size[0] - 1, size[1] - 1), atol=1e-4, rtol=0)
    assert (along * down).sum(-1).abs().max() < 1e-4


@pytest.mark.parametrize("turns", [0.5, 1.0, -0.5])
def test_quarter_and_half_turns_are_exact(turns):
    """y points down: pi/2 takes x to y, so what was at the right of the picture ends at its top."""
    image = torch.rand(3, 37, 37)
    turned = warp(image, sampling_grid(constant(rotate, turns, size=(37, 37))))
    torch.testing.assert_close(turned, torch.rot90(image, round(2 * turns), (-2, -1)), atol=1e-4, rtol=0)


# ----------------------------------------------------------------------------------------------------------- matrices


def test_matrices_are_those_of_the_appendix():
    g, h = torch.tensor([[0.25]]), torch.tensor([[-0.5]])
    half = math.sqrt(0.5)
    expected: dict[Any, Any] = {
        rotate: [[half, -half, 0], [half, half, 0]],
        scale: [[1.25, 0, 0], [0, 0.5, 0]],
        shear: [[1, 0.25, 0], [-0.5, 1, 0]],
        translate: [[1, 0, 0.25], [0, 1, -0.5]],
    }
    for theta, matrix in expected.items():
        got = theta(g) if theta is rotate else theta(g, h)
        torch.testing.assert_close(got[0, 0], torch.tensor(matrix, dtype=torch.float32))


@pytest.mark.parametrize("theta", MOVES)
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_moves_are_the_matrices(theta, batch):
    g = fields(theta, *batch)
    x, y = identity_grid((37, 53)).unbind(-1)
    moved = torch.stack(MOVES[theta](x, y, *g), -1)
    torch.testing.assert_close(moved, sampling_grid(theta(*g)), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("names", list(itertools.permutations(MOVES, 3))[::3])
def test_compose_is_the_product_of_3x3_matrices(names):
    thetas = [theta(*fields(theta, 2)) for theta in names]
    last_row = torch.tensor([0.0, 0.0, 1.0]).expand(2, 37, 53, 1, 3)
    product = torch.eye(3)
    for theta in thetas:
        product = product @ torch.cat([theta, last_row], -2)
    torch.testing.assert_close(compose(*thetas), product[..., :2, :], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(compose(thetas[0], compose(*thetas[1:])), compose(*thetas), atol=1e-5, rtol=1e-5)


def test_compose_acts_from_right_to_left():
    g, (gx, gy) = fields(rotate)[0], fields(translate)
    x, y = identity_grid((37, 53)).unbind(-1)
    moved = torch.stack(move_rotate(*move_translate(x, y, gx, gy), g), -1)
    torch.testing.assert_close(sampling_grid(compose(rotate(g), translate(gx, gy))), moved, atol=1e-5, rtol=1e-5)


def test_compose_broadcasts_and_keeps_one_alone():
    one, many = translate(*fields(translate)), shear(*fields(shear, 3))
    assert compose(one) is one
    assert compose(one, many).shape == (3, 37, 53, 2, 3)
    torch.testing.assert_close(compose(one, many)[1], compose(one, many[1]))
    with pytest.raises(ValueError, match="at least one theta"):
        compose()


@pytest.mark.parametrize("size", [*SIZES, (1, 1), (1, 8), (8, 1)])
def test_fields_of_zero_leave_the_grid(size):
    for theta in MOVES:
        grid = sampling_grid(constant(theta, *([0] if theta is rotate else [0, 0]), size=size))
        torch.testing.assert_close(grid, identity_grid(size), atol=1e-6, rtol=0)


@pytest.mark.parametrize("size", [(37, 37), (1, 1), (64, 64)])
def test_square_identity_grid_is_torchs(size):
    expected = torch.nn.functional.affine_grid(torch.eye(2, 3).unsqueeze(0), [1, 1, *size], align_corners=False)[0]
    torch.testing.assert_close(identity_grid(size), expected, atol=1e-6, rtol=0)


def test_shorter_side_spans_two_units():
    x, y = identity_grid((37, 53)).unbind(-1)
    pixel = 2 / 37
    assert y.amax() == pytest.approx(1 - pixel / 2)
    assert x.amax() == pytest.approx(53 / 37 - pixel / 2)
    torch.testing.assert_close(x.diff(dim=1), torch.full((37, 52), pixel), atol=1e-6, rtol=0)
    torch.testing.assert_close(y.diff(dim=0), torch.full((36, 53), pixel), atol=1e-6, rtol=0)


# ---------------------------------------------------------------------------------------------------------- topology


@pytest.mark.parametrize("size", [*SIZES, (2, 2)])
@pytest.mark.parametrize(
    ("matrix", "fraction", "determinant"),
    [
        ([[1, 0], [0, 1]], 0, 1),
        ([[1.5, 0], [0, 0.5]], 0, 0.75),
        ([[0.8, -0.6], [0.6, 0.8]], 0, 1),  # a rotation
        ([[-1, 0], [0, 1]], 1, -1),  # a mirror
        ([[-1, 0], [0, -1]], 0, 1),  # half a turn
        ([[0, 0], [0, 1]], 1, 0),  # all onto one line
        ([[1, 0.7], [0.5, 1]], 0, 0.65),
    ],
)
def test_determinant_of_linear_grids(matrix, fraction, determinant, size):
    share, least = folding(identity_grid(size) @ torch.tensor(matrix, dtype=torch.float32).T)
    assert share == fraction
    torch.testing.assert_close(least, torch.tensor(float(determinant)), atol=1e-4, rtol=0)


def test_crease_is_counted_where_it_is():
    """|x - c| turns the picture inside out left of c."""
    grid = identity_grid((20, 40)).clone()
    left = (grid[0, :, 0] < -0.5).sum()
    grid[..., 0] = (grid[..., 0] + 0.5).abs()
    share, least = folding(grid)
    assert abs(float(share) - float(left) / 40) <= 1 / 39
    torch.testing.assert_close(least, torch.tensor(-1.0), atol=1e-4, rtol=0)


def test_one_moved_pixel_folds_its_own_cells_only():
    """A pixel pushed past its neighbour: no cell but the four around it, and the two around the neighbour, folds."""
    grid = identity_grid((9, 9)).clone()
    grid[4, 4, 0] += 1.5 * 2 / 9
    share, least = folding(grid)
    assert 0 < share <= 6 / 64
    assert least < 0


def test_folding_of_a_batch_and_of_lines():
    grids = torch.stack(
        [identity_grid((5, 6)), -identity_grid((5, 6)), identity_grid((5, 6)) * torch.tensor([-1.0, 1.0])]
    )
    share, least = folding(grids.unsqueeze(0))
    assert share.tolist() == [[0, 0, 1]]
    torch.testing.assert_close(least, torch.tensor([[1.0, 1.0, -1.0]]), atol=1e-4, rtol=0)
    for size in [(1, 1), (1, 9), (9, 1)]:
        share, least = folding(identity_grid(size))
        assert (float(share), float(least)) == (0, 1)
    share, least = folding(identity_grid((5, 6)).expand(0, 5, 6, 2))
    assert share.shape == least.shape == (0,)

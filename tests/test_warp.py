"""Pulling images through grids, against torch's own sampling; inverting grids at points."""

import math

import pytest
import torch
import torch.nn.functional as F

from randfield import LocalAffine, LocalRotate, LocalScale, LocalShear, LocalTranslate, functional
from randfield.affine import identity_grid
from randfield.warp import _clamp_to_centres, compute_dtype, invert, pull

pytestmark = pytest.mark.usefixtures("either_way")

SIZES = [(37, 37), (37, 53), (53, 37), (1, 1), (1, 9), (8, 2)]
DTYPES = [
    torch.uint8,
    torch.int8,
    torch.uint16,
    torch.int16,
    torch.uint32,
    torch.int32,
    torch.uint64,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.bool,
]


def scattered(size, *, n=2, reach=3.0):
    """Grids of random source points, up to `reach` image sizes away, in our units and in torch's."""
    torchs = (torch.rand(n, *size, 2) * 2 - 1) * reach
    return torchs / torch.tensor([min(size) / size[1], min(size) / size[0]]), torchs


def some_image(dtype, shape=(3, 37, 53)):
    if dtype.is_floating_point:
        return torch.rand(shape, dtype=torch.float64).to(dtype)
    if dtype == torch.bool:
        return torch.rand(shape) > 0.5
    top = min(torch.iinfo(dtype).max, 2**40)
    return torch.randint(0, top, shape, dtype=torch.int64).to(dtype)


# -------------------------------------------------------------------------------------------------------------- pull


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("padding", ["reflection", "border", "zeros"])
@pytest.mark.parametrize("interpolation", ["bilinear", "nearest"])
def test_sampling_is_torchs(interpolation, padding, size):
    image = torch.rand(2, 3, *size, dtype=torch.float64)
    ours, torchs = scattered(size)
    expected = F.grid_sample(image, torchs.double(), mode=interpolation, padding_mode=padding, align_corners=False)
    pulled = pull(image, ours, interpolation=interpolation, padding=padding)
    difference = (pulled - expected).abs()
    if interpolation == "nearest":  # points half-way between pixels may be rounded either way
        assert (difference > 0).double().mean() < 0.001
    else:  # float32 knows a point three sizes away to a pixel's 4e-7 · size; neighbours differ by up to one
        assert difference.max() < 2e-6 * max(size)


@pytest.mark.parametrize("padding", ["border", "zeros"])
def test_bicubic_is_torchs(padding):
    image = torch.rand(2, 3, 37, 53)
    ours, torchs = scattered((37, 53), reach=1.2)
    expected = F.grid_sample(image, torchs, mode="bicubic", padding_mode=padding, align_corners=False)
    torch.testing.assert_close(pull(image, ours, interpolation="bicubic", padding=padding), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "nearest"])
@pytest.mark.parametrize("reach", [0.99, 3.0, 1000.5])
def test_reflection_repeats_a_tiled_image(interpolation, reach):
    """An image and its mirror images, tiled, and sampled inside."""
    image = torch.rand(1, 1, 8, 8)
    tile = torch.cat([image, image.flip(-1)], -1)
    tile = torch.cat([tile, tile.flip(-2)], -2).repeat(1, 1, 3, 3)  # 48×48, the image itself at rows and columns 16:24
    grid = (torch.rand(1, 20, 20, 2) * 2 - 1) * reach
    turn = (grid / 4).round() * 4  # to the same place of the tiles
    expected = pull(tile, (grid - turn - 1) / 6, interpolation=interpolation, padding="border")
    pulled = pull(image, grid, interpolation=interpolation, padding="reflection")
    if interpolation == "bicubic":  # its four taps reach outside, where torch repeats the border
        inside = ((grid.abs() % 4 - 2).abs() > 1.25).all(-1).unsqueeze(1) & (((grid.abs() % 4) - 2).abs() <= 2).all(-1)
        pulled, expected = pulled[inside], expected[inside]
    atol = 8 * 4 * torch.finfo(torch.float32).eps * max(reach, 1)  # pixels of half-size 4, known to that many roundings
    if interpolation == "nearest":
        assert ((pulled - expected).abs() > 0).float().mean() < 0.01
    else:
        torch.testing.assert_close(pulled, expected, atol=10 * atol, rtol=0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "nearest"])
@pytest.mark.parametrize("padding", ["reflection", "zeros"])
def test_every_dtype_comes_back(dtype, interpolation, padding):
    """Against the same in double precision, rounded at the end."""
    image = some_image(dtype)
    ours, _ = scattered((37, 53), n=1, reach=1.1)
    pulled = pull(image.unsqueeze(0), ours, interpolation=interpolation, padding=padding)
    assert pulled.dtype == dtype
    exact = pull(image.double().unsqueeze(0), ours, interpolation=interpolation, padding=padding)
    if interpolation == "nearest":
        assert torch.equal(pulled.double(), exact)
        return
    if not dtype.is_floating_point and dtype != torch.bool:
        exact = exact.clamp(torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    if dtype == torch.bool:
        sure = (exact - 0.5).abs() > 1e-4
        assert torch.equal(pulled[sure], (exact > 0.5)[sure])
        return
    top = float(exact.abs().max())
    step = 0.5 if not dtype.is_floating_point else torch.finfo(dtype).eps * top
    accuracy = torch.finfo(compute_dtype(dtype)).eps * top * 53  # a pixel's place is known to eps · width
    assert (pulled.double() - exact).abs().max() <= step + accuracy


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "nearest"])
@pytest.mark.parametrize("padding", ["reflection", "border", "zeros"])
@pytest.mark.parametrize("size", [(37, 53), (224, 224), (1, 1), (1, 300)])
def test_identity_grid_is_the_identity(dtype, interpolation, padding, size):
    """To the bit with "nearest", and for types of eight bits."""
    image = some_image(dtype, (1, 2, *size))
    pulled = pull(image, identity_grid(size).unsqueeze(0), interpolation=interpolation, padding=padding)
    if interpolation == "nearest" or dtype in (torch.uint8, torch.bool):
        assert torch.equal(pulled, image)
        return
    top = float(image.double().abs().max())
    rounding = top * torch.finfo(dtype).eps if dtype.is_floating_point else 0.5
    place = 4 * torch.finfo(torch.float32).eps * max(size)  # in pixels, as a float32 grid knows it
    assert (pulled.double() - image.double()).abs().max() <= place * top + rounding


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_complex_numbers_are_refused(interpolation):
    """They would lose their imaginary part."""
    with pytest.raises(ValueError, match=r"expected real numbers, got torch.complex64"):
        pull(torch.zeros(1, 1, 4, 5, dtype=torch.complex64), identity_grid((4, 5))[None], interpolation=interpolation)


def test_bicubic_stays_in_the_range_of_integers():
    """A black and white checkerboard makes bicubic overshoot on both sides."""
    board = (torch.arange(16).unsqueeze(-1) // 2 + torch.arange(16) // 2) % 2
    grid = identity_grid((64, 64)).unsqueeze(0)
    overshoot = pull(board.float().reshape(1, 1, 16, 16), grid, interpolation="bicubic")
    assert overshoot.min() < -0.05
    assert overshoot.max() > 1.05
    for dtype in (torch.uint8, torch.uint16, torch.int16, torch.int32):
        top = torch.iinfo(dtype).max
        image = (board * top).to(dtype).reshape(1, 1, 16, 16)
        pulled = pull(image, grid, interpolation="bicubic").double()
        expected = (overshoot.double() * top).clamp(0 if dtype in (torch.uint8, torch.uint16) else -top - 1, top)
        assert (pulled - expected).abs().max() <= 0.5 + 1e-5 * top


def test_nearest_masks_keep_their_labels():
    labels = torch.tensor([0, 1, 7, 200, 2**53 + 1, -(2**62)])[torch.randint(0, 6, (1, 1, 37, 53))]
    ours, _ = scattered((37, 53), n=1, reach=1.5)
    assert set(pull(labels, ours, interpolation="nearest").unique().tolist()) <= set(labels.unique().tolist())


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "nearest"])
@pytest.mark.parametrize("padding", ["reflection", "border", "zeros"])
def test_nan_pixels_stay_local(interpolation, padding):
    image = torch.rand(1, 2, 37, 53)
    image[0, 0, 10, 20] = math.nan
    grid = identity_grid((37, 53)) + 0.3 / 37
    nan = pull(image, grid.unsqueeze(0), interpolation=interpolation, padding=padding).isnan()
    assert nan[0, 0].any()
    assert not nan[0, 1].any()
    row, column = nan[0, 0].nonzero().T
    assert (row - 10).abs().max() <= 2
    assert (column - 20).abs().max() <= 2


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "nearest"])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.int64, torch.uint16])
def test_fill_is_what_lies_outside(interpolation, dtype):
    """An inner part of the picture does not notice the fill; far outside there is nothing else."""
    image = some_image(dtype, (1, 3, 37, 53))
    fill = torch.tensor([7.0, 0.0, 90.0], dtype=compute_dtype(dtype)).reshape(3, 1, 1)
    grid = identity_grid((37, 53)).unsqueeze(0) * 3
    pulled = pull(image, grid, interpolation=interpolation, padding="zeros", fill=fill)
    assert torch.equal(pulled[0, :, :10].double(), fill.double().expand(3, 10, 53))
    plain = pull(image, grid, interpolation=interpolation, padding="zeros")
    inside = pulled[..., 14:23, 20:33].double() - plain[..., 14:23, 20:33].double()
    assert inside.abs().max() <= (1e-4 if dtype == torch.float32 else 0)


def test_fill_means_nothing_under_other_paddings():
    image, (ours, _) = torch.rand(1, 3, 37, 53), scattered((37, 53), n=1)
    for padding in ("reflection", "border"):
        assert torch.equal(
            pull(image, ours, padding=padding, fill=torch.tensor(9.0)), pull(image, ours, padding=padding)
        )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("interpolation", ["bilinear", "nearest"])
def test_clamped_grid_is_border_padding(interpolation, size):
    """What MPS, which has no border padding, gets instead."""
    image = torch.rand(2, 3, *size)
    _, torchs = scattered(size)
    expected = F.grid_sample(image, torchs, mode=interpolation, padding_mode="border", align_corners=False)
    clamped = _clamp_to_centres(torchs, *size)
    sampled = F.grid_sample(image, clamped, mode=interpolation, padding_mode="zeros", align_corners=False)
    torch.testing.assert_close(sampled, expected, atol=2e-6 * max(size), rtol=0)


def test_grid_may_have_another_size_than_the_image():
    """The target's size is the grid's, the source's that of the image: twice the size is torch's interpolation."""
    image = torch.rand(1, 3, 37, 53)
    expected = F.interpolate(image, scale_factor=2, mode="bilinear", align_corners=False)
    torch.testing.assert_close(
        pull(image, identity_grid((74, 106)).unsqueeze(0), padding="border"), expected, atol=1e-4, rtol=0
    )


@pytest.mark.parametrize("padding", ["reflection", "border", "zeros"])
@pytest.mark.parametrize("fill", [None, 0.3])
def test_gradients_of_image_and_grid(padding, fill):
    """Against finite differences; the points stay clear of the lattice, where a bilinear image has its kinks."""
    image = torch.rand(1, 2, 5, 6, dtype=torch.float64, requires_grad=True)
    cell = torch.randint(-4, 10, (1, 4, 3, 2)) + 0.2 + 0.6 * torch.rand(1, 4, 3, 2, dtype=torch.float64)
    grid = ((2 * cell + 1 - torch.tensor([6, 5])) / 5).requires_grad_()
    fill = None if fill is None else torch.tensor(fill, dtype=torch.float64)

    def function(image, grid):
        return pull(image, grid, padding=padding, fill=fill)

    assert torch.autograd.gradcheck(function, (image, grid))


# ------------------------------------------------------------------------------------------------------------ invert


@pytest.mark.parametrize("size", SIZES[:3])
def test_invert_of_linear_grids_is_their_inverse(size):
    matrix = torch.tensor([[0.7, -0.4], [0.3, 1.2]])
    points = (torch.rand(1, 200, 2) * 2 - 1) * 0.5
    found = invert((identity_grid(size) @ matrix.T + 0.1).unsqueeze(0), points)
    inside = (found.abs() < torch.tensor([size[1], size[0]]) / min(size) - 1 / min(size)).all(-1)
    expected = (points - 0.1) @ matrix.inverse().T
    assert inside.float().mean() > 0.5
    torch.testing.assert_close(found[inside], expected[inside], atol=1e-4, rtol=0)


STRONGEST = {
    "rotate": lambda: LocalRotate(alpha=1 / 3, fold_free=True),
    "scale": lambda: LocalScale(alpha=1 / 3, fold_free=True),
    "shear": lambda: LocalShear(alpha=1 / 3, fold_free=True),
    "translate": lambda: LocalTranslate(alpha=1 / 3, fold_free=True),
    "rotate, translate": lambda: LocalAffine([LocalRotate(alpha=1 / 3), LocalTranslate(alpha=1 / 3)], fold_free=True),
    "all four": lambda: LocalAffine(
        [c(alpha=1 / 3) for c in (LocalRotate, LocalScale, LocalShear, LocalTranslate)], fold_free=True
    ),
}


@pytest.mark.parametrize("size", [(37, 53), (112, 112), (64, 200)])
@pytest.mark.parametrize("kind", STRONGEST)
def test_round_trip_of_points_on_fold_free_grids(kind, size):
    """Target points, taken to their source and back: within a tenth of a pixel, between the pixels too."""
    transform, draws = STRONGEST[kind](), 40
    grid = torch.stack([transform.grid(transform.make_params([torch.zeros(1, *size)]), size) for _ in range(draws)])
    share, _ = functional.folding(grid)
    assert not share.any()
    pixel = 2 / min(size)
    outermost = torch.tensor([size[1], size[0]]) / min(size) - pixel / 2
    per_side = torch.tensor([min(size) / size[1], min(size) / size[0]])

    def source(points):  # a grid is an image of source points: sample it
        planes, at = grid.permute(0, 3, 1, 2), (points * per_side).unsqueeze(1)
        return F.grid_sample(planes, at, padding_mode="border", align_corners=False).squeeze(2).mT

    target = (torch.rand(draws, 400, 2) * 2 - 1) * outermost
    found = invert(grid, source(target))
    error = (found - target).norm(dim=-1) / pixel
    # A grid without folds may still overlap itself, as a spiral does. The other place is then as good as the one asked.
    other = (error > 2) & ((source(found) - source(target)).norm(dim=-1) / pixel < 1e-3)
    assert other.float().mean() < 0.001
    assert error[~other].max() < 0.1


@pytest.mark.parametrize("size", [(37, 53), (8, 8), (1, 1), (1, 5)])
def test_identity_keeps_points_wherever_they_are(size):
    """Also those far outside: boxes and keypoints of a crop often are."""
    points = torch.tensor([[[0.0, 0.0], [0.3, -0.2], [1.5, 1.2], [-3.0, 2.0], [20.0, 0.0], [-50.0, 70.0]]])
    found = invert(identity_grid(size).unsqueeze(0), points)
    torch.testing.assert_close(found, points, atol=0.02 / min(size), rtol=1e-5)


def test_on_folds_one_of_the_preimages_is_found():
    """|x| shows the right half twice."""
    grid = identity_grid((32, 32)).clone()
    grid[..., 0] = grid[..., 0].abs()
    points = 0.05 + 0.9 * torch.rand(1, 50, 2)
    found = invert(grid.unsqueeze(0), points)
    torch.testing.assert_close(found.abs(), points, atol=0.1 * 2 / 32, rtol=0)

"""One grid for every type: images, videos, masks, PIL images, points and boxes must agree about where things go."""

import math
from typing import Any

import PIL.Image
import pytest
import torch
from torchvision import tv_tensors
from torchvision.transforms.v2 import functional as tvf

from randfield import LocalAffine, LocalRotate, LocalScale, LocalShear, LocalTranslate, LocalWarp, sample_field
from randfield.functional import folding, identity_grid, sampling_grid, shift_hsv, translate, warp

SIZE = (37, 53)
PIL_MODES = ["L", "LA", "RGB", "RGBA", "CMYK", "P", "1", "I;16", "I", "F"]
FORMATS = ["XYXY", "XYWH", "CXCYWH"]
ROTATED = ["XYWHR", "CXCYWHR", "XYXYXYXY"]


@pytest.fixture
def grid():
    """A smooth deformation that also shows what lies outside."""
    return sampling_grid(translate(*sample_field(SIZE, gamma=8.0, alpha=0.2, batch=(2,))))


def fold_free_grid(kind, size, seed):
    """The paper's strongest."""
    atoms: dict[str, type[LocalWarp]] = {
        "rotate": LocalRotate,
        "scale": LocalScale,
        "shear": LocalShear,
        "translate": LocalTranslate,
    }
    generator = torch.Generator().manual_seed(seed)
    transform: Any
    if kind == "composite":
        transform = LocalAffine([c(alpha=1 / 3) for c in atoms.values()], fold_free=True, generator=generator)
    else:
        transform = atoms[kind](alpha=1 / 3, fold_free=True, generator=generator)
    return transform.grid(transform.make_params([torch.zeros(1, *size)]), size)


def pil_image(mode, size=SIZE):
    channels = {"1": 1, "L": 1, "P": 1, "LA": 2, "RGB": 3, "RGBA": 4, "CMYK": 4}
    if mode in channels:
        pixels = torch.randint(0, 256, (*size, channels[mode]), dtype=torch.uint8)
        if mode == "1":
            return tvf.to_pil_image(pixels.permute(2, 0, 1)).point(lambda v: 255 * (v > 127), mode="1")
        if mode == "P":
            image = PIL.Image.new("P", size[::-1])
            image.putdata(pixels.flatten().tolist())
            image.putpalette(torch.randint(0, 256, (768,)).tolist())
            return image
        return tvf.to_pil_image(pixels.permute(2, 0, 1), mode=mode)
    image = PIL.Image.new(mode, size[::-1])
    top = {"I;16": 65535, "I": 2**31 - 1, "F": 1}[mode]
    image.putdata([value if mode == "F" else int(value * top) for value in torch.rand(math.prod(size)).tolist()])
    return image


# ------------------------------------------------------------------------------------------------------------- warp


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
@pytest.mark.parametrize("kind", [torch.Tensor, tv_tensors.Image, tv_tensors.Video])
def test_leading_dimensions_share_a_grid_or_have_their_own(kind, batch):
    image = torch.rand(2, 3, 4, 3, *SIZE)
    grid = sampling_grid(translate(*sample_field(SIZE, alpha=0.2, batch=(2, *batch))))
    inpt = image if kind is torch.Tensor else kind(image)
    warped = warp(inpt, grid)
    assert type(warped) is kind
    assert warped.shape == image.shape
    one = (1,) * len(batch)
    own = grid[one] if batch else grid
    torch.testing.assert_close(torch.Tensor(warped)[1, 1, 2], warp(image[1, 1, 2], own))


def test_tensor_of_two_dimensions_is_an_image(grid):
    image = torch.rand(SIZE)
    assert torch.equal(warp(image, grid), warp(image.unsqueeze(0), grid)[0])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.int64, torch.uint16, torch.int16, torch.float32])
@pytest.mark.parametrize("padding", ["reflection", "border", "zeros"])
def test_mask_is_the_image_sampled_nearest(dtype, padding, grid):
    """The same tensor as image and as mask gets the same deformation, and no label is invented."""
    labels = torch.randint(0, 2 if dtype == torch.bool else 9, (2, *SIZE)).to(dtype)
    mask = warp(tv_tensors.Mask(labels), grid, padding=padding, interpolation="bicubic")
    assert type(mask) is tv_tensors.Mask
    assert mask.dtype == dtype
    assert torch.equal(
        torch.Tensor(mask.double()), warp(labels, grid, padding=padding, interpolation="nearest").double()
    )
    assert set(mask.unique().tolist()) <= {*labels.unique().tolist(), 0}


@pytest.mark.parametrize("mode", PIL_MODES)
def test_pil_images_of_every_mode(mode, grid):
    """As their tensor, and bits and palette indices without anything in between."""
    image = pil_image(mode)
    assert image.mode == mode
    warped = warp(image, grid)
    assert (warped.mode, warped.size) == (mode, image.size)
    interpolation: Any = "nearest" if mode in ("1", "P") else "bilinear"
    expected = warp(tvf.pil_to_tensor(image), grid, interpolation=interpolation)
    assert torch.equal(tvf.pil_to_tensor(warped), expected)
    assert warped.getpalette() == image.getpalette()
    if mode not in ("I;16", "I", "F"):  # these see that float32 knows a pixel's place to its sixth digit
        assert warp(image, identity_grid(SIZE)).tobytes() == image.tobytes()


def test_unknown_types_are_refused(grid):
    with pytest.raises(TypeError, match="warp: cannot move str"):
        warp("a label", grid)
    with pytest.raises(TypeError, match="shift_hsv: cannot recolour Mask"):
        shift_hsv(tv_tensors.Mask(torch.zeros(3, *SIZE)), hue=torch.zeros(SIZE))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"padding": "symmetric"}, r"padding.*'reflection'.*'symmetric'"),
        ({"interpolation": "lanczos"}, r"'bilinear'.*'lanczos'"),
        ({"fill": [1, 2], "padding": "zeros"}, r"fill has 2 values, the image of shape \(3, 37, 53\)"),
    ],
)
def test_bad_options(options, message, grid):
    with pytest.raises(ValueError, match=message):
        warp(torch.rand(3, *SIZE), grid, **options)


def test_batch_that_does_not_fit():
    grid = identity_grid(SIZE).expand(2, *SIZE, 2)
    with pytest.raises(ValueError, match=r"batch of \(2,\), but the input has shape \(3, 37, 53\)"):
        warp(torch.rand(3, *SIZE), grid)
    with pytest.raises(ValueError, match=r"batch of \(2,\)"):
        shift_hsv(torch.rand(3, *SIZE), value=torch.zeros(2, *SIZE))


@pytest.mark.parametrize("shape", [(0, 3, 37, 53), (2, 0, 37, 53), (0, 37, 53)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_empty_images(shape, dtype, grid):
    assert warp(torch.zeros(shape, dtype=dtype), grid).shape == shape


@pytest.mark.parametrize("fill", [0.5, [0.1, 0.5, 0.9], (0.5,)])
@pytest.mark.parametrize("kind", [tv_tensors.Image, tv_tensors.Video])
def test_fill_for_each_channel(fill, kind):
    grid = identity_grid(SIZE) + 5  # everything is outside
    image = torch.rand(4, 3, *SIZE)
    expected = torch.tensor(fill).reshape(-1, 1, 1).expand(4, 3, *SIZE)
    torch.testing.assert_close(
        torch.Tensor(warp(kind(image), grid, padding="zeros", fill=fill)), expected, atol=1e-6, rtol=0
    )


# ------------------------------------------------------------------------------------------------------------ points


@pytest.mark.parametrize("kind", ["rotate", "scale", "shear", "translate", "composite"])
def test_points_go_where_one_hot_images_go(kind):
    """A keypoint drawn as one bright pixel, and the keypoint: no bias, which half a pixel of convention would be."""
    size = (64, 90)
    differences = []
    for seed in range(4):
        grid = fold_free_grid(kind, size, seed)
        y, x = torch.meshgrid(torch.arange(2, size[0], 6), torch.arange(2, size[1], 6), indexing="ij")
        points = torch.stack([x.flatten(), y.flatten()], -1).float()
        hot = torch.zeros(len(points), 1, *size)
        hot[torch.arange(len(points)), 0, y.flatten(), x.flatten()] = 1
        light = warp(hot, grid, padding="zeros").flatten(1)
        moved = torch.Tensor(warp(tv_tensors.KeyPoints(points, canvas_size=size), grid))
        pixels = torch.stack(torch.meshgrid(torch.arange(size[1]), torch.arange(size[0]), indexing="xy"), -1).flatten(
            0, 1
        )
        away = (moved.unsqueeze(1) - pixels).norm(dim=-1)
        bright = light.amax(1) > 0.3  # else it fell between the pixels, or out of the image
        assert bright.sum() > 20
        assert torch.where(light > 0, away, math.inf).amin(1)[bright].max() <= 1
        centre = light @ pixels.float() / light.sum(1, keepdim=True)
        spread = (light * (pixels - centre.unsqueeze(1)).square().sum(-1)).sum(1) / light.sum(1)
        differences.append((moved - centre)[bright & (spread < 1)])
    difference = torch.cat(differences)
    error = difference.std(0) / math.sqrt(len(difference))
    assert 4 * error.max() < 0.2
    assert (difference.mean(0).abs() < 4 * error + 0.03).all()  # what curvature moves the centre of light


def test_points_by_torchvisions_conventions():
    """Pixel centres are whole numbers, as in torchvision's flips: a mirror is one."""
    points = tv_tensors.KeyPoints(torch.rand(20, 2) * torch.tensor([52.0, 36.0]), canvas_size=SIZE)
    mirror = identity_grid(SIZE) * torch.tensor([-1.0, 1.0])
    torch.testing.assert_close(warp(points, mirror), tvf.horizontal_flip(points), atol=1e-3, rtol=0)
    boxes = tv_tensors.BoundingBoxes([[3.0, 4.0, 20.5, 30.0]], format="XYXY", canvas_size=SIZE)
    torch.testing.assert_close(warp(boxes, mirror), tvf.horizontal_flip(boxes), atol=0.6, rtol=0)


def test_points_leaving_the_image_are_outside():
    """Everything moves a quarter of the image to the left: source = target + a quarter."""
    grid = identity_grid(SIZE) + torch.tensor([0.25 * 2 * 53 / 37, 0.0])
    points = torch.tensor([[5.0, 10.0], [12.0, 30.0], [40.0, 3.0]])
    moved = torch.Tensor(warp(tv_tensors.KeyPoints(points, canvas_size=SIZE), grid))
    torch.testing.assert_close(moved, points - torch.tensor([0.25 * 53, 0.0]), atol=1e-3, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.float16])
@pytest.mark.parametrize("shape", [(2,), (0, 2), (5, 2), (4, 5, 2), (0, 5, 2)])
def test_points_of_any_shape_and_dtype(dtype, shape, grid):
    points = tv_tensors.KeyPoints((torch.rand(shape) * 36).to(dtype), canvas_size=SIZE)
    moved = warp(points, grid)
    assert type(moved) is tv_tensors.KeyPoints
    assert (moved.shape, moved.dtype, moved.canvas_size) == (points.shape, dtype, SIZE)
    if points.numel():
        each = warp(tv_tensors.KeyPoints(points.flatten(0, -2)[-1:], canvas_size=SIZE), grid)
        torch.testing.assert_close(
            torch.Tensor(moved.double()).reshape(-1, 2)[-1:], torch.Tensor(each.double()), atol=1e-2, rtol=0
        )


def test_points_with_a_grid_for_each_sample():
    grids = torch.stack([identity_grid(SIZE), identity_grid(SIZE) + 4 / 37])
    points = torch.rand(2, 7, 2) * 30 + 4
    moved = torch.Tensor(warp(tv_tensors.KeyPoints(points, canvas_size=SIZE), grids))
    torch.testing.assert_close(moved[0], points[0], atol=1e-3, rtol=0)
    torch.testing.assert_close(moved[1], points[1] - 2, atol=1e-3, rtol=0)


def test_missing_points_stay_missing(grid):
    """NaN marks an annotation that is not there; no place on the image is made up for it."""
    points = torch.tensor([[math.nan, math.nan], [10.0, 12.0], [3.0, math.nan]])
    moved = torch.Tensor(warp(tv_tensors.KeyPoints(points, canvas_size=SIZE), grid))
    assert moved.isnan().any(-1).tolist() == [True, False, True]


# ------------------------------------------------------------------------------------------------------------- boxes


def random_boxes(size, n):
    """Whole-numbered boxes, some of which touch the edges of the canvas or span it."""
    height, width = size
    x = torch.randint(0, width + 1, (n, 2)).sort(-1).values
    y = torch.randint(0, height + 1, (n, 2)).sort(-1).values
    boxes = torch.stack([x[:, 0], y[:, 0], x[:, 1], y[:, 1]], -1).float()
    boxes = boxes[(boxes[:, 2] - boxes[:, 0] >= 3) & (boxes[:, 3] - boxes[:, 1] >= 3)]
    edges = [
        [0, 0, width, height],
        [0, 5, 9, 15],
        [width - 7, 3, width, 20],
        [4, 0, 30, 6],
        [8, height - 5, 19, height],
    ]
    return torch.cat([boxes, torch.tensor(edges, dtype=torch.float32)])


def hull_of_masks(boxes, grid, size):
    """Boxes as filled rectangles, warped, and the boxes around what is left of these; NaN where that is nothing."""
    masks = torch.zeros(len(boxes), *size, dtype=torch.uint8)
    for mask, (x1, y1, x2, y2) in zip(masks, boxes.int().tolist(), strict=True):
        mask[y1:y2, x1:x2] = 1
    hulls = torch.full((len(boxes), 4), math.nan)
    for hull, mask in zip(hulls, warp(tv_tensors.Mask(masks), grid, padding="zeros"), strict=True):
        if mask.any():
            y, x = mask.nonzero().T
            hull[:] = torch.tensor([x.min(), y.min(), x.max() + 1, y.max() + 1])
    return hulls


def finer(grid, times):
    """The same deformation with so many pixels for each: between them a grid is bilinear."""
    size = (grid.shape[0], grid.shape[1])
    displacement = (grid - identity_grid(size)).permute(2, 0, 1).unsqueeze(0)
    displacement = torch.nn.functional.interpolate(
        displacement, scale_factor=times, mode="bilinear", align_corners=False
    )
    return identity_grid((times * size[0], times * size[1])) + displacement[0].permute(1, 2, 0)


@pytest.mark.parametrize("size", [SIZE, (120, 90)])
@pytest.mark.parametrize("kind", ["rotate", "scale", "shear", "translate", "composite"])
def test_boxes_are_the_hulls_of_their_masks(kind, size):
    """Within a pixel: all of the mask's pixels are in the box, and the box is no larger than the mask.

    A mask misses corners thinner than its pixels, so that the box is held to one of four times the size.
    """
    outward = torch.tensor([-1.0, -1.0, 1.0, 1.0])
    for seed in range(6):
        grid = fold_free_grid(kind, size, seed)
        boxes = random_boxes(size, 30)
        moved = torch.Tensor(warp(tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=size), grid))
        assert (moved >= 0).all()
        assert (moved <= torch.tensor([size[1], size[0]]).repeat(2)).all()
        coarse, fine = hull_of_masks(boxes, grid, size), hull_of_masks(boxes, finer(grid, 4), size) / 4
        assert (~coarse.isnan()).float().mean() > 0.5
        assert ((coarse - moved) * outward).nan_to_num(0).max() <= 1
        seen = ~coarse.isnan().any(-1)
        assert ((moved - fine) * outward)[seen].max() <= 1 + 1 / 4
        assert ((moved[:, 2:] - moved[:, :2])[~seen].amin(-1) <= 1).all()


@pytest.mark.parametrize("size", [(320, 80), (160, 240)])
@pytest.mark.parametrize("folds", [False, True])
def test_boxes_hold_all_that_shows_of_them(folds, size):
    """Also where a grid folds and shows a box twice, and where long edges bend between the points they are held by."""
    transform: Any = LocalScale(alpha=1.0, gamma=5.0) if folds else LocalRotate(alpha=1 / 3, fold_free=True)
    outward = torch.tensor([-1.0, -1.0, 1.0, 1.0])
    for seed in range(3):
        torch.manual_seed(seed)
        grid = transform.grid(transform.make_params([torch.zeros(1, *size)]), size)
        assert bool(folding(grid)[0]) is folds
        boxes = random_boxes(size, 12)
        for clamping in ("soft", None):
            inpt = tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=size, clamping_mode=clamping)
            beyond = (hull_of_masks(boxes, grid, size) - torch.Tensor(warp(inpt, grid))) * outward
            assert beyond.nan_to_num(0).max() <= 0.5 + 1e-3  # the centre of each pixel that shows it is in


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.float16])
@pytest.mark.parametrize("box_format", FORMATS)
def test_every_box_format(box_format, dtype, grid):
    xyxy = tv_tensors.BoundingBoxes(
        [[4.0, 6, 20, 30], [0, 0, 53, 37], [44, 2, 52, 12]], format="XYXY", canvas_size=SIZE
    )
    expected = warp(xyxy, grid)
    moved = warp(
        tv_tensors.wrap(
            tvf.convert_bounding_box_format(xyxy, new_format=box_format).to(dtype), like=xyxy, format=box_format
        ),
        grid,
    )
    assert type(moved) is tv_tensors.BoundingBoxes
    assert (moved.format, moved.canvas_size, moved.dtype) == (tv_tensors.BoundingBoxFormat[box_format], SIZE, dtype)
    back = tvf.convert_bounding_box_format(tv_tensors.wrap(moved.float(), like=moved), new_format="XYXY")
    # Centre and size of whole numbers are each off by a half, and by another before they were warped.
    torch.testing.assert_close(back, expected, atol=0.1 if dtype.is_floating_point else 2.0, rtol=0)


def test_boxes_around_what_leaves_the_canvas():
    """Everything moves 10 pixels to the left: one box is cut by the edge, one is gone."""
    grid = identity_grid(SIZE) + torch.tensor([10 * 2 / 37, 0.0])
    boxes = tv_tensors.BoundingBoxes([[4, 5, 30, 20], [1, 8, 7, 12], [30, 0, 53, 37]], format="XYXY", canvas_size=SIZE)
    moved = torch.Tensor(warp(tv_tensors.wrap(boxes.float(), like=boxes), grid))
    torch.testing.assert_close(moved[0], torch.tensor([0.0, 5, 20, 20]), atol=0.6, rtol=0)
    torch.testing.assert_close(moved[2], torch.tensor([20.0, 0, 43, 37]), atol=0.6, rtol=0)
    assert (moved[1, 2:] - moved[1, :2]).prod() == 0


def test_boxes_without_clamping_leave_the_canvas():
    grid = identity_grid(SIZE) + torch.tensor([10 * 2 / 37, 0.0])
    boxes = torch.tensor([[4.0, 5, 30, 20], [1, 8, 7, 12]])
    free = tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=SIZE, clamping_mode=None)
    torch.testing.assert_close(
        torch.Tensor(warp(free, grid)), boxes - torch.tensor([10.0, 0, 10, 0]), atol=1e-2, rtol=0
    )


@pytest.mark.parametrize("shape", [(4,), (0, 4), (3, 4)])
def test_boxes_of_any_shape(shape, grid):
    boxes = tv_tensors.BoundingBoxes(
        torch.tensor([4.0, 6.0, 20.0, 30.0]).expand(shape), format="XYXY", canvas_size=SIZE
    )
    assert warp(boxes, grid).shape == boxes.shape


@pytest.mark.parametrize("box_format", ROTATED)
def test_rotated_boxes_are_refused(box_format, grid):
    width = 8 if box_format == "XYXYXYXY" else 5
    boxes = tv_tensors.BoundingBoxes(torch.ones(2, width), format=box_format, canvas_size=SIZE)
    with pytest.raises(ValueError, match=rf"rotated boxes \({box_format}\).*XYXY.*KeyPoints"):
        warp(boxes, grid)


# ---------------------------------------------------------------------------------------------------------- shift_hsv


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.uint16, torch.int16, torch.int32, torch.float16, torch.bfloat16, torch.float64]
)
def test_colours_of_every_dtype(dtype):
    """As in double precision, rounded at the end."""
    top = 1 if dtype.is_floating_point else torch.iinfo(dtype).max
    image = (torch.rand(3, *SIZE, dtype=torch.float64) * top).to(dtype)
    fields = dict(zip(("hue", "saturation", "value"), sample_field(SIZE, alpha=0.3, batch=(3,)), strict=True))
    shifted = shift_hsv(image, **fields)
    assert shifted.dtype == dtype
    expected = shift_hsv(image.double() / top, **fields) * top
    step = 0.5 if not dtype.is_floating_point else torch.finfo(dtype).eps
    # float32 knows a dark colour's hue to 2^-24 of the channel's range over its chroma: nothing a value of 1 shows.
    assert (shifted.double() - expected).abs().max() <= step + top * 4e-6


@pytest.mark.parametrize("name", ["hue", "saturation", "value"])
def test_no_shift_gives_every_eight_bit_colour_back(name):
    """2^24 colours are too many; every level of two channels against 16 of the third will do."""
    levels = torch.arange(256, dtype=torch.uint8)
    image = torch.stack(torch.meshgrid(levels[::17], levels, levels, indexing="ij")).flatten(1, 2)
    assert torch.equal(shift_hsv(image, **{name: torch.zeros(image.shape[-2:])}), image)


@pytest.mark.parametrize("kind", [torch.Tensor, tv_tensors.Image, tv_tensors.Video])
def test_one_field_for_all_frames(kind):
    image = torch.rand(2, 4, 3, *SIZE)
    hue = sample_field(SIZE, alpha=0.3, batch=(2,))
    shifted = shift_hsv(image if kind is torch.Tensor else kind(image), hue=hue)
    assert type(shifted) is kind
    torch.testing.assert_close(torch.Tensor(shifted)[1, 3], shift_hsv(image[1, 3], hue=hue[1]))


def test_one_channel_has_a_value():
    """The same as that of three equal channels."""
    image, value = torch.rand(1, *SIZE), sample_field(SIZE, alpha=0.6)
    torch.testing.assert_close(
        shift_hsv(image, value=value).expand(3, -1, -1), shift_hsv(image.expand(3, -1, -1), value=value)
    )


@pytest.mark.parametrize("mode", ["RGB", "L", "I;16"])
def test_colours_of_pil_images(mode):
    image, value = pil_image(mode), sample_field(SIZE, alpha=0.3)
    shifted = shift_hsv(image, value=value)
    assert (shifted.mode, shifted.size) == (mode, image.size)
    assert torch.equal(tvf.pil_to_tensor(shifted), shift_hsv(tvf.pil_to_tensor(image), value=value))


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (torch.rand(4, *SIZE), r"expected 3 channels \(RGB\).*shape \(4, 37, 53\)"),
        (torch.rand(1, *SIZE), r"expected 3 channels \(RGB\).*shape \(1, 37, 53\)"),
        (torch.rand(SIZE), r"expected 3 channels \(RGB\).*shape \(37, 53\)"),
        (torch.rand(3, *SIZE) > 0.5, r"torch.bool"),
        (pil_image("RGBA"), r"mode RGB, got RGBA.*convert\('RGB'\)"),
        (pil_image("F"), r"mode RGB, got F"),
    ],
)
def test_colour_that_is_none(image, message):
    with pytest.raises(ValueError, match=message):
        shift_hsv(image, hue=torch.zeros(SIZE))


@pytest.mark.parametrize("channels", [1, 3])
def test_empty_colours(channels):
    assert shift_hsv(torch.zeros(0, channels, *SIZE), value=torch.zeros(SIZE)).shape == (0, channels, *SIZE)

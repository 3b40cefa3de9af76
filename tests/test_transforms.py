"""The classes: drawing once, applying purely to every type, size and dtype; replay, configs, workers, bad arguments."""

import copy
import functools
import io
import json
import math
import pickle
import re
import statistics
import subprocess
import sys
import textwrap
import time
from typing import Any

import PIL.Image
import pytest
import torch
from torch.utils.data import DataLoader, Dataset
from torchvision import tv_tensors
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as tvf

import randfield
from benchmarks.measure import peak_bytes
from randfield import (
    LocalAffine,
    LocalColorJitter,
    LocalHue,
    LocalRotate,
    LocalSaturation,
    LocalScale,
    LocalShear,
    LocalTranslate,
    LocalValue,
    LocalWarp,
    SimCLRViews,
    from_config,
    functional,
    matern,
    power_law,
    squared_exponential,
)
from randfield import transforms as transforms_module
from randfield.affine import identity_grid
from randfield.fields import draw

SIZE = (37, 53)
ATOMS = [LocalRotate, LocalScale, LocalShear, LocalTranslate]
COLOURS = [LocalHue, LocalSaturation, LocalValue, LocalColorJitter]
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
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def composite(*, alpha=(0, 1 / 3), gamma=(7, 10), **options):
    return LocalAffine([atom(alpha=alpha, gamma=gamma) for atom in ATOMS], **options)


def jitter(*, alpha=(0, 1 / 3), **options):
    return LocalColorJitter(hue=alpha, saturation=alpha, value=alpha, **options)


GEOMETRIC: list[Any] = [*ATOMS, composite]
ALL: list[Any] = [*GEOMETRIC, LocalHue, LocalSaturation, LocalValue, jitter]


def some_image(dtype=torch.uint8, shape=(3, *SIZE)):
    if dtype.is_floating_point:
        return torch.rand(shape, dtype=torch.float64).to(dtype)
    if dtype == torch.bool:
        return torch.rand(shape) > 0.5
    return torch.randint(0, min(torch.iinfo(dtype).max, 2**40), shape, dtype=torch.int64).to(dtype)


def smooth_image(size=SIZE, dtype=torch.float32):
    """With no grey in it, around which a hue is anything."""
    y, x = identity_grid(size).to(dtype).unbind(-1)[::-1]
    waves = [(2 * x + y).sin(), (x - 2 * y).cos(), (x * y).sin()]
    return torch.stack([level + 0.1 * wave for level, wave in zip((0.75, 0.5, 0.25), waves, strict=True)])


def drawn(transform, image):
    return transform.make_params([image])


def atoms_of(params):
    return params.get("atoms", [params])


def strengths(params):
    """alpha of every atom, [*batch, …] each."""
    return [torch.as_tensor(atom["alpha"]) for atom in atoms_of(params)]


def equal(a, b):
    """Whether two params are the same to the bit."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(equal, a, b))
    return torch.equal(torch.as_tensor(a), torch.as_tensor(b))


def boxes(n=3):
    return tv_tensors.BoundingBoxes(
        [[4, 6, 20, 30], [0, 0, 53, 37], [44, 2, 52, 12]][:n], format="XYXY", canvas_size=SIZE
    )


def keypoints(*shape):
    return tv_tensors.KeyPoints(torch.rand(*shape, 2) * torch.tensor([52.0, 36.0]), canvas_size=SIZE)


# ------------------------------------------------------------------------------------------------ types, dtypes, sizes


@pytest.mark.parametrize(
    ("make", "dtype"),
    [(make, dtype) for make in ALL for dtype in DTYPES if make in GEOMETRIC or dtype != torch.bool],  # no colours there
)
def test_every_dtype_comes_back(make, dtype):
    image = some_image(dtype)
    out = make(alpha=0.3)(image)
    assert (out.shape, out.dtype) == (image.shape, dtype)
    assert not torch.equal(out, image)


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize("per_sample", [False, True])
def test_every_small_size(make, per_sample):
    """From 1×1: neither a crash nor a NaN. A field of one pixel is a field."""
    transform = make(alpha=1.0, per_sample=per_sample)
    for size in [*((h, w) for h in range(1, 9) for w in range(1, 9)), (1, 300), (300, 1)]:
        image = torch.rand(2, 3, *size) if per_sample else some_image(torch.uint8, (2, 3, *size))
        out = transform(image)
        assert out.shape == image.shape
        assert out.isfinite().all()


@pytest.mark.parametrize("make", GEOMETRIC)
@pytest.mark.parametrize("size", [(1, 1), (1, 6), (2, 2), (3, 1)])
def test_masks_points_and_boxes_of_small_images(make, size):
    height, width = size
    sample = {
        "image": some_image(torch.uint8, (3, *size)),
        "mask": tv_tensors.Mask(torch.ones(2, *size, dtype=torch.int64)),
        "points": tv_tensors.KeyPoints(torch.zeros(2, 2), canvas_size=size),
        "boxes": tv_tensors.BoundingBoxes([[0.0, 0.0, width, height]], format="XYXY", canvas_size=size),
    }
    out = make(alpha=0.5)(sample)
    assert all(out[key].shape == value.shape for key, value in sample.items())
    assert out["points"].isfinite().all()
    assert out["boxes"].isfinite().all()


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize("shape", [(0, 3, 37, 53), (2, 0, 3, 37, 53), (3, 0, 53), (3, 37, 0)])
@pytest.mark.parametrize("per_sample", [False, True])
def test_empty_images(make, shape, per_sample):
    assert make(per_sample=per_sample)(torch.zeros(shape)).shape == shape


@pytest.mark.parametrize("make", GEOMETRIC)
@pytest.mark.parametrize("fold_free", [False, True])
def test_empty_batches_of_everything(make, fold_free):
    out = make(per_sample=True, fold_free=fold_free)(
        [torch.zeros(0, 3, *SIZE), tv_tensors.Mask(torch.zeros(0, *SIZE)), keypoints(0, 4)]
    )
    assert [tuple(o.shape) for o in out] == [(0, 3, *SIZE), (0, *SIZE), (0, 4, 2)]


@pytest.mark.parametrize("make", GEOMETRIC)
def test_no_points_and_no_boxes(make):
    _, points, none = make()(
        some_image(), keypoints(0), tv_tensors.BoundingBoxes(torch.zeros(0, 4), format="XYWH", canvas_size=SIZE)
    )
    assert points.shape == (0, 2)
    assert none.shape == (0, 4)


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize("kind", ["image", "video", "pil", "tensor"])
def test_type_comes_back(make, kind):
    inpt = {
        "image": tv_tensors.Image(some_image()),
        "video": tv_tensors.Video(some_image(shape=(4, 3, *SIZE))),
        "pil": tvf.to_pil_image(some_image()),
        "tensor": some_image(),
    }[kind]
    out = make(alpha=0.3)(inpt)
    assert isinstance(out, PIL.Image.Image) if kind == "pil" else type(out) is type(inpt)


@pytest.mark.parametrize("make", ALL)
def test_all_types_get_the_same_field(make):
    """Whatever holds the colours, they end the same."""
    image, transform = some_image(), make(alpha=0.3)
    params = drawn(transform, image)
    expected = transform.transform(image, params)
    for inpt in (tv_tensors.Image(image), tv_tensors.Video(image.unsqueeze(0)), image.expand(2, 5, 3, *SIZE)):
        assert (torch.Tensor(transform.transform(inpt, params).float()) == expected.float()).all()
    pil = transform.transform(tvf.to_pil_image(image), params)
    assert torch.equal(tvf.pil_to_tensor(pil), expected)


@pytest.mark.parametrize("make", ALL)
def test_nested_sample_moves_together_and_the_rest_passes(make):
    transform, image, video = make(alpha=0.2), some_image(), some_image(shape=(4, 3, *SIZE))
    labels = torch.tensor([3, 1, 4])
    sample: dict[str, Any] = {
        "name": "chelsea",
        "views": [tv_tensors.Image(image), (tv_tensors.Video(video), tvf.to_pil_image(image))],
        "target": {
            "mask": tv_tensors.Mask(image[:1]),
            "boxes": boxes(),
            "points": keypoints(5),
            "labels": labels,
            "none": None,
            "score": 0.5,
        },
    }
    torch.manual_seed(1)
    out = transform(sample)
    torch.manual_seed(1)
    params = transform.make_params([tv_tensors.Image(image)])
    assert out["name"] == "chelsea"
    assert out["target"]["labels"] is labels
    assert (out["target"]["none"], out["target"]["score"]) == (None, 0.5)
    first, (moving, pil) = out["views"]
    expected = transform.transform(image, params)
    assert torch.equal(torch.Tensor(first.float()), expected.float())
    assert torch.equal(tvf.pil_to_tensor(pil), expected)
    for frame, before in zip(moving, video, strict=True):
        assert torch.equal(torch.Tensor(frame.float()), transform.transform(before, params).float())
    for key in ("mask", "boxes", "points"):
        before = sample["target"][key]
        assert type(out["target"][key]) is type(before)
        after = transform.transform(before, params) if make in GEOMETRIC else before
        assert torch.equal(torch.Tensor(out["target"][key].float()), torch.Tensor(after.float()))


def test_several_arguments_and_a_pure_tensor_beside_an_image():
    """As everywhere in torchvision: beside an Image, a pure tensor is no image."""
    image, extra = tv_tensors.Image(some_image()), torch.rand(3, *SIZE)
    out, same, mask = LocalTranslate(alpha=0.3)(image, extra, tv_tensors.Mask(image[0]))
    assert same is extra
    assert not torch.equal(out, image)
    assert not torch.equal(mask, image[0])


@pytest.mark.parametrize("make", GEOMETRIC)
@pytest.mark.parametrize("padding", ["reflection", "border", "zeros"])
def test_the_same_tensor_as_image_and_as_mask(make, padding):
    labels = torch.randint(0, 9, SIZE, dtype=torch.uint8)
    image, mask = make(interpolation="nearest", padding=padding)(tv_tensors.Image(labels), tv_tensors.Mask(labels))
    assert torch.equal(torch.Tensor(image)[0], torch.Tensor(mask))


def test_without_inputs_to_transform():
    assert LocalTranslate()({"label": 3, "name": "x"}) == {"label": 3, "name": "x"}
    assert LocalHue()(boxes(), "x")[1] == "x"


def test_parts_of_different_sizes_are_an_error():
    with pytest.raises(ValueError, match=r"LocalTranslate: .*one size.*\(37, 53\).*\(37, 54\)"):
        LocalTranslate()(tv_tensors.Image(some_image()), tv_tensors.Mask(torch.zeros(37, 54)))


@pytest.mark.parametrize("make", COLOURS)
@pytest.mark.parametrize("shape", [(4, 37, 53), (2, 37, 53), (1, 37, 53), (5, 1, 37, 53), (37, 53)])
def test_colour_of_something_else_names_the_transform_and_the_shape(make, shape):
    if make is LocalValue and shape[-3:-2] == (1,):
        assert make()(torch.rand(shape)).shape == shape
        return
    expected = "3 channels.*or 1 for value alone" if make is LocalValue else "3 channels"
    with pytest.raises(ValueError, match=rf"{make.__name__}: .*{expected}.*\({', '.join(map(str, shape))}\)"):
        make()(torch.rand(shape))


@pytest.mark.parametrize("make", GEOMETRIC)
def test_rotated_boxes_are_an_error(make):
    rotated = tv_tensors.BoundingBoxes([[4.0, 6.0, 20.0, 30.0, 45.0]], format="CXCYWHR", canvas_size=SIZE)
    with pytest.raises(ValueError, match=r"rotated boxes \(CXCYWHR\)"):
        make()(some_image(), rotated)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize("per_sample", [False, True])
def test_fields_are_drawn_where_the_input_lives(make, per_sample, device):
    image, transform = some_image(shape=(2, 3, *SIZE)).to(device), make(alpha=0.3, per_sample=per_sample)
    params = drawn(transform, image)
    assert all(atom["modes"].device.type == device for atom in atoms_of(params))
    assert transform(image).device.type == device
    at_home = drawn(make(alpha=0.3, per_sample=per_sample, generator=torch.Generator().manual_seed(1)), image)
    again = drawn(make(alpha=0.3, per_sample=per_sample, generator=torch.Generator().manual_seed(1)), image.cpu())
    for here, there in zip(atoms_of(at_home), atoms_of(again), strict=True):
        torch.testing.assert_close(here["modes"].cpu(), there["modes"])


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize("per_sample", [False, True])
def test_inputs_are_left_alone(make, per_sample, monkeypatch):
    """Of every type and dtype, also when a batch is done in parts, and whatever the way they lie in memory."""
    monkeypatch.setattr(transforms_module, "_PIXELS", 2 * math.prod(SIZE))
    rows = torch.rand(3, *SIZE, 3).movedim(-1, 1)
    inputs = [
        *(some_image(dtype, (5, 3, *SIZE)) for dtype in DTYPES if make in GEOMETRIC or dtype != torch.bool),
        rows,
        rows[:1].expand(3, -1, -1, -1),
        torch.rand(3, 3, *reversed(SIZE)).mT,
        tv_tensors.Image(some_image(shape=(3, 3, *SIZE))),
        tv_tensors.Video(some_image(shape=(3, 2, 3, *SIZE))),
        tv_tensors.Mask(some_image(torch.int64, (3, *SIZE))),
        keypoints(3, 4),
        boxes(3),
    ]
    transform = make(alpha=0.3, per_sample=per_sample)
    for inpt in inputs:
        before = inpt.clone()
        out = transform(inpt)
        assert torch.equal(inpt, before)
        assert out.shape == inpt.shape
    photo = tvf.to_pil_image(some_image())
    before = photo.tobytes()
    transform(photo)
    assert photo.tobytes() == before


@pytest.mark.parametrize("make", [LocalTranslate, LocalHue])
@pytest.mark.parametrize("shape", [(), (5,)])
def test_a_tensor_that_is_no_image_is_an_error(make, shape):
    """torchvision takes the first tensor for an image where there is none: labels beside boxes alone, say."""
    with pytest.raises(ValueError, match=rf"{make.__name__}: expected an image .*of shape {re.escape(str(shape))}"):
        make()(boxes(), torch.zeros(shape))


# ---------------------------------------------------------------------------------------------------------- strength


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize("dtype", DTYPES)
def test_zero_strength_is_the_identity(make, dtype):
    for inpt in (some_image(dtype), tv_tensors.Image(some_image(dtype, (2, 3, *SIZE)))):
        assert torch.equal(make(alpha=0)(inpt), inpt)


@pytest.mark.parametrize("make", GEOMETRIC)
def test_zero_strength_leaves_points_boxes_and_pil(make):
    for inpt in (boxes(), keypoints(5), tv_tensors.Mask(torch.randint(0, 9, SIZE))):
        assert torch.equal(make(alpha=0.0)(inpt), inpt)
    image = tvf.to_pil_image(some_image())
    assert make(alpha=0.0)(image).tobytes() == image.tobytes()


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_what_is_passed_over_in_a_batch_stays_to_the_bit(make, interpolation):
    """Eight bits; the sample goes all the way, with a strength of zero."""
    options = {"interpolation": interpolation, "padding": "zeros"} if make in GEOMETRIC else {}
    image = some_image(shape=(5, 3, *SIZE))
    assert torch.equal(make(p=0.0, per_sample=True, **options)(image), image)


@pytest.mark.parametrize("make", [LocalRotate, composite])
def test_points_passed_over_in_a_batch_stay(make):
    """Also those far outside."""
    points = torch.tensor([[[5.0, 6.0], [-200.0, 30.0], [52.0, 36.0], [1000.0, -1000.0]]]).expand(2, -1, -1)
    _, moved = make(p=0.0, per_sample=True)(torch.rand(2, 3, *SIZE), tv_tensors.KeyPoints(points, canvas_size=SIZE))
    torch.testing.assert_close(torch.Tensor(moved), points, atol=0.01, rtol=1e-5)


@pytest.mark.parametrize("make", ATOMS)
@pytest.mark.parametrize("alpha", [0.3, 1 / 3, 1.0])
@pytest.mark.parametrize("per_sample", [False, True])
def test_fields_reach_alpha_exactly_and_never_beyond(make, alpha, per_sample):
    transform = make(alpha=alpha, per_sample=per_sample)
    image = torch.zeros(50, 1, *SIZE)
    for _ in range(1 if per_sample else 50):
        g = transform.fields(drawn(transform, image), SIZE)
        assert torch.equal(g.abs().amax((-2, -1)), torch.full(g.shape[:-2], alpha))


@pytest.mark.parametrize("bound", ["peak", "clip"])
@pytest.mark.parametrize("size", [(74, 106), (200, 200), (9, 9)])
def test_fields_stay_within_alpha_at_other_sizes(bound, size):
    transform = LocalTranslate(alpha=0.3, bound=bound, gamma=3.0)
    g = transform.fields(drawn(transform, torch.zeros(1, *SIZE)), size)
    assert g.abs().max() <= torch.tensor(0.3)


def test_without_a_bound_alpha_is_the_standard_deviation():
    transform = LocalTranslate(alpha=0.3, bound=None, gamma=5.0, per_sample=True)
    g = transform.fields(drawn(transform, torch.zeros(4000, 1, 16, 16)), (16, 16))[..., 5, 7].flatten()
    error = math.sqrt(2 / g.numel())
    assert 4 * error < 0.1
    assert abs(g.var() / 0.3**2 - 1) < 4 * error


@pytest.mark.parametrize("make", GEOMETRIC)
def test_displacement_does_not_depend_on_the_size(make):
    """In units, at 64² and at 512²; alpha is fixed, so that only the fields vary."""

    def displacement(size):
        transform = make(alpha=0.2, gamma=8.0, per_sample=True)
        params = drawn(transform, torch.zeros(200 if size == 64 else 40, 1, size, size))
        grid = transform.grid(params, (64, 64))  # quicker, and the same field
        return (grid - identity_grid((64, 64))).norm(dim=-1).mean((-2, -1))

    small, large = displacement(64), displacement(512)
    error = math.hypot(small.std() / math.sqrt(len(small)), large.std() / math.sqrt(len(large)))
    assert 4 * error < 0.25 * small.mean()
    assert abs(small.mean() - large.mean()) < 4 * error


@pytest.mark.parametrize("make", GEOMETRIC)
def test_defaults_do_something(make):
    """More than a pixel on average, over draws at the paper's settings."""
    transform = make(per_sample=True)
    grid = transform.grid(drawn(transform, torch.zeros(50, 1, *SIZE)), SIZE)
    assert (grid - identity_grid(SIZE)).norm(dim=-1).mean() > 2 / 37


# ---------------------------------------------------------------------------------------------------------- truncation


def shortened(modes, waves):
    """The first waves of each axis: cosines 1 … K, then sines."""
    for dim, n in ((-2, waves[0]), (-1, waves[1])):
        most = (modes.shape[dim] - 1) // 2
        index = torch.cat([torch.arange(n + 1), torch.arange(most + 1, most + n + 1)])
        modes = modes.index_select(dim, index)
    return modes


def full_and_kept(transform, image, gamma, count):
    """Params of one draw with every wave, and with those the transform keeps."""
    params = drawn(transform, image)
    waves = tuple((n - 1) // 2 for n in params["modes"].shape[-2:])
    size = tuple(image.shape[-2:])
    modes = draw(size, power_law(gamma), batch=(count,))
    return params | {"modes": modes}, params | {"modes": shortened(modes, waves)}


@pytest.mark.parametrize("size", [(37, 53), (224, 224)])
@pytest.mark.parametrize("gamma", [3.0, 5.0, 7.0, 10.0])
@pytest.mark.parametrize("make", ATOMS)
def test_waves_left_out_move_less_than_a_twentieth_of_a_pixel(make, gamma, size):
    """Root mean square over draws and pixels, at the strongest alpha."""
    transform, image = make(alpha=1 / 3, gamma=gamma), torch.zeros(1, *size)
    square = []
    for _ in range(10):
        full, kept = full_and_kept(transform, image, gamma, make.field_count)
        moved = (transform.grid(full, size) - transform.grid(kept, size)) * min(size) / 2
        square.append(moved.square().sum(-1).mean())
    assert torch.stack(square).mean().sqrt() < 0.05


@pytest.mark.parametrize("gamma", [5.0, 7.0, 10.0])
@pytest.mark.parametrize("make", [LocalHue, LocalSaturation, LocalValue])
def test_waves_left_out_change_less_than_a_quarter_of_a_grey_level(make, gamma):
    transform, image = make(alpha=1 / 3, gamma=gamma), torch.rand(3, 128, 128)
    square = []
    for _ in range(10):
        full, kept = full_and_kept(transform, image, gamma, 1)
        square.append((255 * (transform.transform(image, full) - transform.transform(image, kept))).square().mean())
    assert torch.stack(square).mean().sqrt() < 0.25


# ------------------------------------------------------------------------------------------------------------ drawing


def uniform_over(values, low, high):
    """Within the range, with the mean of a uniform law to four standard errors, and near both of its ends."""
    error = (high - low) / math.sqrt(12 * len(values))
    assert values.min() >= low - 1e-6
    assert values.max() <= high + 1e-6
    assert abs(values.mean() - (low + high) / 2) < 4 * error
    assert values.max() - values.min() > 0.9 * (high - low)


@pytest.mark.parametrize("per_sample", [False, True])
def test_gamma_and_alpha_are_uniform_over_their_ranges(per_sample):
    transform, n = LocalTranslate(gamma=(3, 9), alpha=(0.1, 0.4), per_sample=per_sample), 400
    if per_sample:
        params = [drawn(transform, torch.zeros(n, 1, 9, 9))]
    else:
        params = [drawn(transform, torch.zeros(1, 9, 9)) for _ in range(n)]
    uniform_over(torch.cat([torch.as_tensor(p["gamma"]).flatten() for p in params]), 3, 9)
    uniform_over(torch.cat([torch.as_tensor(p["alpha"]).flatten() for p in params]), 0.1, 0.4)


def test_x_and_y_can_have_their_own_gamma_and_alpha():
    transform = LocalScale(gamma=((3, 4), (8, 9)), alpha=(0.1, (0.2, 0.4)), per_sample=True)
    params = drawn(transform, torch.zeros(300, 1, 32, 32))
    gamma, alpha = torch.as_tensor(params["gamma"]), torch.as_tensor(params["alpha"])
    uniform_over(gamma[:, 0], 3, 4)
    uniform_over(gamma[:, 1], 8, 9)
    assert torch.equal(alpha[:, 0], torch.full((300,), 0.1))
    uniform_over(alpha[:, 1], 0.2, 0.4)
    g = transform.fields(params, (32, 32))
    torch.testing.assert_close(g.abs().amax((-2, -1)), alpha)
    roughness = g.diff(dim=-1).square().mean((0, 2, 3)) / g.square().mean((0, 2, 3))
    assert roughness[0] > 2 * roughness[1]


def test_a_pair_is_a_range_and_both_fields_share_what_is_drawn():
    transform = LocalScale(alpha=(0.1, 0.4), per_sample=True)
    peak = transform.fields(drawn(transform, torch.zeros(20, 1, *SIZE)), SIZE).abs().amax((-2, -1))
    torch.testing.assert_close(peak[:, 0], peak[:, 1])
    assert peak[:, 0].unique().numel() == 20


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize("per_sample", [False, True])
def test_share_of_what_is_transformed_is_p(make, per_sample):
    """A binomial share varies by sqrt(p (1 - p) / n)."""
    n, p = 400, 0.3
    transform, image = make(p=p, alpha=0.5, per_sample=per_sample), torch.rand(3, 6, 6)
    if per_sample:
        batch = image.expand(n, 3, 6, 6)
        touched = (transform(batch) - batch).abs().flatten(1).amax(1) > 1e-3
    else:
        touched = torch.tensor([bool(drawn(transform, image)) for _ in range(n)])
    assert abs(touched.double().mean() - p) < 4 * math.sqrt(p * (1 - p) / n)


@pytest.mark.parametrize("make", ALL)
def test_one_draw_for_a_batch_or_one_for_each(make):
    image = some_image(shape=(4, 3, *SIZE))
    image[1:] = image[0]
    together, apart = make(alpha=0.3)(image), make(alpha=0.3, per_sample=True)(image)
    assert all(torch.equal(together[0], other) for other in together[1:])
    assert not any(torch.equal(apart[i], apart[j]) for i in range(4) for j in range(i))


@pytest.mark.parametrize("make", ALL)
def test_per_sample_never_splits_a_video(make):
    frames = some_image(shape=(1, 1, 3, *SIZE)).expand(2, 5, 3, *SIZE)
    out = torch.Tensor(make(alpha=0.3, per_sample=True)(tv_tensors.Video(frames)).float())
    assert all(torch.equal(out[i, 0], out[i, j]) for i in range(2) for j in range(1, 5))
    assert not torch.equal(out[0], out[1])


@pytest.mark.parametrize("make", ALL)
def test_per_sample_is_each_sample_by_itself(make):
    """Leading dimensions of any number, with parameters taken apart."""
    image, transform = torch.rand(2, 3, 3, *SIZE), make(alpha=(0.1, 0.3), per_sample=True)
    params = drawn(transform, image)

    def of(params, i, j):
        if "atoms" in params:
            return {
                "atoms": [of(atom, i, j) for atom in params["atoms"]],
                "order": torch.as_tensor(params["order"])[i, j].tolist(),
            }
        return {key: value if key == "size" else torch.as_tensor(value)[i, j] for key, value in params.items()}

    out = transform.transform(image, params)
    for i, j in [(0, 0), (1, 2)]:
        torch.testing.assert_close(out[i, j], transform.transform(image[i, j], of(params, i, j)), atol=1e-5, rtol=0)


def test_per_sample_moves_all_parts_of_a_sample():
    image = torch.rand(4, 3, *SIZE)
    sample = [image, tv_tensors.Mask(image[:, 0]), tv_tensors.Mask(image[:, :2]), keypoints(4, 6)]
    transform = LocalTranslate(alpha=0.2, per_sample=True, interpolation="nearest", fold_free=True)
    torch.manual_seed(1)
    out, mask, masks, points = transform([tv_tensors.Image(image), *sample[1:]])
    torch.manual_seed(1)
    params = drawn(transform, image)
    assert torch.equal(torch.Tensor(out)[:, 0], torch.Tensor(mask))
    assert torch.equal(torch.Tensor(out)[:, :2], torch.Tensor(masks))
    grid = transform.grid(params, SIZE)
    for i in range(4):
        alone = functional.warp(tv_tensors.KeyPoints(sample[3][i], canvas_size=SIZE), grid[i])
        torch.testing.assert_close(torch.Tensor(points)[i], torch.Tensor(alone), atol=1e-3, rtol=0)


def test_batch_of_images_with_a_box_each():
    image, each = torch.rand(3, 3, *SIZE), boxes(3)
    _, moved = LocalTranslate(alpha=0.2, per_sample=True)(tv_tensors.Image(image), each)
    assert moved.shape == (3, 4)
    with pytest.raises(ValueError, match=r"batch of \(3,\), but the input has shape \(2, 4\)"):
        LocalTranslate(alpha=0.2, per_sample=True)(tv_tensors.Image(image), boxes(2))


@pytest.mark.parametrize("make", ALL)
def test_generator_is_the_only_source_of_randomness(make):
    image, before = some_image(shape=(2, 3, *SIZE)), torch.get_rng_state()
    for per_sample in (False, True):
        once, again = (make(per_sample=per_sample, generator=torch.Generator().manual_seed(7))(image) for _ in range(2))
        assert torch.equal(once, again)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("make", ALL)
def test_calls_differ(make):
    image, transform = some_image(), make(alpha=0.3, generator=torch.Generator().manual_seed(7))
    assert not torch.equal(transform(image), transform(image))


# ---------------------------------------------------------------------------------------------------------- composite


@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize("per_sample", [False, True])
def test_alpha_of_n_atoms_is_divided_by_the_root_of_n(n, per_sample):
    atoms = [atom(alpha=0.3) for atom in ATOMS[:n]]
    transform = LocalAffine(atoms, per_sample=per_sample)
    params = drawn(transform, torch.zeros(3, 1, *SIZE))
    for alpha in strengths(params):
        torch.testing.assert_close(alpha.float(), torch.full_like(alpha.float(), 0.3 / math.sqrt(n)))
    for atom, its in zip(atoms, params["atoms"], strict=True):
        peak = atom.fields(its, SIZE).abs().amax((-2, -1))
        torch.testing.assert_close(peak, torch.full_like(peak, 0.3 / math.sqrt(n)))


def by_matrices(transform, params, size):
    """The readable reference: the product of the atoms' matrices."""
    theta: dict[Any, Any] = {
        LocalRotate: functional.rotate,
        LocalScale: functional.scale,
        LocalShear: functional.shear,
        LocalTranslate: functional.translate,
    }
    matrices = []
    for atom, its in zip(transform.transforms, params["atoms"], strict=True):
        matrices.append(theta[type(atom)](*atom.fields(its, size).unbind(-3)))
    return functional.sampling_grid(functional.compose(*(matrices[i] for i in params["order"])))


@pytest.mark.parametrize("order", ["given", "random"])
@pytest.mark.parametrize("size", [SIZE, (74, 106)])
def test_composite_is_the_product_of_matrices_resampled_once(order, size):
    transform, image = composite(alpha=0.3, order=order, padding="zeros"), torch.rand(3, *size)
    orders = set()
    for _ in range(5):
        params = drawn(transform, torch.zeros(1, *SIZE))
        orders.add(tuple(params["order"]))
        grid = by_matrices(transform, params, size)
        torch.testing.assert_close(transform.grid(params, size), grid, atol=1e-5, rtol=1e-5)
        expected = functional.warp(image, grid, padding="zeros")
        torch.testing.assert_close(transform.transform(image, params), expected, atol=1e-3, rtol=0)
    assert orders == {(0, 1, 2, 3)} if order == "given" else len(orders) > 1


@pytest.mark.parametrize("per_sample", [False, True])
def test_every_order_is_as_likely(per_sample):
    transform = LocalAffine(
        [LocalRotate(alpha=0.1), LocalScale(alpha=0.1), LocalShear(alpha=0.1)], per_sample=per_sample
    )
    n = 300
    if per_sample:
        orders = torch.as_tensor(drawn(transform, torch.zeros(n, 1, 4, 4))["order"])
    else:
        orders = torch.tensor([drawn(transform, torch.zeros(1, 4, 4))["order"] for _ in range(n)])
    assert torch.equal(orders.sort(-1).values, torch.arange(3).expand(n, 3))
    _, count = orders.unique(dim=0, return_counts=True)
    assert len(count) == 6
    assert ((count / n - 1 / 6).abs() < 4 * math.sqrt(5 / 36 / n)).all()


def test_every_sample_has_its_own_order():
    transform = composite(alpha=0.3, per_sample=True)
    params = drawn(transform, torch.zeros(5, 1, *SIZE))
    grid = transform.grid(params, SIZE)
    for i in range(5):
        mine = {
            "order": torch.as_tensor(params["order"])[i].tolist(),
            "atoms": [
                {"size": a["size"], "alpha": torch.as_tensor(a["alpha"])[i], "modes": a["modes"][i]}
                for a in params["atoms"]
            ],
        }
        torch.testing.assert_close(grid[i], by_matrices(transform, mine, SIZE), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("per_sample", [False, True])
def test_composites_whose_atoms_are_passed_over(per_sample):
    """An atom's own p counts within a composite; one atom always on, one never."""
    never, always = LocalRotate(alpha=0.3, p=0.0), LocalTranslate(alpha=0.3)
    transform = LocalAffine([never, always], per_sample=per_sample, fold_free=True)
    image = torch.rand(2, 3, *SIZE)
    params = drawn(transform, image)
    theta = functional.translate(*always.fields(params["atoms"][1], SIZE).unbind(-3))
    torch.testing.assert_close(transform.grid(params, SIZE), functional.sampling_grid(theta), atol=1e-5, rtol=0)
    nothing = LocalAffine([LocalRotate(p=0.0), LocalScale(alpha=0.0)], per_sample=per_sample, fold_free=True)
    before = some_image(shape=(2, 3, *SIZE))
    assert torch.equal(nothing(before), before)


# ----------------------------------------------------------------------------------------------------------- topology


@pytest.mark.parametrize("make", GEOMETRIC)
@pytest.mark.parametrize("per_sample", [False, True])
@pytest.mark.parametrize("size", [SIZE, (96, 64)])
def test_fold_free_is_free_of_folds(make, per_sample, size):
    transform = make(alpha=1.0, gamma=(4, 10), fold_free=True, per_sample=per_sample)
    image = torch.zeros(16, 1, *size)
    for _ in range(1 if per_sample else 10):
        share, least = functional.folding(transform.grid(drawn(transform, image), size))
        assert not share.any()
        assert (least > 0).all()


@pytest.mark.parametrize("make", GEOMETRIC)
def test_fold_free_shrinks_no_more_than_it_must(make):
    """Left alone where nothing folds; else a tenth more would fold."""
    image = torch.zeros(40, 1, *SIZE)
    free, wild = (
        make(alpha=(0, 0.5), per_sample=True, fold_free=f, generator=torch.Generator().manual_seed(3))
        for f in (True, False)
    )
    params, before = drawn(free, image), drawn(wild, image)
    ratio = strengths(params)[0] / strengths(before)[0]
    folds = functional.folding(wild.grid(before, SIZE))[0].flatten() > 0
    if make is not LocalShear:
        assert folds.any()
    assert (ratio[~folds] == 1).all()
    assert (ratio[folds] < 1).all()
    for atom in atoms_of(params):
        atom["alpha"] = torch.as_tensor(atom["alpha"]) * 1.1
    share, _ = functional.folding(free.grid(params, SIZE))
    assert (share.flatten()[folds & (ratio.flatten()[: len(folds)] < 1 / 1.1)] > 0).all()


@pytest.mark.parametrize("make", GEOMETRIC)
def test_grid_of_the_params_is_the_grid_that_is_used(make):
    """Whatever the strength: also where points are far outside, and where params come from a stronger transform."""
    image = torch.rand(3, *SIZE)
    weak, strong = make(alpha=0.05), make(alpha=3.0)
    for transform in (weak, strong):
        params = drawn(strong, image)
        expected = functional.warp(image, transform.grid(params, SIZE))
        torch.testing.assert_close(transform.transform(image, params), expected, atol=1e-3, rtol=0)


# ------------------------------------------------------------------------------------------------- padding, fill, own


@pytest.mark.parametrize("make", GEOMETRIC)
def test_fill_by_type_and_channel(make):
    image, mask = torch.rand(3, *SIZE), torch.randint(0, 9, SIZE)
    generator = torch.Generator()
    options = {"padding": "zeros", "alpha": 0.5, "generator": generator}
    fills = {
        "dict": {tv_tensors.Image: [2.0, 3.0, 4.0], tv_tensors.Mask: 255, "others": 0},
        "named": {"Image": [2.0, 3.0, 4.0], "Mask": 255, "others": 0},
    }
    for fill in fills.values():
        generator.manual_seed(1)
        out, labels = make(fill=fill, **options)(tv_tensors.Image(image), tv_tensors.Mask(mask))
        assert 255 in labels
        for channel, value in zip(torch.Tensor(out), (2.0, 3.0, 4.0), strict=True):
            assert channel.max() == value
    generator.manual_seed(1)
    _, labels = make(fill=255, **options)(tv_tensors.Image(image), tv_tensors.Mask(mask))
    assert 255 in labels


def test_fill_of_a_photo_is_that_of_an_image_however_it_was_opened(tmp_path):
    """What Pillow opens is of a class of its own for each format of file."""
    fill = {PIL.Image.Image: 255, "others": 0}
    transform = LocalTranslate(fill=fill, padding="zeros", alpha=0.9)
    tvf.to_pil_image(some_image()).save(tmp_path / "a.png")
    with PIL.Image.open(tmp_path / "a.png") as photo:
        params = drawn(transform, photo)
        assert transform.transform(photo, params).tobytes() == transform.transform(photo.copy(), params).tobytes()


def test_fill_of_wrong_length_names_both():
    with pytest.raises(ValueError, match=r"fill has 2 values.*\(3, 37, 53\)"):
        LocalTranslate(fill=[1, 2], padding="zeros", alpha=0.3)(torch.rand(3, *SIZE))


def test_nan_pixels_stay_local():
    image = torch.rand(3, *SIZE)
    image[0, 10, 20] = math.nan
    for make in ALL:
        nan = make(alpha=0.05, gamma=9.0)(image)
        assert nan.isnan().any(0).sum() <= 30


class LocalZoom(LocalWarp):
    """A transform of one's own, that reaches far."""

    field_count = 1

    def move(self, x, y, *g):
        return x + 9 * g[0] * x, y + 9 * g[0] * y


def test_transforms_of_ones_own():
    transform, image = LocalZoom(alpha=0.3), torch.rand(3, *SIZE)
    params = drawn(transform, image)
    g = transform.fields(params, SIZE)[0]
    grid = identity_grid(SIZE) * (1 + 9 * g).unsqueeze(-1)
    torch.testing.assert_close(transform.grid(params, SIZE), grid, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(transform.transform(image, params), functional.warp(image, grid), atol=1e-3, rtol=0)
    assert from_config({"LocalZoom": transform.config}).config == transform.config
    share, _ = functional.folding(LocalZoom(alpha=0.5, fold_free=True).grid(params, SIZE) * 0 + identity_grid(SIZE))
    assert not share.any()


def test_subclass_must_move():
    with pytest.raises(NotImplementedError, match=r"LocalWarp.*move"):
        LocalWarp()(torch.rand(3, *SIZE))


# -------------------------------------------------------------------------------------------------------------- replay


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize("per_sample", [False, True])
def test_replay_from_memory_from_a_file_and_from_json(make, per_sample):
    image, transform = some_image(shape=(2, 3, *SIZE)), make(alpha=(0.1, 0.3), per_sample=per_sample)
    params = drawn(transform, image)
    before = copy.deepcopy(params)
    expected = transform.transform(image, params)
    assert equal(params, before)
    file = io.BytesIO()
    torch.save(params, file)
    file.seek(0)
    for again in (
        params,
        torch.load(file, weights_only=True),
        json.loads(json.dumps(params, default=torch.Tensor.tolist)),
    ):
        assert torch.equal(transform.transform(image, again), expected)
    torch.manual_seed(5)
    called = transform(image)
    torch.manual_seed(5)
    assert torch.equal(called, transform.transform(image, drawn(transform, image)))


@pytest.mark.parametrize("make", ALL)
def test_params_are_small(make):
    """At the paper's gamma and the largest alpha, on disk."""
    transform = make(alpha=1 / 3, gamma=7.0)
    file = io.BytesIO()
    torch.save(drawn(transform, torch.zeros(3, 224, 224)), file)
    assert len(file.getvalue()) < 16 * 1024


@pytest.mark.parametrize("make", GEOMETRIC)
@pytest.mark.parametrize("bound", ["peak", "clip", None])
def test_replay_at_other_sizes_is_the_same_deformation(make, bound):
    """At three times the size the old pixel centres are among the new; at twice, each is amid four."""
    if make is composite:
        transform = LocalAffine([atom(bound=bound, alpha=0.3) for atom in ATOMS])
    else:
        transform = make(bound=bound, alpha=0.3)
    params = drawn(transform, torch.zeros(1, *SIZE))
    grid = transform.grid(params, SIZE)
    thrice = transform.grid(params, (111, 159))[1::3, 1::3]
    torch.testing.assert_close(thrice, grid, atol=2e-5, rtol=0)
    twice = transform.grid(params, (74, 106)).unflatten(0, (37, 2)).unflatten(2, (53, 2)).mean((1, 3))
    # The mean of four points an eighth of a pixel's square off: the second differences of the grid, over 16.
    bend = max(float(grid.diff(n=2, dim=dim).abs().max()) for dim in (0, 1))
    assert (twice - grid).abs().max() < bend / 8 + 1e-5


@pytest.mark.parametrize("make", ALL)
def test_replay_of_pictures_at_twice_the_size(make):
    """A smooth picture and its enlargement end as each other's, up to what interpolation and pooling make of its bends.

    These are, in each direction, an eighth and a thirty-second of the second difference.
    """
    transform, picture = make(alpha=0.2), smooth_image()
    params = drawn(transform, picture)
    small = transform.transform(picture, params)
    large = transform.transform(smooth_image((74, 106)), params)
    bend = max(float(image.diff(n=2, dim=dim).abs().max()) for image in (picture, small) for dim in (-2, -1))
    difference = (torch.nn.functional.avg_pool2d(large, 2) - small).abs()
    assert difference.max() < 2 * (1 / 8 + 1 / 32) * bend + 1e-4
    assert difference.mean() < 0.1 * (small - picture).abs().mean()


def test_replay_on_a_batch_that_does_not_fit():
    transform = LocalTranslate(per_sample=True, alpha=0.3)
    params = drawn(transform, torch.zeros(2, 3, *SIZE))
    with pytest.raises(ValueError, match=r"batch of \(2,\), but the input has shape \(3, 3, 37, 53\)"):
        transform.transform(torch.zeros(3, 3, *SIZE), params)


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize("n", [2, 4])
def test_replay_in_parts_on_a_batch_that_does_not_fit(make, n, monkeypatch):
    """Part by part, fewer samples than were drawn for would pass unnoticed."""
    monkeypatch.setattr(transforms_module, "_PIXELS", math.prod(SIZE))
    transform = make(per_sample=True, alpha=0.3)
    params = drawn(transform, torch.zeros(3, 3, *SIZE))
    with pytest.raises(ValueError, match=rf"batch of \(3,\), but the input has shape \({n}, 3, 37, 53\)"):
        transform.transform(torch.zeros(n, 3, *SIZE), params)


# ------------------------------------------------------------------------------------------------------------- configs

CONFIGURED = [
    *(
        make(p=0.8, period=2.0, per_sample=True, bound="clip", gamma=(3, 4.5), alpha=0.25)
        for make in [*ATOMS, *COLOURS[:3]]
    ),
    *(make() for make in [*ATOMS, *COLOURS]),
    LocalScale(
        gamma=((7, 8), 9), alpha=((0, 0.1), (0.1, 0.2)), interpolation="bicubic", padding="border", fold_free=True
    ),
    LocalTranslate(spectrum=matern(1.5, 0.3), bound=None),
    LocalTranslate(spectrum=power_law(6.5), fill=[1, 2, 3], padding="zeros"),
    LocalTranslate(spectrum=squared_exponential(0.2), fill={tv_tensors.Mask: 255, "others": 0}, padding="zeros"),
    LocalTranslate(fill={"Mask": 255, "Image": (1, 2, 3)}, padding="zeros"),
    LocalColorJitter(hue=None, saturation=0.1, value=(0.1, 0.2), gamma=((7, 8), (9, 10))),
    LocalColorJitter(hue=None, saturation=None, value=0.3),
    LocalAffine(
        [LocalRotate(alpha=0.1), LocalTranslate(spectrum=matern(2.5, 0.4))], order="given", p=0.8, fold_free=True
    ),
]


@pytest.mark.parametrize("transform", CONFIGURED, ids=lambda t: type(t).__name__)
def test_config_and_repr_build_the_transform_again(transform):
    image = some_image()
    through_json = json.loads(json.dumps(transform.config))
    copies = [
        type(transform)(**transform.config),
        type(transform)(**through_json),
        from_config({type(transform).__name__: through_json}),
        eval(repr(transform), vars(randfield) | {"tv_tensors": tv_tensors}),
    ]
    torch.manual_seed(2)
    expected = transform(image)
    for other in copies:
        assert other.config == transform.config
        torch.manual_seed(2)
        assert torch.equal(other(image), expected)


def test_config_of_a_function_of_ones_own():
    transform = LocalTranslate(spectrum=lambda k: k**-5)
    assert transform(some_image()).shape == (3, *SIZE)
    with pytest.raises(ValueError, match=r"LocalTranslate: spectrum=.* function of your own"):
        _ = transform.config


@pytest.mark.parametrize("config", [{}, {"LocalTwist": {}}, {"LocalRotate": {}, "LocalScale": {}}, {"_Warp": {}}])
def test_bad_configs(config):
    with pytest.raises(ValueError, match=r"from_config: expected one of .*LocalRotate.*, got"):
        from_config(config)


def test_unknown_settings_are_an_error():
    with pytest.raises(TypeError, match="strength"):
        from_config({"LocalRotate": {"strength": 3}})


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))], ids=["deepcopy", "pickle"])
def test_transforms_can_be_copied_and_sent(make, copied):
    """Workers that are spawned, as on macOS and Windows, get their dataset, and the transform in it, by pickle."""
    image, transform = some_image(), make(generator=torch.Generator().manual_seed(3))
    assert torch.equal(copied(transform)(image), transform(image))


def test_part_of_torchvisions_pipelines():
    pipeline = v2.Compose(
        [
            v2.RandomApply([LocalTranslate()]),
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True),
            LocalColorJitter(),
        ]
    )
    out, _ = pipeline(tv_tensors.Image(some_image()), tv_tensors.Mask(torch.zeros(SIZE)))
    assert out.dtype == torch.float32
    assert "LocalTranslate" in repr(pipeline)


# ----------------------------------------------------------------------------------------- compile, gradients, autocast

COMPILED = """
    import warnings
    warnings.simplefilter("error")
    # Dynamo says so of every cache; ours hold constants of the size.
    warnings.filterwarnings("ignore", message="Dynamo detected a call to a `functools.lru_cache`")
    import sys, torch
    from randfield import LocalColorJitter, LocalTranslate, functional
    from randfield.fields import draw, evaluate, power_law

    size = (37, 53)
    image = torch.rand(3, *size)
    modes = draw(size, power_law(8.0), batch=(2,), waves=(6, 8))

    def field(modes, alpha):
        phi = evaluate(modes, size)
        return alpha * phi / phi.abs().amax((-2, -1), keepdim=True)

    def composed(image, modes, alpha):
        gx, gy = field(modes, alpha)
        theta = functional.compose(functional.rotate(gx), functional.scale(gx, gy), functional.shear(gx, gy))
        return functional.warp(image, functional.sampling_grid(theta), padding="zeros", fill=0.5)

    def replayed(transform):
        params = transform.make_params([image])
        def replay(image, modes, alpha):
            count = params["modes"].shape[0]
            its = modes.repeat(2, 1, 1)[:count]
            return transform.transform(image, params | {"modes": its, "alpha": alpha.reshape(1)})
        return replay

    functions = {
        "composed": composed,
        "LocalTranslate": replayed(LocalTranslate(alpha=0.3)),
        "LocalColorJitter": replayed(LocalColorJitter(hue=0.3, saturation=0.3, value=0.3)),
    }
    def check(function):
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
        for strength in (0.2, 0.05):
            alpha = torch.tensor(strength, requires_grad=True)
            eager, graph = function(image, modes, alpha), compiled(image, modes, alpha)
            torch.testing.assert_close(graph, eager, atol=1e-4, rtol=0)
            (by_eager,), (by_graph,) = (torch.autograd.grad(out.square().sum(), alpha) for out in (eager, graph))
            torch.testing.assert_close(by_graph, by_eager, atol=1e-2, rtol=1e-3)

    failed = []
    for name, function in functions.items():
        try:
            check(function)
        except Exception as error:
            failed.append(f"{name}: {str(error)[:600]}")
    sys.exit("\\n\\n".join(failed) or 0)
"""


def test_tensor_core_compiles_in_one_graph():
    """All in one other process, and without this suite's checks of shapes, which are no tensor code."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(COMPILED)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-6000:]


def with_alpha(params, alpha, only=None):
    """The same draw with another alpha, for all atoms or only one."""
    if "atoms" not in params:
        return params | {"alpha": alpha}
    atoms = [atom | {"alpha": alpha} if only in (None, i) else atom for i, atom in enumerate(params["atoms"])]
    return params | {"atoms": atoms}


@pytest.mark.parametrize(("make", "only"), [*((make, None) for make in ALL), *((composite, i) for i in range(4))])
def test_gradients_of_image_and_alpha(make, only):
    """Against finite differences, in a direction of the image and along alpha, on a smooth image."""
    options = {"interpolation": "bicubic"} if make in GEOMETRIC else {}  # bilinear images have kinks between all pixels
    transform, image = make(alpha=0.1, **options), smooth_image(dtype=torch.float64)
    params = drawn(transform, image)
    weight, direction = smooth_image(dtype=torch.float64).flip(-2), 0.1 * smooth_image(dtype=torch.float64).flip(-1)

    def loss(image, alpha):
        return (transform.transform(image, with_alpha(params, alpha, only)) * weight).mean()

    image.requires_grad_()
    alpha = torch.tensor([0.1], requires_grad=True)
    by_image, by_alpha = torch.autograd.grad(loss(image, alpha), (image, alpha))
    with torch.no_grad():
        step = 1e-4
        along = (loss(image + step * direction, alpha) - loss(image - step * direction, alpha)) / (2 * step)
        torch.testing.assert_close((by_image * direction).sum(), along, atol=1e-7, rtol=1e-3)
        step = 1e-3  # of a float32
        along = (loss(image, alpha + step) - loss(image, alpha - step)) / (2 * step)
    assert by_alpha.isfinite().all()
    assert abs(float(by_alpha) - float(along)) < 0.02 * abs(float(along)) + 2e-5


@pytest.mark.filterwarnings("ignore:`torch.jit:FutureWarning")  # torch's own way into forward mode
@pytest.mark.parametrize("make", [*ATOMS, *COLOURS[:3]])
def test_forwards_as_backwards(make):
    """The derivative by alpha as `torch.func.jvp` takes it, against that of the backward pass."""
    transform, image = make(alpha=0.1), smooth_image(dtype=torch.float64)
    params, alpha = drawn(transform, image), torch.tensor([0.1])

    def function(alpha):
        return transform.transform(image, with_alpha(params, alpha)).square().mean()

    forwards = torch.func.jvp(function, (alpha,), (torch.ones(1),))[1]
    torch.testing.assert_close(forwards, torch.func.grad(function)(alpha)[0].to(forwards), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("make", ALL)
def test_gradients_of_alpha_for_each_sample(make):
    image, transform = smooth_image().expand(3, 3, *SIZE), make(alpha=0.1, per_sample=True)
    params = drawn(transform, image)
    alpha = torch.full((3, 1), 0.1, requires_grad=True)
    (by_alpha,) = torch.autograd.grad(transform.transform(image, with_alpha(params, alpha))[1].square().sum(), alpha)
    assert by_alpha[1].abs() > 0
    assert not by_alpha[[0, 2]].any()


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_rounded_only_once(make, dtype):
    """As in float32, up to the rounding of the result."""
    image, transform = torch.rand(3, *SIZE).to(dtype), make(alpha=0.3)
    params = drawn(transform, image)
    expected = transform.transform(image.float(), params)
    out = transform.transform(image, params)
    assert torch.equal(out, expected.to(dtype))


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize("per_sample", [False, True])
def test_autocast_changes_nothing(make, per_sample):
    image = torch.rand(2, 3, *SIZE)
    torch.manual_seed(4)
    expected = make(per_sample=per_sample)(image)
    torch.manual_seed(4)
    with torch.autocast("cpu", torch.bfloat16):
        out = make(per_sample=per_sample)(image)
    assert out.dtype == torch.float32
    assert torch.equal(out, expected)


@pytest.mark.parametrize("make", ALL)
def test_caches_first_filled_under_inference_mode_can_be_differentiated(make):
    size = (43, 47 + ALL.index(make))  # of its own
    transform, image = make(alpha=0.2), torch.rand(3, *size)
    with torch.inference_mode():
        params = drawn(transform, image)
        transform.transform(image, params)
    params = drawn(transform, image)
    alpha = torch.tensor([0.2], requires_grad=True)
    (by_alpha,) = torch.autograd.grad(transform.transform(image, with_alpha(params, alpha)).sum(), alpha)
    assert by_alpha.isfinite().all()


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_default_dtype_changes_nothing(make, dtype):
    size = (59, 61 + 2 * ALL.index(make) + (dtype == torch.float64))  # of its own, for the caches
    image, options = torch.rand(2, 3, *size), {"fold_free": True} if make in GEOMETRIC else {}
    outs = []
    for default in (dtype, torch.float32):
        torch.set_default_dtype(default)
        try:
            outs += [
                make(per_sample=per_sample, generator=torch.Generator().manual_seed(4), **options)(image)
                for per_sample in (False, True)
            ]
        finally:
            torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(outs[0], outs[2], atol=1e-4, rtol=0)
    torch.testing.assert_close(outs[1], outs[3], atol=1e-4, rtol=0)


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize("per_sample", [False, True])
def test_default_device_changes_nothing(make, per_sample):
    """Many set it to "cuda"; "meta" holds no numbers, so that whatever was made there by oversight shows."""
    size = (67, 71 + 2 * ALL.index(make) + per_sample)  # of its own, for the caches
    image, generator = torch.rand(2, 3, *size), torch.Generator()
    transform = make(per_sample=per_sample, generator=generator)
    generator.manual_seed(4)
    with torch.device("meta"):
        out = transform(image)
    generator.manual_seed(4)
    assert torch.equal(out, transform(image))


@pytest.mark.parametrize("make", ALL)
def test_default_device_changes_nothing_for_photos_and_parts(make, monkeypatch):
    monkeypatch.setattr(transforms_module, "_PIXELS", math.prod(SIZE))
    image, photo = torch.rand(3, 3, *SIZE), tvf.to_pil_image(some_image())
    transform = make(per_sample=True, generator=torch.Generator())
    outs = []
    for device in ("meta", "cpu"):
        transform.generator.manual_seed(4)
        with torch.device(device):
            outs.append((transform(image), transform(photo)))
    assert torch.equal(outs[0][0], outs[1][0])
    assert outs[0][1].tobytes() == outs[1][1].tobytes()


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize("per_sample", [False, True])
def test_shapes_can_be_worked_out_without_numbers(make, per_sample):
    image = torch.empty(2, 3, *SIZE, device="meta")
    assert make(per_sample=per_sample)(image).shape == image.shape


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.skipif(not torch.cuda.is_available(), reason="waits of the host are seen on CUDA alone")
def test_host_never_waits_for_the_device():
    image = torch.rand(4, 3, *SIZE, device="cuda")
    for make in ALL:
        transform = make(per_sample=True, p=0.5)
        params = drawn(transform, image)
        transform.transform(image, params)
        torch.cuda.set_sync_debug_mode("error")
        try:
            transform.transform(image, params)
        finally:
            torch.cuda.set_sync_debug_mode("default")


# ------------------------------------------------------------------------------------------------------------- workers


class Fingerprints(Dataset[float]):
    """What each item draws, as one number."""

    def __init__(self, transform):
        self.transform = transform

    def __len__(self):
        return 12

    def __getitem__(self, index):
        params = self.transform.make_params([torch.zeros(3, 9, 9)])
        return sum(float(atom["modes"].double().sum()) for atom in atoms_of(params))


@pytest.mark.parametrize("make", [LocalTranslate, composite, jitter])
@pytest.mark.parametrize("seed", [None, 0])
@pytest.mark.parametrize("persistent", [False, True])
def test_workers_and_epochs_repeat_nothing(make, seed, persistent):
    """With PyTorch's own randomness, and with a generator of one's own, of which each worker has a copy."""
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    loader = DataLoader(
        Fingerprints(make(generator=generator)), batch_size=3, num_workers=2, persistent_workers=persistent
    )
    drawn_numbers = [float(number) for _ in range(2) for batch in loader for number in batch]
    assert len(set(drawn_numbers)) == len(drawn_numbers) == 24


def test_a_generator_reaches_workers_that_are_spawned():
    """As on macOS and Windows; each goes on in its own way, and nothing but the generator's seed decides how."""
    dataset = Fingerprints(LocalTranslate(generator=torch.Generator().manual_seed(5)))

    def numbers(context):
        torch.manual_seed(11)
        loader = DataLoader(dataset, batch_size=6, num_workers=2, multiprocessing_context=context)
        return torch.cat(list(loader))

    spawned = numbers("spawn")
    assert spawned.unique().numel() == 12
    assert torch.equal(spawned, numbers("fork"))


def test_workers_are_reproducible():
    def numbers():
        torch.manual_seed(11)
        dataset = Fingerprints(LocalTranslate(generator=torch.Generator().manual_seed(5)))
        return torch.cat(list(DataLoader(dataset, batch_size=3, num_workers=2)))

    assert torch.equal(numbers(), numbers())


# ------------------------------------------------------------------------------------------------------- bad arguments

BAD = [
    ({"p": -0.1}, r"p is a probability in \[0, 1\], got -0\.1"),
    ({"p": 1.5}, r"p is a probability in \[0, 1\], got 1\.5"),
    ({"p": math.nan}, r"p is a probability in \[0, 1\], got nan"),
    ({"p": "often"}, r"p is a probability in \[0, 1\], got 'often'"),
    ({"generator": 0}, r"generator.*torch\.Generator.*got 0"),
    ({"p": True}, r"p is a probability in \[0, 1\], got True"),
    ({"per_sample": "no"}, r"per_sample must be one of True, False, got 'no'"),
]
BAD_FIELDS = [
    ({"gamma": math.nan}, r"gamma must be a finite number.*got nan"),
    ({"gamma": math.inf}, r"gamma must be a finite number.*got inf"),
    ({"gamma": (7, math.inf)}, r"gamma must be a finite number.*got \(7, inf\)"),
    ({"gamma": (10, 7)}, r"gamma is a \(low, high\) range, got low 10\.0 > high 7\.0"),
    ({"gamma": "smooth"}, r"gamma must be a finite number.*got 'smooth'"),
    ({"gamma": (7, 8, 9)}, r"gamma must be a finite number or a \(low, high\) pair.*got \(7, 8, 9\)"),
    ({"gamma": None}, r"gamma must be a finite number.*got None"),
    ({"gamma": ((7, 8), (8, 9), (9, 10), (9, 10))}, r"gamma has 4 ranges, but the transform has [123] field"),
    ({"period": 0.5}, r"period must be.*at least 1.*got 0\.5"),
    ({"period": math.nan}, r"period must be.*got nan"),
    ({"period": "long"}, r"period must be.*got 'long'"),
    ({"bound": "max"}, r"bound must be 'peak', 'clip' or None, got 'max'"),
    ({"spectrum": 8.0}, r"spectrum must be a callable.*got 8\.0"),
    ({"spectrum": lambda k: -k}, r"spectrum must be.*P\(k\) >= 0.*got <function.*not so for every k"),
    ({"spectrum": lambda k: k * math.nan}, r"spectrum must be.*P\(k\) >= 0.*not so for every k"),
    ({"spectrum": lambda k: 0 * k}, r"spectrum must be.*no power"),
    ({"spectrum": lambda k: 1.0}, r"spectrum must be.*not so for every k"),
    ({"spectrum": {"matern": {"nu": -1, "length": 0.3}}}, r"nu must be a finite number above 0, got -1"),
]
BAD_ALPHA = [
    ({"alpha": -0.1}, r"alpha must be at least 0, got -0\.1"),
    ({"alpha": (-0.1, 0.3)}, r"alpha must be at least 0, got \(-0\.1, 0\.3\)"),
    ({"alpha": (0.3, 0.1)}, r"alpha is a \(low, high\) range, got low 0\.3 > high 0\.1; swap them"),
    ({"alpha": math.nan}, r"alpha must be a finite number.*got nan"),
    ({"alpha": True}, r"alpha must be a finite number.*got True"),
    ({"alpha": ()}, r"alpha must be a finite number.*got \(\)"),
]
BAD_GEOMETRY = [
    ({"padding": "symmetric"}, r"padding must be one of 'reflection', 'border', 'zeros', got 'symmetric'"),
    ({"interpolation": "lanczos"}, r"interpolation must be one of 'bilinear', 'bicubic', 'nearest', got 'lanczos'"),
    ({"fill": "red"}, r"fill must be a finite number.*got 'red'"),
    ({"fill": None}, r"fill must be a finite number.*got None"),
    ({"fill": {tv_tensors.Mask: "red"}}, r"fill must be a finite number"),
    ({"fill": ()}, r"fill must be a finite number.*got \(\)"),
    ({"fill": math.nan}, r"fill must be a finite number.*got nan"),  # it would spread over the whole image
    ({"fill": [0, math.inf, 0]}, r"fill must be a finite number.*got \[0, inf, 0\]"),
    ({"fill": {"mask": 255}}, r"fill must be a dict from a type, or a name out of .*Mask.*, got {'mask': 255}"),
    ({"fill": {3: 1}}, r"fill must be a dict from a type.*got {3: 1}"),
    ({"fold_free": "no"}, r"fold_free must be one of True, False, got 'no'"),
]
BAD_ARGUMENTS = [
    *((make, bad) for make in [*ATOMS, *COLOURS[:3]] for bad in BAD + BAD_FIELDS + BAD_ALPHA),
    *((make, bad) for make in ATOMS for bad in BAD_GEOMETRY),
    *((LocalColorJitter, bad) for bad in BAD + BAD_FIELDS),
    *((functools.partial(LocalAffine, [LocalRotate()]), bad) for bad in BAD + BAD_GEOMETRY),
    (LocalRotate, ({"gamma": ((7, 8), (8, 9))}, r"gamma has 2 ranges, but the transform has 1 field")),
    (LocalHue, ({"gamma": ((7, 8), (8, 9))}, r"gamma has 2 ranges, but the transform has 1 field")),
    (LocalScale, ({"alpha": ((0, 0.1), (0, 0.2), (0, 0.3))}, r"alpha has 3 ranges, but the transform has 2 fields")),
    (LocalColorJitter, ({"hue": -0.1}, r"hue must be at least 0, got -0\.1")),
    (LocalColorJitter, ({"saturation": (0.3, 0.1)}, r"saturation is a \(low, high\) range")),
    (LocalColorJitter, ({"value": math.inf}, r"value must be a finite number")),
    (LocalColorJitter, ({"hue": None, "saturation": None, "value": None}, r"all None")),
    (LocalAffine, ({"transforms": []}, r"transforms must be a list of at least one.*got \[\]")),
    (LocalAffine, ({"transforms": [LocalHue()]}, r"transforms must be a list.*LocalHue")),
    (LocalAffine, ({"transforms": LocalRotate()}, r"transforms must be a list.*LocalRotate")),
    (LocalAffine, ({"transforms": 3}, r"transforms must be a list.*3")),
    (
        LocalAffine,
        ({"transforms": [LocalRotate()], "order": "reverse"}, r"order must be one of 'random', 'given', got 'reverse'"),
    ),
]


@pytest.mark.parametrize(
    ("make", "bad"),
    BAD_ARGUMENTS,
    ids=lambda v: getattr(v, "__name__", "LocalAffine") if callable(v) else "-".join(v[0]),
)
def test_bad_arguments_fail_at_construction(make, bad):
    """Naming the transform, the value and what was expected."""
    arguments, message = bad
    name = make.__name__ if isinstance(make, type) else "LocalAffine"
    if "spectrum" in arguments and isinstance(arguments["spectrum"], dict):
        name = ""
    with pytest.raises((ValueError, TypeError), match=rf"{name}.*{message}"):
        make(**arguments)


def test_numbers_may_be_numpys():
    numpy = pytest.importorskip("numpy")
    alpha = (numpy.float64(0), numpy.float32(0.25))
    transform = LocalTranslate(gamma=numpy.int64(8), alpha=alpha, p=numpy.float32(0.5))
    assert transform.config == LocalTranslate(gamma=8, alpha=(0, 0.25), p=0.5).config
    assert json.dumps(transform.config)


# --------------------------------------------------------------------------------------------------------------- speed


@pytest.mark.slow
@pytest.mark.parametrize("make", ATOMS)
def test_cost_does_not_depend_on_gamma(make):
    """One 224×224 image, one thread; the calls alternate, and what they share is warmed up."""
    image, threads = some_image(shape=(3, 224, 224)), torch.get_num_threads()
    rough, smooth = make(gamma=3.0), make(gamma=10.0)
    times: dict[Any, list[float]] = {rough: [], smooth: []}
    torch.set_num_threads(1)
    try:
        for turn in range(220):
            for transform, spent in times.items():
                start = time.perf_counter()
                transform(image)
                if turn >= 20:
                    spent.append(time.perf_counter() - start)
    finally:
        torch.set_num_threads(threads)
    assert statistics.median(times[rough]) < 2.5 * statistics.median(times[smooth])


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize("wrapped", [torch.as_tensor, tv_tensors.Image, tv_tensors.Video])
def test_a_batch_done_in_parts_is_the_batch_done_at_once(make, wrapped, monkeypatch):
    """What fits the cache is done at a time, of a batch by samples and of colours by rows."""
    image = torch.randint(0, 256, (5, 3, *SIZE), dtype=torch.uint8)
    image = wrapped(image.unsqueeze(1).expand(-1, 2, -1, -1, -1) if wrapped is tv_tensors.Video else image)
    transform = make(alpha=0.3, per_sample=True, p=0.7)
    params = drawn(transform, image)
    whole = transform.transform(image, params)
    monkeypatch.setattr(transforms_module, "_PIXELS", 2 * math.prod(SIZE))
    monkeypatch.setattr(functional, "_AT_ONCE", 3 * 300)
    parts = transform.transform(image, params)
    assert type(parts) is type(image)
    assert torch.equal(parts, whole)
    assert torch.equal(transform.transform(image, json.loads(json.dumps(params, default=torch.Tensor.tolist))), whole)


@pytest.mark.parametrize("make", ALL)
def test_a_transform_is_a_module_among_modules(make):
    """It may sit in a model that is moved, cast and switched to evaluation."""
    model = torch.nn.Sequential(make(alpha=0.2), torch.nn.Conv2d(3, 2, 3)).to(torch.float64).cpu().eval()
    assert model(torch.rand(1, 3, *SIZE, dtype=torch.float64)).dtype == torch.float64
    assert not model[0].state_dict()


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize(("images", "of_transforms", "of_views"), [(1, 25, 25), (16, 4, 10)])
def test_memory_is_a_stated_multiple_of_the_batch(images, of_transforms, of_views):
    """What a call holds at any moment, its result included, in bytes of its uint8 input. Of the two float views that
    come of an image of 256², six times its bytes are the result."""
    makes: tuple[Any, ...] = (*ATOMS, composite, jitter)
    for make in makes:
        t, batch = make(per_sample=True), torch.randint(0, 256, (images, 3, 224, 224), dtype=torch.uint8)
        t(batch)  # fills the caches
        assert peak_bytes(lambda: t(batch)) <= of_transforms * batch.numel()  # noqa: B023
    views, batch = SimCLRViews(local=LocalTranslate()), torch.randint(0, 256, (images, 3, 256, 256), dtype=torch.uint8)
    views(batch)
    assert peak_bytes(lambda: views(batch)) <= of_views * batch.numel()

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from torchvision import tv_tensors

from randfield import LocalColorJitter, LocalRotate, LocalTranslate, affine, color, fields, kernels, views
from randfield.functional import shift_hsv
from randfield.warp import pull

SIZES = [(37, 53), (224, 224), (300, 20), (1, 1), (1, 9), (9, 1), (2, 600)]
ROOT = Path(__file__).parents[1]

compiled = pytest.mark.skipif(kernels.library is None, reason="the kernels were not compiled")


def both(function):
    """The result by PyTorch and the result by the kernels."""
    with kernels.left_out():
        reference = function()
    assert kernels.library is not None
    return reference, function()


@pytest.mark.skipif(os.environ.get("RANDFIELD_KERNELS") == "0", reason="left out on demand")
@pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no compiler")
def test_compiled_where_there_is_a_compiler():
    assert kernels.library is not None


# ----------------------------------------------------------------------------------------------------- equal to PyTorch


def grid_around(size, n, reach, *, planes):
    """Points up to `reach` from the centre, as pairs or stored as two planes, as transforms have them."""
    grid = (torch.rand(n, *size, 2) * 2 - 1) * reach
    return grid.movedim(-1, 1).contiguous().movedim(1, -1) if planes else grid


@compiled
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("padding", ["reflection", "border"])
@pytest.mark.parametrize("planes", [False, True])
@pytest.mark.parametrize(("n", "channels"), [(1, 3), (3, 1), (2, 7)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.int16, torch.float16, torch.bool])
def test_sampling(size, padding, planes, n, channels, dtype):
    image = (torch.rand(n, channels, *size) * 255).to(dtype)
    grid = grid_around((31, 300), n, 3.0, planes=planes)
    reference, ours = both(lambda: pull(image, grid, padding=padding))
    assert ours.dtype == dtype
    if dtype == torch.bool:  # at a half, either is right
        assert (ours != reference).float().mean() < 1e-3
    else:
        # A float32 coordinate is off by up to a millionth of the image, which times a step of 255 between pixels.
        per_pixel = 255 * 1e-6 * max(size)
        off = (ours.float() - reference.float()).abs()
        assert off.max() <= (per_pixel if dtype == torch.float32 else 1 if not dtype.is_floating_point else 0.25)
        assert off.mean() < 1e-3


@compiled
def test_sampling_of_smooth_images_is_equal_to_a_hundred_thousandth():
    y, x = torch.meshgrid(torch.linspace(0, 3, 224), torch.linspace(0, 2, 224), indexing="ij")
    image = torch.stack([x.sin(), y.cos(), (x * y).sin()])[None] / 2 + 0.5
    grid = grid_around((224, 224), 1, 1.5, planes=True)
    reference, ours = both(lambda: pull(image, grid))
    torch.testing.assert_close(ours, reference, atol=1e-5, rtol=0)


@compiled
@pytest.mark.parametrize("shape", [(0, 3, 8, 9), (2, 0, 8, 9)])
def test_sampling_nothing(shape):
    assert pull(torch.rand(shape), grid_around((8, 9), shape[0], 1.0, planes=False)).shape == shape


@compiled
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_samples_in_threads(threads):
    image, grid = torch.rand(5, 3, 20, 30), grid_around((20, 30), 5, 1.0, planes=True)
    try:
        torch.set_num_threads(threads)
        reference, ours = both(lambda: pull(image, grid))
    finally:
        torch.set_num_threads(1)
    torch.testing.assert_close(ours, reference, atol=1e-5, rtol=0)


@compiled
@pytest.mark.parametrize("padding", ["reflection", "border"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e30, -1e30])
def test_points_that_are_nowhere_read_no_foreign_memory(padding, value):
    image = torch.rand(1, 3, 37, 53)
    out = pull(image, torch.full((1, 37, 53, 2), value), padding=padding)
    assert torch.isin(out, image).all()


@compiled
@pytest.mark.parametrize("atom", [affine.move_rotate, affine.move_scale, affine.move_shear, affine.move_translate])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("strength", [0.3, 40.0])
@pytest.mark.parametrize("moved", [False, True])
def test_moves(atom, batch, size, strength, moved):
    count = 1 if atom is affine.move_rotate else 2
    phi, factor = torch.randn(*batch, count, *size), torch.rand(*batch, count, 1, 1) * strength
    x, y = affine.pixel_centres(size, torch.device("cpu"))
    if moved:  # the planes another atom has left
        x, y = (torch.stack(torch.broadcast_tensors(x, y), -3) + torch.randn(*batch, 2, *size)).unbind(-3)
    reference = torch.stack(torch.broadcast_tensors(*atom(x, y, *(phi * factor).unbind(-3))), -3)
    ours = kernels.move(atom, x, y, phi.clone(), factor)
    # Half a millionth of an angle, at the end of the longest arm.
    angle, arm = torch.pi * (phi * factor).abs().max(), torch.maximum(x.abs().max(), y.abs().max())
    torch.testing.assert_close(ours, reference, rtol=1e-5, atol=5e-7 * float(angle.clamp_min(1) * arm.clamp_min(1)))


@compiled
def test_sine_and_cosine_far_out():
    g = torch.linspace(-300, 300, 100_001)
    turned = kernels.move(affine.move_rotate, torch.ones(100_001), torch.zeros(1, 1), g.clone()[None, None], 1.0)
    angle = torch.pi * g.double()
    torch.testing.assert_close(turned[0, 0].double(), angle.cos(), rtol=0, atol=3e-7)
    torch.testing.assert_close(turned[1, 0].double(), angle.sin(), rtol=0, atol=3e-7)


def colour_cube(dtype):
    steps = torch.arange(0, 256, 15)  # 0 and 255 among them, and all greys between
    cube = torch.cartesian_prod(steps, steps, steps).T.reshape(3, 18, 18 * 18)
    return cube.to(torch.uint8) if dtype == torch.uint8 else cube.to(dtype) / 255


@compiled
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("channels", range(8))
@pytest.mark.parametrize("kind", ["planes", "numbers", "batch", "batch of videos", "other strides"])
def test_colours(dtype, channels, kind):
    image = colour_cube(dtype)
    batch: tuple[int, ...] = ()
    size = tuple(image.shape[-2:])
    if kind.startswith("batch"):
        batch = (4,)
        image = image.expand(4, *(2,) * (kind == "batch of videos"), *image.shape)
    shape = {"numbers": (1, 1), "other strides": size[::-1]}.get(kind, (*batch, *size))
    drawn = [(torch.rand(shape) * 2 - 1) * strength for strength in (2.0, 0.7, 0.7)]
    if kind == "other strides":
        drawn = [g.T for g in drawn]
    if kind == "numbers":
        drawn = [g.expand(size) for g in drawn]
    chosen = [g if channels >> i & 1 else None for i, g in enumerate(drawn)]
    reference, ours = both(lambda: shift_hsv(image, *chosen))
    off = (ours.float() - reference.float()).abs()
    if dtype == torch.uint8:  # the same, or the number between: clamped colours of this cube often are at a half
        exact = 255 * shift_hsv(image.double() / 255, *(None if g is None else g.double() for g in chosen))
        assert off.max() <= 1
        assert ((exact - exact.floor() - 0.5).abs()[off > 0] < 1e-4).all()
    else:
        assert off.max() < 1e-5
    if channels == 0:
        assert torch.equal(ours, image) if dtype == torch.uint8 else off.max() < 1e-6


@compiled
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_images_as_pil_leaves_them(size, channels):
    image = torch.randint(0, 256, (*size, channels), dtype=torch.uint8).permute(2, 0, 1)
    assert torch.equal(kernels._planar(image), image)
    assert torch.equal(kernels._planar(image[None]), image[None])
    assert kernels._planar(image).is_contiguous()
    grid = grid_around(size, 1, 1.0, planes=True)
    assert torch.equal(pull(image[None], grid), pull(image[None].contiguous(), grid))
    part = image[:, 1:, 1:]
    assert torch.equal(kernels._planar(part), part)


@compiled
def test_a_hue_for_all_and_colours_out_of_range():
    image = torch.rand(2, 3, 30, 40) * 3 - 1
    for hue in (torch.tensor(0.2), torch.rand(2, 1, 1), torch.rand(30, 40)):
        reference, ours = both(lambda: color.shift(image, hue=hue))  # noqa: B023
        torch.testing.assert_close(ours, reference, atol=2e-5, rtol=0)


@compiled
def test_fields_with_a_batch_that_the_image_lacks():
    image = torch.rand(2, 3, 8, 9)
    assert kernels.shifts(image, torch.rand(2, 8, 9), torch.rand(8, 9), torch.rand(()))
    assert not kernels.shifts(image, torch.rand(5, 2, 8, 9))
    assert not kernels.shifts(image, torch.rand(3, 8, 9))
    assert not kernels.shifts(image, torch.rand(8, 9).half())


@compiled
def test_nan():
    image = torch.rand(3, 20, 30)
    image[1, 3, 4] = image[0, 5, 6] = torch.nan
    reference, ours = both(lambda: color.shift(image, torch.rand(20, 30), torch.rand(20, 30), torch.rand(20, 30)))
    assert torch.equal(ours.isnan(), reference.isnan())
    phi = torch.randn(3, 20, 300)
    phi[1, 7, 280] = torch.nan
    reference, ours = both(lambda: fields.peak_of(phi, 2))
    assert torch.equal(ours.isnan(), reference.isnan())
    torch.testing.assert_close(ours, reference, rtol=0, atol=0, equal_nan=True)


@compiled
@pytest.mark.parametrize("size", [(37, 53), (224, 224), (20, 600), (12, 258), (13, 12)])
@pytest.mark.parametrize("sigma", [0.3, 1.0, 2.0])
def test_blur(size, sigma):
    reference, ours = both(lambda: views._blur(torch.rand(3, *size, generator=torch.manual_seed(0)), sigma, 11))
    torch.testing.assert_close(ours, reference, atol=1e-6, rtol=0)


# ------------------------------------------------------------------------------------------------- not their affair


@compiled
def test_what_they_do_not_fit():
    image = torch.rand(3, 8, 9)
    assert kernels.fit(image, None, image.to(torch.uint8), torch.nn.Parameter(image, requires_grad=False))
    with torch.inference_mode():
        assert kernels.fit(torch.rand(3))
    for other in (
        image.double(),
        image.clone().requires_grad_(),
        image.to("meta"),
        tv_tensors.Image(image),
        torch.zeros(3, dtype=torch.complex64).conj().imag,
    ):
        assert not kernels.fit(image, other)
    with torch.no_grad():
        assert kernels.fit(image.clone().requires_grad_())
    with kernels.left_out():
        assert not kernels.fit(image)
    with torch.autograd.forward_ad.dual_level():
        assert not kernels.fit(image)


@compiled
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch's own use of it
def test_torchs_function_transforms_go_through_pytorch():
    image, grid = torch.rand(4, 1, 3, 8, 9), grid_around((8, 9), 4, 0.9, planes=False)[:, None]
    many = torch.func.vmap(pull)(image, grid)
    torch.testing.assert_close(many, torch.stack([pull(*one) for one in zip(image, grid, strict=True)]))
    tangent = torch.func.jvp(lambda x: pull(x, grid[0]), (image[0],), (torch.ones_like(image[0]),))[1]
    torch.testing.assert_close(tangent, torch.ones_like(tangent))


@compiled
@pytest.mark.parametrize("make", [LocalTranslate, LocalRotate, LocalColorJitter])
def test_gradients_leave_the_values_alone(make):
    t, image = make(), torch.rand(3, 37, 53)
    params = t.make_params([image])
    torch.testing.assert_close(
        t.transform(image.clone().requires_grad_(), params).detach(), t.transform(image, params), atol=1e-4, rtol=0
    )


@compiled
def test_nothing_is_written_to_but_what_is_given_for_it():
    image, hue = torch.rand(3, 37, 53), torch.rand(37, 53)
    kept = image.clone(), hue.clone()
    pull(image[None], grid_around((37, 53), 1, 1.0, planes=True))
    color.shift(image, hue)
    views._blur(image, 1.0, 3)
    fields.peak_of(image, 2)
    assert torch.equal(image, kept[0])
    assert torch.equal(hue, kept[1])


def test_a_blur_farther_than_the_image_is_an_error():
    with pytest.raises(ValueError, match="expected a reach below 64 and both sides"):
        kernels.blur(torch.rand(3, 4, 9), [0.2] * 5)


# ------------------------------------------------------------------------------------------------------------ packaging


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "pure"), [({}, False), ({"RANDFIELD_KERNELS": "0"}, True), ({"CC": "no-such-compiler"}, True)]
)
def test_wheels(environment, pure, tmp_path):
    if not pure and kernels.library is None:
        pytest.skip("no compiler")
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("libkernels-*", "__pycache__"))
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", "made", "."]
    subprocess.run(command, cwd=tmp_path, env={**os.environ, **environment}, check=True)
    (wheel,) = (tmp_path / "made").glob("*.whl")
    held = [name for name in zipfile.ZipFile(wheel).namelist() if "libkernels" in name]
    assert wheel.name.endswith("py3-none-any.whl") == pure
    assert len(held) == (0 if pure else 1)
    # What came out of the wheel works, with or without.
    subprocess.run(
        [sys.executable, "-c", "import torch, randfield; randfield.LocalRotate()(torch.rand(3, 9, 9))"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(wheel)} if pure else os.environ,
        check=True,
    )

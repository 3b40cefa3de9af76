"""SimCLRViews: every step is torchvision's, the two ways in are one, and the draws are SimCLR's."""

import json
import math
import re
from typing import Any

import PIL.Image
import pytest
import torch
from torch.utils.data import DataLoader
from torchvision import datasets, tv_tensors
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as tvf

from randfield import LocalAffine, LocalColorJitter, LocalRotate, LocalTranslate, SimCLRViews

pytestmark = pytest.mark.usefixtures("either_way")

SIZE = 64


def photo(height=90, width=130):
    """Smooth enough that resampling has something to do, with every colour in it."""
    rough = torch.rand(3, 9, 13)
    return (tvf.resize(rough, [height, width], antialias=True) * 255).round().to(torch.uint8)


def nothing(height=90, width=130):
    """The params of a view that changes nothing but the size."""
    return {
        "crop": [0, 0, height, width],
        "flip": False,
        "order": [0, 1, 2, 3],
        "factors": [1.0, 1.0, 1.0],
        "hue": 0.0,
        "grey": 0.0,
        "sigma": 0.0,
    }


def one_view(image, view, **options):
    views = SimCLRViews(SIZE, normalize=False, n_views=1, **options)
    return views.transform(image, {"views": [{step: [drawn] for step, drawn in view.items()}]})[0]


STEPS: dict[str, tuple[dict[str, Any], Any]] = {
    "crop": ({"crop": [11, 7, 60, 91]}, lambda x: tvf.resized_crop(x, 11, 7, 60, 91, [SIZE, SIZE], antialias=True)),
    "enlarging crop": ({"crop": [40, 7, 20, 31]}, lambda x: tvf.resized_crop(x, 40, 7, 20, 31, [SIZE, SIZE])),
    "flip": ({"flip": True}, lambda x: tvf.horizontal_flip(x)),
    "brightness": ({"factors": [1.7, 1.0, 1.0]}, lambda x: tvf.adjust_brightness(x, 1.7)),
    "darkness": ({"factors": [0.2, 1.0, 1.0]}, lambda x: tvf.adjust_brightness(x, 0.2)),
    "contrast": ({"factors": [1.0, 1.8, 1.0]}, lambda x: tvf.adjust_contrast(x, 1.8)),
    "little contrast": ({"factors": [1.0, 0.4, 1.0]}, lambda x: tvf.adjust_contrast(x, 0.4)),
    "saturation": ({"factors": [1.0, 1.0, 1.6]}, lambda x: tvf.adjust_saturation(x, 1.6)),
    "hue": ({"hue": -0.17}, lambda x: tvf.adjust_hue(x, -0.17)),
    "all in an order": (
        {"factors": [1.3, 0.6, 1.4], "hue": 0.1, "order": [3, 1, 2, 0]},
        lambda x: tvf.adjust_brightness(
            tvf.adjust_saturation(tvf.adjust_contrast(tvf.adjust_hue(x, 0.1), 0.6), 1.4), 1.3
        ),
    ),
    "grey": ({"grey": 1.0}, lambda x: tvf.rgb_to_grayscale(x, 3)),
}


@pytest.mark.parametrize("step", STEPS)
def test_each_step_is_torchvisions_on_uint8(step):
    drawn, reference = STEPS[step]
    image = photo()
    cropped = image if "crop" in drawn else tvf.resize(image, [SIZE, SIZE], antialias=True)
    # torchvision cuts off what is behind the point after each of its steps, and in the grey of which contrast wants
    # the mean: on average half a level each time.
    steps = {"all in an order": 5, "little contrast": 2}.get(step, 1)
    difference = (one_view(image, nothing() | drawn) * 255 - reference(cropped)).abs()
    assert difference.max() <= 2 * steps
    assert difference.mean() <= 0.5 * steps


@pytest.mark.parametrize("step", STEPS)
def test_each_step_is_torchvisions_on_floats(step):
    drawn, reference = STEPS[step]
    image = photo() / 255
    cropped = image if "crop" in drawn else tvf.resize(image, [SIZE, SIZE], antialias=True)
    torch.testing.assert_close(one_view(image, nothing() | drawn), reference(cropped), atol=3e-5, rtol=0)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("way", ["one", "batch", "dense"])
def test_steps_come_in_the_papers_order(way, dtype):
    """Crop, the local transform, flip, jitter, grey or blur: step by step with torchvision's functionals."""
    local = LocalTranslate(alpha=0.3)
    image, moved = photo(), local.make_params([torch.zeros(3, SIZE, SIZE)])
    image = image if dtype == torch.uint8 else image / 255
    for last in ({"grey": 1.0}, {"sigma": 1.5}):
        view = {"crop": [11, 7, 60, 91], "flip": True, "factors": [1.3, 1.0, 1.0], "hue": 0.1, "order": [0, 3, 1, 2]}
        drawn = {step: [value] for step, value in (nothing() | view | last).items()} | {"local": [moved]}
        views = SimCLRViews(SIZE, local, normalize=False, n_views=1)
        made = {
            "one": lambda views, drawn: views.transform(image, {"views": [drawn]})[0],
            "batch": lambda views, drawn: views.transform(image.unsqueeze(0), {"views": [drawn]})[0][0],
            "dense": lambda views, drawn: views._apply_to_all(image.unsqueeze(0), drawn, look=False)[0],
        }[way](views, drawn)
        x = tvf.resized_crop(image, 11, 7, 60, 91, [SIZE, SIZE], antialias=True)
        x = local.transform(x / 255 if dtype == torch.uint8 else x, moved)
        x = tvf.adjust_hue(tvf.adjust_brightness(tvf.horizontal_flip(x), 1.3), 0.1)
        x = tvf.rgb_to_grayscale(x, 3) if "grey" in last else tvf.gaussian_blur(x, [7, 7], [1.5, 1.5])
        difference = (made - x).abs()
        assert difference.max() < (1e-3 if dtype == torch.float32 else 2 / 255)
        assert difference.mean() < (1e-4 if dtype == torch.float32 else 0.5 / 255)


@pytest.mark.parametrize("sigma", [0.1, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("size", [SIZE, 224, 32])
def test_blur_is_torchvisions(sigma, size):
    """SimCLR's kernel: a tenth of the image, made odd."""
    image = torch.rand(3, size, size)
    views = SimCLRViews(size, normalize=False, n_views=1)
    view = nothing(size, size) | {"sigma": sigma}
    blurred = views.transform(image, {"views": [{step: [drawn] for step, drawn in view.items()}]})[0]
    kernel = 2 * (int(0.1 * size) // 2) + 1
    assert (blurred - tvf.gaussian_blur(image, [kernel, kernel], [sigma, sigma])).abs().max() < 1e-3


def test_normalised_by_imagenets_colours():
    image = photo()
    plain = one_view(image, nothing())
    normal = SimCLRViews(SIZE, n_views=1).transform(image, {"views": [{k: [v] for k, v in nothing().items()}]})[0]
    torch.testing.assert_close(normal, tvf.normalize(plain, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))


LOCALS = {
    "none": None,
    "translate": LocalTranslate(p=0.8),
    "composed": LocalAffine([LocalRotate(alpha=0.1), LocalTranslate()]),
    "composed in order": LocalAffine([LocalRotate(alpha=0.1), LocalTranslate()], order="given"),
    "color": LocalColorJitter(),
    "fold-free": LocalRotate(fold_free=True),
}


def one_by_one(views, images, drawn):
    """The reference: every sample alone, by the code that makes the views of one image."""
    made = []
    for view in drawn["views"]:
        its = [views.take({"views": [view]}, slice(i, i + 1))["views"][0] for i in range(len(images))]
        alone = []
        for image, one in zip(images, its, strict=True):
            local = {}
            if one.get("local"):
                local = {"local": one["local"][0] if isinstance(one["local"], list) else unbatched(one["local"])}
            plain = {name: value for name, value in one.items() if name != "local"}
            plain = {name: v.tolist() if isinstance(v, torch.Tensor) else v for name, v in plain.items()}
            alone.append(views._apply_to_one(image, {name: v[0] for name, v in plain.items()} | local))
        made.append(torch.stack(alone))
    return made


def unbatched(local):
    if "atoms" in local:
        order = local["order"]
        order = order[0].tolist() if isinstance(order, torch.Tensor) else order
        return {"atoms": [unbatched(atom) for atom in local["atoms"]], "order": order}
    return {name: value if name == "size" else value[0] for name, value in local.items()}


@pytest.mark.parametrize("local", LOCALS)
@pytest.mark.parametrize("shape", [(90, 130), (40, 33)])
@pytest.mark.parametrize("size", [SIZE, 80], ids=["together", "one by one"])
def test_ways_of_a_batch_agree(local, shape, size):
    """Samples one by one, small views together on the CPU, and what an accelerator does, from the same draws."""
    views, images = SimCLRViews(size, LOCALS[local], normalize=False), torch.rand(12, 3, *shape)
    drawn = views.make_params([images])
    made = views.transform(images, drawn)
    dense = [views._apply_to_all(images, view, look=False) for view in drawn["views"]]
    for ours, alone, blindly in zip(made, one_by_one(views, images, drawn), dense, strict=True):
        torch.testing.assert_close(ours, alone, atol=1e-3, rtol=0)
        torch.testing.assert_close(blindly, alone, atol=1e-3, rtol=0)


@pytest.mark.parametrize("local", LOCALS)
def test_small_views_are_made_in_pieces(local, monkeypatch):
    """A batch larger than the cache goes piece by piece; draws read back from JSON do too."""
    views, images = SimCLRViews(16, LOCALS[local]), torch.rand(7, 3, 30, 40)
    drawn = views.make_params([images])
    whole = views.transform(images, drawn)
    monkeypatch.setattr("randfield.views._PIXELS", 3 * 16 * 16)
    torch.testing.assert_close(views.transform(images, drawn), whole)
    read = json.loads(json.dumps(drawn, default=torch.Tensor.tolist))
    torch.testing.assert_close(views.transform(images, read), whole)


@pytest.mark.parametrize("size", [32, 80])
@pytest.mark.parametrize("local", LOCALS)
def test_take_is_a_part_of_the_batch(local, size):
    views, images = SimCLRViews(size, LOCALS[local], normalize=False), torch.rand(6, 3, 40, 50)
    drawn = views.make_params([images.new_empty(()).expand(6, 3, 40, 50)])  # only shape and device matter
    whole = views.transform(images, drawn)
    for part in (slice(2, 4), slice(1, None, 2)):
        mine = views.transform(images[part], views.take(drawn, part))
        torch.testing.assert_close(mine, [view[part] for view in whole], atol=1e-5, rtol=0)


@pytest.mark.parametrize("size", [16, 80], ids=["together", "one by one"])
@pytest.mark.parametrize("shape", [(2, 3, 30, 40), (4, 3, 30, 40), (3, 30, 40)])
def test_replay_on_a_batch_that_does_not_fit(size, shape):
    views = SimCLRViews(size, LocalTranslate())
    drawn = views.make_params([torch.zeros(3, 3, 30, 40)])
    with pytest.raises(
        ValueError, match=rf"drawn for 3 samples, but the input has shape {re.escape(str(shape))}.*take"
    ):
        views.transform(torch.zeros(shape), drawn)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_images_in_threads(mode):
    """The same views whatever the number of threads, which stays what it was; gradients where they are wanted."""
    views, images, before = SimCLRViews(80, LocalTranslate()), torch.rand(5, 3, 90, 100), torch.get_num_threads()
    drawn = views.make_params([images])
    try:
        torch.set_num_threads(1)
        alone = views.transform(images, drawn)
        torch.set_num_threads(3)
        with mode():
            source = images.clone().requires_grad_(mode is torch.enable_grad)
            made = views.transform(source, drawn)
            assert torch.get_num_threads() == 3
            torch.testing.assert_close(made, alone, atol=1e-4, rtol=0)
            if mode is torch.enable_grad:
                (gradient,) = torch.autograd.grad(torch.stack(made).sum(), source)
                assert gradient.abs().sum() > 0
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("size", [33, 81], ids=["together", "one by one"])
@pytest.mark.parametrize("look", [False, True])
@pytest.mark.parametrize("state", ["float64", "bfloat16", "meta"])
def test_default_dtype_and_device_change_nothing(size, look, state):
    """The size is of its own for each, for the caches."""
    size += 2 * look + {"float64": 100, "bfloat16": 200, "meta": 300}[state] * (size > 64)
    views, images = SimCLRViews(size, LocalTranslate(), generator=torch.Generator()), torch.rand(3, 3, 41, 43)
    photo = tvf.to_pil_image(images[0])
    made = []
    for usual in (False, True):
        views.generator.manual_seed(1)
        device = "cpu" if usual or state != "meta" else state
        torch.set_default_dtype(torch.float32 if usual or state == "meta" else getattr(torch, state))
        try:
            with torch.device(device):
                drawn = views.make_params([images])
                dense = [views._apply_to_all(images, view, look=False) for view in drawn["views"]] if not look else []
                made.append([*dense, *views.transform(images, drawn), *views(images[0]), *views(photo)])
        finally:
            torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(made[0], made[1], atol=1e-5, rtol=0)


def test_dense_arithmetic_compiles_whole():
    views, images = SimCLRViews(32, LocalTranslate()), torch.rand(5, 3, 40, 51)
    drawn = views.make_params([images])
    compiled = torch.compile(views.transform, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(images, drawn), views.transform(images, drawn), atol=1e-5, rtol=0)


# ------------------------------------------------------------------------------------------------------------- draws


def steps_of(n, height, width):
    return SimCLRViews(SIZE)._steps_of_all(torch.rand(n, 35), height, width)


@pytest.mark.parametrize("shape", [(90, 130), (30, 200), (200, 30), (1, 1)])
@pytest.mark.parametrize(
    "options", [{}, {"blur": False, "strength": 0.5, "crop_scale": (0.5, 0.6)}, {"strength": 1.25}]
)
def test_one_view_is_drawn_as_many_are(shape, options):
    views, u = SimCLRViews(SIZE, **options), torch.rand(500, 35, dtype=torch.float64)
    together = {step: drawn.tolist() for step, drawn in views._steps_of_all(u, *shape).items()}
    for i, numbers in enumerate(u.tolist()):
        alone = views._steps(numbers, *shape)
        assert alone["crop"] == together["crop"][i]
        assert alone["order"] == together["order"][i]
        assert alone["flip"] == together["flip"][i]
        assert alone["grey"] == together["grey"][i]
        assert alone["factors"] == pytest.approx(together["factors"][i], abs=1e-12)
        assert alone["hue"] == pytest.approx(together["hue"][i], abs=1e-12)
        assert alone["sigma"] == pytest.approx(together["sigma"][i], abs=1e-12)


def test_draws_are_simclrs():
    n, (height, width) = 20000, (90, 130)
    drawn = steps_of(n, height, width)

    def mean_is(values, expected):
        values = values.double()
        assert abs(values.mean() - expected) <= 4 * values.std() / math.sqrt(len(values))

    jittered = (drawn["factors"] != 1).any(-1)
    mean_is(drawn["flip"], 0.5)
    mean_is(jittered, 0.8)
    mean_is(drawn["grey"], 0.2)
    mean_is(drawn["sigma"] > 0, 0.5)
    mean_is(drawn["sigma"][drawn["sigma"] > 0], 1.05)
    mean_is(drawn["hue"][jittered].abs(), 0.1)
    assert drawn["hue"].abs().max() <= 0.2
    for op in range(3):
        mean_is(drawn["factors"][jittered][:, op], 1.0)
        mean_is((drawn["factors"][jittered][:, op] - 1).abs(), 0.4)
    for place in range(4):
        mean_is(drawn["order"][:, place] == 3, 0.25)
    assert drawn["sigma"][drawn["sigma"] > 0].min() >= 0.1
    assert drawn["sigma"].max() <= 2


@pytest.mark.parametrize("shape", [(90, 130), (30, 200), (200, 30)])
def test_crops_are_torchvisions(shape):
    """Against RandomResizedCrop: the same distribution of place and size, also where most tries do not fit."""
    n = 4000
    ours = steps_of(n, *shape)["crop"].double()
    reference = v2.RandomResizedCrop(SIZE, scale=(0.08, 1.0))
    image = torch.zeros(1, *shape)
    theirs = [reference.make_params([image]) for _ in range(n)]
    crops = torch.tensor([[p["top"], p["left"], p["height"], p["width"]] for p in theirs]).double()
    assert (ours[:, :2] >= 0).all()
    assert (ours[:, :2] + ours[:, 2:] <= torch.tensor(shape)).all()
    for moment in (1, 2):
        a, b = ours**moment, crops**moment
        error = (a.var(0) / n + b.var(0) / n).sqrt()
        assert ((a.mean(0) - b.mean(0)).abs() <= 4 * error + 1e-9).all()


def test_every_sample_and_view_has_its_own_draws():
    views = SimCLRViews(16, LocalTranslate())
    same = torch.rand(1, 3, 30, 40).expand(6, 3, 30, 40)
    flat = torch.cat(views(same)).flatten(1)
    assert torch.cdist(flat, flat).add(torch.eye(12) * 9).min() > 1e-3
    alike = SimCLRViews(16, LocalTranslate(), per_sample=False)(same)
    assert all(torch.equal(view, view[:1].expand_as(view)) for view in alike)
    assert not torch.equal(*alike)


def test_generator_and_replay():
    image = photo()
    views = SimCLRViews(SIZE, LocalRotate(), generator=torch.Generator().manual_seed(3))
    first = views(image)
    torch.manual_seed(99)
    again = SimCLRViews(SIZE, LocalRotate(), generator=torch.Generator().manual_seed(3))
    assert all(map(torch.equal, first, again(image)))
    drawn = again.make_params([image])
    replayed = again.transform(image, json.loads(json.dumps(drawn, default=torch.Tensor.tolist)))
    assert all(map(torch.equal, again.transform(image, drawn), replayed))


# -------------------------------------------------------------------------------------------------------- ways in


@pytest.mark.parametrize("kind", ["pil", "grey pil", "uint8", "float", "Image", "one channel", "palette"])
def test_images_of_every_kind(kind):
    image = photo()
    inpt = {
        "pil": lambda: tvf.to_pil_image(image),
        "grey pil": lambda: tvf.to_pil_image(image[:1]),
        "palette": lambda: tvf.to_pil_image(image).convert("P"),
        "uint8": lambda: image,
        "float": lambda: image / 255,
        "Image": lambda: tv_tensors.Image(image),
        "one channel": lambda: image[:1],
    }[kind]()
    before = inpt.copy() if isinstance(inpt, PIL.Image.Image) else inpt.clone()
    out, label = SimCLRViews(SIZE, LocalTranslate(), n_views=3)((inpt, "cat"))
    assert label == "cat"
    assert [(v.shape, v.dtype) for v in out] == [((3, SIZE, SIZE), torch.float32)] * 3
    assert (inpt == before) if isinstance(inpt, PIL.Image.Image) else bool((inpt == before).all())


def test_pil_and_tensor_agree():
    image = photo()
    views = SimCLRViews(SIZE, LocalTranslate())
    drawn = views.make_params([image])
    assert all(map(torch.equal, views.transform(image, drawn), views.transform(tvf.to_pil_image(image), drawn)))


def test_the_input_is_left_alone():
    """A crop of the whole image at its own size is no copy unless one is made."""
    image = torch.rand(3, SIZE, SIZE)
    before = image.clone()
    one_view(image, nothing(SIZE, SIZE) | {"factors": [0.5, 1.0, 1.0]})
    assert torch.equal(image, before)


@pytest.mark.parametrize("shape", [(0, 3, 30, 40), (1, 3, 1, 1), (2, 3, 1, 9)])
def test_small_and_empty_batches(shape):
    out = SimCLRViews(8, LocalTranslate())(torch.rand(shape))
    assert [v.shape for v in out] == [(shape[0], 3, 8, 8)] * 2


def test_tiny_views():
    assert SimCLRViews(1)(photo())[0].shape == (3, 1, 1)


def test_in_a_dataloader():
    dataset = datasets.FakeData(8, (3, 40, 50), transform=SimCLRViews(16, LocalTranslate(p=0.8)))
    (first, second), labels = next(iter(DataLoader(dataset, batch_size=8, num_workers=2)))
    assert first.shape == second.shape == (8, 3, 16, 16)
    assert labels.shape == (8,)


def test_config_round_trip():
    views = SimCLRViews(96, LocalTranslate(p=0.8), strength=0.5, blur=False, crop_scale=(0.2, 1.0), normalize=False)
    config = json.loads(json.dumps(views.config))
    assert SimCLRViews(**config).config == views.config
    assert repr(SimCLRViews(**config)) == repr(views)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size must be a whole number of at least 1, got 0"),
        ({"size": (224, 224)}, r"size must be a whole number .* got \(224, 224\)"),
        ({"size": 224.5}, "size must be a whole number .* got 224.5"),
        ({"n_views": 0}, "n_views must be a whole number of at least 1, got 0"),
        ({"strength": "strong"}, "strength must be in .* got 'strong'"),
        ({"blur": "no"}, "blur must be True or False, got 'no'"),
        ({"crop_scale": 0.5}, r"crop_scale .* got 0.5"),
        ({"crop_scale": (0.5,)}, r"crop_scale .* got \(0.5,\)"),
        ({"strength": -0.1}, r"strength must be in \[0, 1.25\], got -0.1"),
        ({"crop_scale": (0.5, 0.2)}, r"crop_scale .* got \(0.5, 0.2\)"),
        ({"crop_scale": (0.0, 1.0)}, "crop_scale"),
        ({"local": v2.ElasticTransform()}, "local must be a local transform"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        SimCLRViews(**options)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (torch.rand(4, 30, 40), r"got shape \(4, 30, 40\)"),
        (torch.rand(30, 40), r"got shape \(30, 40\)"),
        (torch.zeros(3, 30, 40, dtype=torch.int32), "got torch.int32"),
    ],
)
def test_bad_images(image, message):
    with pytest.raises(ValueError, match=message):
        SimCLRViews()(image)

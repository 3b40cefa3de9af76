"""What is compared, and with what: every peer as its own documentation uses it, on the same photographs.

Photographs are decoded, cropped and brought into the form a library takes (PIL image, uint8 array [H, W, C], uint8
tensor [C, H, W]) outside the stopwatch, with one exception: Kornia works on float batches, so its contenders that start
from uint8 include that conversion. Where a library takes several forms, each is a contender, and a target holds our
slowest against its fastest. Every `build` imports its library itself: what is not installed is reported as such.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor
from torchvision.transforms import v2
from torchvision.transforms.v2.functional import pil_to_tensor

from benchmarks.measure import Call, Case, Contender, Target, over

PHOTOS = Path(__file__).parents[1] / "docs" / "photos"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
KORNIA_BATCH = 16


# -------------------------------------------------------------------------------------------------------- photographs


def photographs(side: int) -> list[Image.Image]:
    """The photographs of the documentation, their largest centred square at side × side."""
    squares = []
    for path in sorted(PHOTOS.glob("*.jpg")):
        image = Image.open(path).convert("RGB")
        edge = min(image.size)
        left, top = (image.width - edge) // 2, (image.height - edge) // 2
        squares.append(image.resize((side, side), box=(left, top, left + edge, top + edge)))
    return squares


def photograph() -> Image.Image:
    """One decoded photo of 640×427. The file has 512×342 pixels; what a view costs depends on how many there are."""
    return Image.open(PHOTOS / "rocket.jpg").convert("RGB").resize((640, 427), Image.Resampling.BICUBIC)


def tensors(images: Sequence[Image.Image]) -> list[Tensor]:
    return [pil_to_tensor(image) for image in images]


def arrays(images: Sequence[Image.Image]) -> list[Any]:
    import numpy as np

    return [np.array(image) for image in images]


def batch(side: int, size: int) -> Tensor:
    """A uint8 batch [size, 3, side, side] of the photographs in turn."""
    planes = tensors(photographs(side))
    return torch.stack([planes[i % len(planes)] for i in range(size)])


def as_float(images: Tensor) -> Tensor:
    return images.to(torch.float32).div_(255)


# -------------------------------------------------------------------------------------- one image through one transform

# Each of these makes `build` functions: nothing is imported or made before the harness says so.


def on_tensors(make: Callable[[], Any], side: int = 224) -> Callable[[], Call]:
    return lambda: over(make(), tensors(photographs(side)))


def on_pil(make: Callable[[], Any], side: int = 224) -> Callable[[], Call]:
    return lambda: over(make(), photographs(side))


def sampling_alone(side: int = 224) -> Callable[[], Call]:
    """What every warp in PyTorch ends with: uint8 to float, grid_sample on a grid made beforehand, float to uint8."""

    def build() -> Call:
        theta = torch.tensor([[[0.9, 0.1, 0.0], [-0.1, 0.9, 0.0]]])
        grid = F.affine_grid(theta, [1, 3, side, side], align_corners=False)

        def sample(image: Tensor) -> Tensor:
            values = F.grid_sample(image[None].float(), grid, padding_mode="border", align_corners=False)
            return values.round_().to(torch.int16).to(torch.uint8)

        return over(sample, tensors(photographs(side)))

    return build


def with_albumentations(name: str, *args: Any, **options: Any) -> Callable[[], Call]:
    def build() -> Call:
        import albumentations

        transform = albumentations.Compose([getattr(albumentations, name)(*args, **options, p=1.0)])
        return over(lambda image: transform(image=image)["image"], arrays(photographs(224)))

    return build


def with_kornia(name: str, *args: Any, size: int, converted: bool = False) -> Callable[[], Call]:
    """A Kornia augmentation on float batches of `size`, or `converted` from uint8 within the stopwatch."""

    def build() -> Call:
        import kornia.augmentation

        transform = getattr(kornia.augmentation, name)(*args, p=1.0)
        images = batch(224, size)
        if converted:
            return lambda: transform(as_float(images))
        values = as_float(images)
        return lambda: transform(values)

    return build


def with_monai(name: str, **options: Any) -> Callable[[], Call]:
    def build() -> Call:
        import monai.transforms

        # MONAI takes any dtype and computes and returns float32.
        return over(getattr(monai.transforms, name)(**options, prob=1.0), tensors(photographs(224)))

    return build


def ours(name: str, *atoms: str, **options: Any) -> Callable[[], Any]:
    """A transform of randfield's, composed of `atoms` if there are any."""

    def make() -> Any:
        import randfield

        transforms = ([getattr(randfield, atom)() for atom in atoms],) if atoms else ()
        return getattr(randfield, name)(*transforms, **options)

    return make


def without_kernels(build: Callable[[], Call]) -> Callable[[], Call]:
    """The same by PyTorch alone, as it is where no C compiler was at hand when randfield was installed."""

    def built() -> Call:
        from randfield import kernels

        call = build()

        def alone() -> object:
            with kernels.left_out():
                return call()

        return alone

    return built


# ------------------------------------------------------------------------------------------------------------ subjects


def transforms() -> list[Case]:
    warps = ("LocalTranslate", "LocalShear", "LocalScale", "LocalRotate")
    what = "`LocalTranslate`, `LocalShear`, `LocalScale`, `LocalRotate`"
    kornia = tuple(
        Contender(
            f"Kornia RandomElasticTransform, {form}",
            with_kornia("RandomElasticTransform", size=size, converted=converted),
            library="kornia",
            items=size,
        )
        for form, size, converted in (
            ("float", 1, False),
            ("from uint8", 1, True),
            (f"float, batch of {KORNIA_BATCH}", KORNIA_BATCH, False),
        )
    )
    elastic = Case(
        name="warp",
        title="A smooth random warp of one image, uint8 224²",
        contenders=(
            *(Contender(name, on_tensors(ours(name))) for name in warps),
            Contender("LocalTranslate by PyTorch alone", without_kernels(on_tensors(ours("LocalTranslate")))),
            Contender(
                "AlbumentationsX ElasticTransform", with_albumentations("ElasticTransform"), library="albumentationsx"
            ),
            Contender(
                "torchvision ElasticTransform, tensor", on_tensors(lambda: v2.ElasticTransform()), library="torchvision"
            ),
            Contender(
                "torchvision ElasticTransform, PIL", on_pil(lambda: v2.ElasticTransform()), library="torchvision"
            ),
            *kornia,
            Contender("grid_sample alone, on a grid made beforehand", sampling_alone(), library="torch"),
            Contender(
                "MONAI Rand2DElastic",
                with_monai("Rand2DElastic", spacing=(30, 30), magnitude_range=(5, 6), padding_mode="zeros"),
                library="monai",
            ),
        ),
        ours=warps,
        targets=(
            Target(what, warps, ("AlbumentationsX ElasticTransform",), 0.9),
            Target(what, warps, ("torchvision ElasticTransform, tensor", "torchvision ElasticTransform, PIL"), 1 / 30),
            Target(what, warps, tuple(c.name for c in kornia), 1 / 6),
        ),
        notes=(
            "Everyone's own defaults, applied with certainty; MONAI has none, its settings are those of its tutorial.",
            "uint8 in and out for randfield, torchvision and AlbumentationsX. Kornia and MONAI return float32.",
            "torchvision's default field is rough (a Gaussian of 5 pixels); one as smooth as ours would cost it more.",
            "grid_sample alone is the floor of a warp in PyTorch; our kernel and OpenCV's remap take six tenths of it.",
            "Of `LocalTranslate`, two fifths are sampling, a fifth the field; moving, drawing, Python have the rest.",
            "AlbumentationsX enlarges 7 × 7 displacements by a matrix product; ours are sums of waves of exact bounds.",
        ),
    )
    one = ("LocalAffine of LocalTranslate", "LocalAffine of LocalRotate")
    two = "LocalAffine of LocalRotate and LocalTranslate"
    composed = Case(
        name="compose",
        title="Two atoms in one resampling, uint8 224²",
        contenders=(
            Contender(one[0], on_tensors(ours("LocalAffine", "LocalTranslate"))),
            Contender(one[1], on_tensors(ours("LocalAffine", "LocalRotate"))),
            Contender(two, on_tensors(ours("LocalAffine", "LocalRotate", "LocalTranslate"))),
        ),
        ours=(two,),
        targets=(Target("`LocalAffine` of two atoms", (two,), one, 1.6),),
        notes=("The one atom of the target is the faster of the two.",),
    )
    return [elastic, composed]


def color() -> list[Case]:
    strength = (0.8, 0.8, 0.8, 0.2)  # SimCLR's
    torchvision = ("torchvision ColorJitter, tensor", "torchvision ColorJitter, PIL")
    return [
        Case(
            name="color",
            title="Colour jitter of one image, uint8 224²",
            contenders=(
                Contender("LocalColorJitter", on_tensors(ours("LocalColorJitter"))),
                Contender("LocalColorJitter by PyTorch alone", without_kernels(on_tensors(ours("LocalColorJitter")))),
                Contender(torchvision[0], on_tensors(lambda: v2.ColorJitter(*strength)), library="torchvision"),
                Contender(torchvision[1], on_pil(lambda: v2.ColorJitter(*strength)), library="torchvision"),
                Contender(
                    "AlbumentationsX ColorJitter",
                    with_albumentations("ColorJitter", (0.2, 1.8), (0.2, 1.8), (0.2, 1.8), (-0.2, 0.2)),
                    library="albumentationsx",
                ),
                Contender("Kornia ColorJitter, float", with_kornia("ColorJitter", *strength, size=1), library="kornia"),
                Contender(
                    "Kornia ColorJitter, from uint8",
                    with_kornia("ColorJitter", *strength, size=1, converted=True),
                    library="kornia",
                ),
                Contender(
                    f"Kornia ColorJitter, float, batch of {KORNIA_BATCH}",
                    with_kornia("ColorJitter", *strength, size=KORNIA_BATCH),
                    library="kornia",
                    items=KORNIA_BATCH,
                ),
            ),
            ours=("LocalColorJitter",),
            targets=(Target("`LocalColorJitter`", ("LocalColorJitter",), torchvision, 0.5),),
            notes=(
                "Peers: brightness, contrast, saturation and hue by one number each (SimCLR's 0.8, 0.8, 0.8, 0.2).",
                "randfield: a field each for hue, saturation and value.",
            ),
        )
    ]


def fields() -> list[Case]:
    size, gamma = 224, 8.0

    def randfield(tolerance: float) -> Callable[[], Call]:
        def build() -> Call:
            import randfield

            return lambda: randfield.sample_field((size, size), gamma=gamma, tolerance=tolerance)

        return build

    def fyeld() -> Call:
        import numpy as np
        from FyeldGenerator import generate_field

        def noise(shape: tuple[int, ...]) -> Any:
            return np.random.normal(size=shape) + 1j * np.random.normal(size=shape)  # noqa: NPY002  # as its README

        return lambda: generate_field(noise, lambda k: np.power(k, -gamma), (size, size))

    def powerbox() -> Call:
        from powerbox import PowerBox

        box = PowerBox(shape=(size, size), pk=lambda k: k**-gamma, nthreads=1)
        return box.delta_x  # a new field at every call

    def noise_and_transform() -> Call:
        half = (size, size // 2 + 1)

        def call() -> Tensor:
            return torch.fft.irfft2(torch.complex(torch.randn(half), torch.randn(half)), s=(size, size))

        return call

    def gstools(generator: str, **options: Any) -> Callable[[], Call]:
        def build() -> Call:
            import gstools
            import numpy as np

            gstools.config.NUM_THREADS = torch.get_num_threads()
            # The Matérn spectrum falls off as k^-(2 nu + 2): nu = 3 is gamma = 8.
            model = gstools.Matern(dim=2, nu=gamma / 2 - 1, len_scale=size / 4)
            fields, pixels, seeds = gstools.SRF(model, generator=generator, **options), np.arange(float(size)), count()
            return lambda: fields.structured([pixels, pixels], seed=next(seeds), store=False)

        return build

    what, whole = "a field 224², gamma 8, to 1e-4 of its standard deviation", "the same with every wave"
    cut, all_waves = "sample_field, tolerance=1e-4", "sample_field, every wave"
    return [
        Case(
            name="fields",
            title="A Gaussian random field of 224², power spectrum k⁻⁸",
            contenders=(
                Contender(cut, randfield(1e-4)),
                Contender(all_waves, randfield(0.0)),
                Contender("noise and an inverse FFT alone", noise_and_transform, library="torch"),
                Contender("FyeldGenerator", fyeld, library="FyeldGenerator"),
                Contender("powerbox", powerbox, library="powerbox"),
                Contender("GSTools, randomization method", gstools("RandMeth"), library="gstools"),
                Contender(
                    "GSTools, Fourier method",
                    gstools("Fourier", period=[size] * 2, mode_no=[16] * 2),
                    library="gstools",
                ),
            ),
            ours=(cut,),
            targets=tuple(
                Target(name, (mine,), (peer,), at_most)
                for name, mine in ((what, cut), (whole, all_waves))
                for peer, at_most in (
                    ("FyeldGenerator", 1 / 10),
                    ("powerbox", 1 / 10),
                    ("GSTools, randomization method", 1 / 1000),
                )
            ),
            notes=(
                "FyeldGenerator, powerbox and GSTools compute in float64, we in float32.",
                "FyeldGenerator and powerbox sum every wave of the grid, as we do by default.",
                "Noise and an inverse FFT alone, in float32, are the floor for every wave; half of it is the noise.",
                "tolerance=1e-4 leaves out the shortest waves, a ten-thousandth of the field's standard deviation.",
                "GSTools has no power law; its Matérn model with nu = 3 falls off as k⁻⁸.",
                "Its default, the randomization method, has 1000 modes; the Fourier method here 16 × 16, periodic.",
            ),
        )
    ]


def views() -> list[Case]:
    return [_photo_views(), _batch_views()]


def _photo_views() -> Case:
    local = ("randfield with LocalTranslate, PIL", "randfield with LocalTranslate, tensor")
    torchvision = ("torchvision, PIL", "torchvision, tensor")

    def randfield(form: Callable[[Image.Image], Any], *, field: bool) -> Callable[[], Call]:
        return lambda: _pair(simclr_views(field=field), form(photograph()))

    def twice(make: Callable[[], Callable[[Any], Tensor]], form: Callable[[Image.Image], Any]) -> Callable[[], Call]:
        def build() -> Call:
            view = make()
            return _pair(lambda image: [view(image), view(image)], form(photograph()))

        return build

    def lightly() -> Call:
        # lightly registers its datasets' tables on import, which warns of what it finds installed beside it.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from lightly.transforms import SimCLRTransform
        return _pair(SimCLRTransform(input_size=224), photograph())

    what = "one view with `LocalTranslate(p=0.8)` from a 640×427 photo"
    return Case(
        name="view",
        title="One SimCLR view of 224² from a photo of 640×427",
        contenders=(
            Contender(local[0], randfield(_itself, field=True), items=2),
            Contender(local[1], randfield(pil_to_tensor, field=True), items=2),
            Contender(
                "randfield with LocalTranslate by PyTorch alone, PIL",
                without_kernels(randfield(_itself, field=True)),
                items=2,
            ),
            Contender("randfield without a field, PIL", randfield(_itself, field=False), items=2),
            Contender("randfield without a field, tensor", randfield(pil_to_tensor, field=False), items=2),
            Contender(torchvision[0], twice(torchvision_view, _itself), library="torchvision", items=2),
            Contender(torchvision[1], twice(torchvision_view, pil_to_tensor), library="torchvision", items=2),
            Contender("lightly SimCLRTransform, PIL", lightly, library="lightly", items=2),
            Contender(
                "AlbumentationsX",
                twice(albumentations_view, lambda image: arrays([image])[0]),
                library="albumentationsx",
                items=2,
            ),
        ),
        ours=local,
        calls=16,
        targets=(
            Target(f"{what}, theirs without it", local, torchvision, 1 / 4),
            Target(f"{what}, theirs without it", local, ("lightly SimCLRTransform, PIL",), 0.6),
            Target(f"{what}, theirs without it (a reach)", local, ("AlbumentationsX",), 1.0),
        ),
        notes=(
            "The photo is rocket.jpg of the documentation, 512×342, enlarged to 640×427 and decoded beforehand.",
            "A call makes the two views that SimCLR needs, normalised float tensors; the time is half of that.",
            "lightly and randfield make pairs, the others are called twice.",
            "Everywhere: crop and resize, flip, colour jitter (p 0.8), grey (p 0.2), Gaussian blur (p 0.5), normalise.",
            "AlbumentationsX resizes without antialiasing, its default; it and lightly blur by Pillow's approximation.",
        ),
    )


def _batch_views() -> Case:
    size, side, local = 64, 256, "randfield with LocalTranslate, batch"

    def randfield(*, field: bool) -> Callable[[], Call]:
        return lambda: _batch_pair(simclr_views(field=field), batch(side, size))

    def kornia(container: str) -> Callable[[], Call]:
        return lambda: _batch_pair(kornia_views(container), batch(side, size))

    def one_by_one() -> Call:
        view, images = albumentations_view(), arrays(photographs(side))
        photos = [images[i % len(images)] for i in range(size)]
        return lambda: [torch.stack([view(photo) for photo in photos]) for _ in range(2)]

    kornias = ("Kornia AugmentationSequential, batch", "Kornia nn.Sequential, batch")
    return Case(
        name="views",
        title="SimCLR views of 224² from a batch of 64 × 256² uint8, per view",
        threads=2,
        ours=(local,),
        contenders=(
            Contender(local, randfield(field=True), items=2 * size),
            Contender("randfield without a field, batch", randfield(field=False), items=2 * size),
            Contender(kornias[0], kornia("AugmentationSequential"), library="kornia", items=2 * size),
            Contender(kornias[1], kornia("Sequential"), library="kornia", items=2 * size),
            Contender("AlbumentationsX, image by image", one_by_one, library="albumentationsx", items=2 * size),
        ),
        targets=(
            Target(
                "batch of 64, two threads, a view with `LocalTranslate(p=0.8)` from 256² uint8, theirs without it",
                (local,),
                kornias,
                1 / 4,
            ),
        ),
        notes=(
            "Every sample has its own draw, in every library.",
            "Kornia's conversion from uint8 to float is included, once for both views.",
            "AlbumentationsX has no batch of different draws: image by image, on the two threads OpenCV is given.",
        ),
    )


# ----------------------------------------------------------------------------------------------------- SimCLR pipelines


def simclr_views(*, field: bool, size: int = 224) -> Callable[[Any], list[Tensor]]:
    import randfield

    local = randfield.LocalTranslate(p=0.8) if field else None
    views: Callable[[Any], list[Tensor]] = randfield.SimCLRViews(size=size, local=local)
    return views


def torchvision_view(size: int = 224) -> Callable[[Any], Tensor]:
    return v2.Compose(
        [
            v2.RandomResizedCrop(size, antialias=True),
            v2.RandomHorizontalFlip(),
            v2.RandomApply([v2.ColorJitter(0.8, 0.8, 0.8, 0.2)], p=0.8),
            v2.RandomGrayscale(p=0.2),
            v2.RandomApply([v2.GaussianBlur(23, sigma=(0.1, 2.0))], p=0.5),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
        ]
    )


def albumentations_view(size: int = 224) -> Callable[[Any], Tensor]:
    import albumentations as A
    from albumentations.pytorch import ToTensorV2

    compose = A.Compose(
        [
            A.RandomResizedCrop((size, size), scale=(0.08, 1.0)),
            A.HorizontalFlip(p=0.5),
            A.ColorJitter((0.2, 1.8), (0.2, 1.8), (0.2, 1.8), (-0.2, 0.2), p=0.8),
            A.ToGray(p=0.2),
            A.GaussianBlur(sigma_range=(0.1, 2.0), p=0.5),
            A.Normalize(MEAN, STD),
            ToTensorV2(),
        ]
    )
    return lambda image: compose(image=image)["image"]


def kornia_views(container: str, size: int = 224, device: str = "cpu") -> Callable[[Tensor], list[Tensor]]:
    """Two views of a uint8 batch by Kornia, in its `AugmentationSequential` or PyTorch's `Sequential`."""
    import kornia.augmentation as K

    steps = [
        K.RandomResizedCrop((size, size), scale=(0.08, 1.0)),
        K.RandomHorizontalFlip(p=0.5),
        K.ColorJitter(0.8, 0.8, 0.8, 0.2, p=0.8),
        K.RandomGrayscale(p=0.2),
        K.RandomGaussianBlur((23, 23), (0.1, 2.0), p=0.5),
        K.Normalize(torch.tensor(MEAN), torch.tensor(STD)),
    ]
    view = (K.AugmentationSequential if container == "AugmentationSequential" else torch.nn.Sequential)(*steps)
    view.to(device)

    def views(images: Tensor) -> list[Tensor]:
        values = as_float(images)
        return [view(values), view(values)]

    return views


# A pipeline shows what it makes before it is timed: a contender that does less work than the others has not won.


def _pair(views: Callable[[Any], Sequence[Tensor]], image: Any) -> Call:
    _check(views(image), (3, 224, 224))
    return lambda: views(image)


def _batch_pair(views: Callable[[Tensor], Sequence[Tensor]], images: Tensor) -> Call:
    made = views(images[:1].expand(8, -1, -1, -1).clone())
    _check(made, (8, 3, 224, 224))
    if any(torch.equal(a, b) for view in made for a, b in pairwise(view)):
        raise RuntimeError("equal images have equal views: not every sample has its own draw")
    return lambda: views(images)


def _check(made: Sequence[Tensor], shape: tuple[int, ...]) -> None:
    found = [(tuple(view.shape), view.dtype) for view in made]
    if found != [(shape, torch.float32)] * 2:
        raise RuntimeError(f"expected two float32 views of shape {shape}, got {found}")


def _itself(image: Image.Image) -> Image.Image:
    return image

"""Our own cost against image size, batch, gamma, number of atoms and workers, with the memory that goes with it."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from benchmarks.cases import batch, ours, photograph, simclr_views
from benchmarks.measure import Call, Case, Contender, Target, over, set_threads

SIDES = (64, 128, 224, 512, 1024)
BATCHES = (1, 4, 16, 64, 256)
GAMMAS = (3, 4, 5, 6, 7, 8, 9, 10)
ATOMS = ("LocalTranslate", "LocalRotate", "LocalScale", "LocalShear")
WORKERS = (0, 1, 2)
PHOTOS_PER_EPOCH = 96


def curves() -> list[Case]:
    return [_sides(), _batches(), _gammas(), _atoms(), _workers()]


def _on(make: Callable[[], Any], images: Callable[[], Tensor]) -> Callable[[], Call]:
    """A transform of ours on a batch, or on the images of one in turn where `make` gives no batch transform."""

    def build() -> Call:
        transform, inputs = make(), images()
        return lambda: transform(inputs)

    return build


def _sides() -> Case:
    def points(name: str) -> list[Contender]:
        def at(side: int) -> Contender:
            def build() -> Call:
                return over(ours(name)(), batch(side, 3))

            return Contender(name, build, items=side * side, x=side, holds=3 * side * side)

        return [at(side) for side in SIDES]

    def field(side: int) -> Contender:
        def build() -> Call:
            import randfield

            return lambda: randfield.sample_field((side, side), gamma=8.0)

        return Contender("sample_field", build, items=side * side, x=side)

    names = ("LocalTranslate", "LocalColorJitter")
    return Case(
        name="sides",
        title="One uint8 image, by its side",
        axis="side of the image, pixels",
        unit=("ns per pixel", 1e9),
        contenders=(*(c for name in names for c in points(name)), *map(field, SIDES)),
        targets=tuple(
            Target(f"`{name}`: 1024² against 224², per pixel", (f"{name} @ 1024",), (f"{name} @ 224",), 2.0)
            for name in (*names, "sample_field")
        ),
    )


def _batches() -> Case:
    def at(name: str, size: int) -> Contender:
        return Contender(
            name,
            _on(ours(name, per_sample=True), lambda: batch(224, size)),
            items=size,
            x=size,
            holds=size * 3 * 224 * 224,
        )

    def views(size: int) -> Contender:
        return Contender(
            "SimCLRViews with LocalTranslate",
            _on(lambda: simclr_views(field=True), lambda: batch(256, size)),
            items=2 * size,
            x=size,
            holds=size * 3 * 256 * 256,
        )

    return Case(
        name="batches",
        title="A uint8 batch with its own draw for every sample, by its size",
        axis="images in the batch",
        unit=("ms per image or view", 1e3),
        contenders=(
            *(at(name, size) for name in ("LocalTranslate", "LocalColorJitter") for size in BATCHES),
            *map(views, BATCHES),
        ),
        notes=("Views are of 224² from images of 256², the others keep 224².",),
    )


def _gammas() -> Case:
    def warp(gamma: float) -> Contender:
        return Contender("LocalTranslate", lambda: over(ours("LocalTranslate", gamma=gamma)(), batch(224, 3)), x=gamma)

    def field(gamma: float) -> Contender:
        def build() -> Call:
            import randfield

            return lambda: randfield.sample_field((224, 224), gamma=gamma)

        return Contender("sample_field", build, x=gamma)

    return Case(
        name="gammas",
        title="One uint8 image of 224², by the smoothness of the field",
        axis="gamma",
        contenders=(*map(warp, GAMMAS), *map(field, GAMMAS)),
    )


def _atoms() -> Case:
    def at(n: int) -> Contender:
        return Contender(
            "LocalAffine", lambda: over(ours("LocalAffine", *ATOMS[:n])(), batch(224, 3)), x=n, holds=3 * 224 * 224
        )

    return Case(
        name="atoms",
        title="LocalAffine on one uint8 image of 224², by its atoms",
        axis="atoms",
        contenders=tuple(at(n) for n in range(1, len(ATOMS) + 1)),
        notes=(f"In this order: {', '.join(ATOMS)}.",),
    )


# ------------------------------------------------------------------------------------------------------------- workers


class Photos(Dataset[list[Tensor]]):
    """A photograph of 640×427 held as a JPEG file; an item is decoded, then made into views."""

    def __init__(self, views: Callable[[Image.Image], list[Tensor]] | None) -> None:
        file = io.BytesIO()
        photograph().save(file, "JPEG", quality=90)
        self.file = file.getvalue()
        self.views = views

    def __len__(self) -> int:
        return PHOTOS_PER_EPOCH

    def __getitem__(self, index: int) -> list[Tensor]:
        image = Image.open(io.BytesIO(self.file)).convert("RGB")
        return [torch.empty(0)] if self.views is None else self.views(image)


def one_thread(_: int) -> None:
    set_threads(1)


def _workers() -> Case:
    def at(name: str, make: Callable[[], Any], workers: int) -> Contender:
        def build() -> Call:
            loader = DataLoader(
                Photos(make()),
                batch_size=16,
                num_workers=workers,
                persistent_workers=workers > 0,
                worker_init_fn=one_thread,
            )
            return lambda: sum(1 for _ in loader)

        return Contender(name, build, items=PHOTOS_PER_EPOCH, x=workers)

    return Case(
        name="workers",
        title="A DataLoader from a JPEG file of 640×427 to two views, by its workers",
        axis="workers (0: in the main process)",
        unit=("ms per photo", 1e3),
        contenders=(
            *(at("decode and SimCLRViews with LocalTranslate", lambda: simclr_views(field=True), n) for n in WORKERS),
            *(at("decode alone", lambda: None, n) for n in WORKERS),
        ),
        notes=(
            "Every process has one thread. The main process takes some of a core to collect what the workers make.",
        ),
    )

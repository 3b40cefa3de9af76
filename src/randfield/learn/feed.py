"""Batches: which images come when, and in what form.

An order is drawn for each epoch and cut into global batches, of which every process takes its share; a key names one
share, so that neither the number of processes nor of workers changes what is in a batch. Images of one size that fit
the memory are decoded once, and views of a batch are made where the encoder is. Others are decoded by workers: for an
encoder on an accelerator they crop, and the rest of the views is made there; without one they make whole views.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as tvf

from randfield.learn.data import Images
from randfield.seeds import seed_of
from randfield.views import SimCLRViews

__all__ = ["Feed", "Key", "Order"]


@dataclass(frozen=True)
class Key:
    """One process's share of a batch."""

    epoch: int
    step: int
    indices: tuple[int, ...]


class Order(Sampler[Key]):
    """The shares of one process in each epoch; Lightning tells it the epoch."""

    def __init__(self, count: int, batch_size: int, seed: int, rank: int, world: int) -> None:
        self.count, self.batch_size, self.seed, self.rank, self.world = count, batch_size, seed, rank, world
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.count // self.batch_size

    def __iter__(self) -> Iterator[Key]:
        generator = torch.Generator().manual_seed(seed_of(self.seed, "order", self.epoch))
        order = torch.randperm(self.count, generator=generator)
        share = self.batch_size // self.world
        for step in range(len(self)):
            start = step * self.batch_size + self.rank * share
            yield Key(self.epoch, step, tuple(order[start : start + share].tolist()))


class Decoded(Dataset[dict[str, Any]]):
    """Shares of images in memory, as uint8."""

    def __init__(self, images: Tensor) -> None:
        self.images = images

    def __getitem__(self, key: Key) -> dict[str, Any]:
        return {"epoch": key.epoch, "step": key.step, "images": self.images[list(key.indices)]}


class Streamed(Dataset[dict[str, Any]]):
    """Shares of images decoded and done to one by one, each by a seed of its own: `do` makes the two of a pair."""

    def __init__(self, images: Images, do: Callable[[Tensor], Sequence[Tensor]], made: str, seed: int) -> None:
        self.images, self.do, self.made, self.seed = images, do, made, seed

    def __getitem__(self, key: Key) -> dict[str, Any]:
        pairs = []
        with torch.random.fork_rng(devices=()):
            for index in key.indices:
                image, _ = self.images[index]
                torch.manual_seed(seed_of(self.seed, "views", key.epoch, index))
                pairs.append(self.do(tvf.pil_to_tensor(image)))
        return {
            "epoch": key.epoch,
            "step": key.step,
            self.made: [torch.stack(images) for images in zip(*pairs, strict=True)],
            "broken": self.images.broken,  # known to a worker, but not yet to the process that it works for
        }


def _crops_of(views: SimCLRViews) -> Callable[[Tensor], list[Tensor]]:
    """The first step of views alone, as torchvision does it: uint8, a quarter of the bytes of a view."""
    crop = v2.RandomResizedCrop(views.size, scale=views.crop_scale, antialias=True)
    return lambda image: [crop(image) for _ in range(views.n_views)]


class Feed:
    """The images of a run, as batches of `batch_size` over all processes; `crops` if an accelerator makes the views."""

    def __init__(
        self,
        images: Images,
        views: SimCLRViews,
        *,
        batch_size: int,
        seed: int,
        workers: int = 1,
        crops: bool = False,
    ) -> None:
        if len(images) < batch_size:
            raise ValueError(
                f"batch_size is {batch_size}, but {images.name} has {len(images)} images; choose a smaller batch"
            )
        self.images, self.batch_size, self.seed = images, batch_size, seed
        self.stack = images.stacked()
        self.dataset: Dataset[dict[str, Any]]
        if self.stack is not None:
            self.dataset, self.workers = Decoded(self.stack), 0
        else:
            do, made = (_crops_of(views), "crops") if crops else (views, "views")
            self.dataset = Streamed(images, do, made, seed)
            self.workers = workers

    def loader(self, rank: int = 0, world: int = 1, *, epoch: int = 0) -> DataLoader[dict[str, Any]]:
        if self.batch_size % world:
            raise ValueError(f"batch_size {self.batch_size} cannot be shared by {world} processes; choose a multiple")
        order = Order(len(self.images), self.batch_size, self.seed, rank, world)
        order.set_epoch(epoch)
        return DataLoader(
            self.dataset,
            sampler=order,
            batch_size=None,  # a key is a whole share
            num_workers=self.workers,
            persistent_workers=self.workers > 0,
            multiprocessing_context="fork" if self.workers else None,  # what reads an image need not be picklable
            pin_memory=torch.cuda.is_available(),
        )

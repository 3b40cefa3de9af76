"""What a frozen encoder knows: a linear classifier on its features, or their nearest neighbours (section 4).

`sgd` is the protocol of the papers: random crops and flips, new ones in every epoch, through the frozen encoder to a
linear layer. `fast` looks at every image once and trains the layer on the features it kept, each brought to zero mean
and unit variance. `knn` asks the twenty nearest neighbours. The learning rate is chosen on a tenth of the images to
train on, which are kept apart for that; then the layer is trained on all of them, and judged once on the others. That
the encoder has not changed by a bit is checked, not assumed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from lightly.utils.benchmarking import knn_predict
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchmetrics.functional.classification import multiclass_accuracy
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as tvf

from randfield.learn.data import Data, DataError, Images, fitted, normalized
from randfield.learn.feed import Key, Order
from randfield.seeds import seed_of

__all__ = ["PROTOCOLS", "Protocol", "features", "fingerprint", "knn", "probe"]

Protocol = Literal["sgd", "fast", "knn"]
PROTOCOLS: tuple[Protocol, ...] = ("sgd", "fast", "knn")
_RATES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)  # for a batch of 256
_EPOCHS = {"sgd": 90, "fast": 30}  # 90 as in SimCLR's linear evaluation
_BATCH = 256

Progress = Callable[[str, int, int], None]
"""Told what is done, how much of it, and of how much."""


def _silent(what: str, done: int, of: int) -> None:
    pass


def probe(
    encoder: nn.Module,
    data: Data,
    *,
    protocol: Protocol = "fast",
    size: int,
    epochs: int | None = None,
    seed: int = 0,
    bf16: bool = True,
    device: torch.device | str = "cpu",
    workers: int = 0,
    progress: Progress = _silent,
) -> dict[str, Any]:
    """Judge an encoder: {"top1", "top5", "n", "protocol", …}, accuracies as shares of the n images to judge by."""
    if protocol not in PROTOCOLS:
        raise ValueError(f"protocol must be one of {', '.join(PROTOCOLS)}, got {protocol!r}")
    train, test = _labelled(data)
    assert train.labels is not None
    assert test.labels is not None
    classes = 1 + int(max(train.labels.max(), test.labels.max()))
    device = torch.device(device)
    before = fingerprint(encoder)
    encoder = encoder.to(device).eval()
    look = _Look(encoder, size, device, bf16, workers, progress)
    result: dict[str, Any] = {"protocol": protocol, "n": len(test), "classes": classes}
    judged, truth = look(test, "images to judge by")
    if protocol == "knn":
        scores = knn_scores(judged, *look(train, "images to compare with"), classes)
    else:
        epochs = epochs or _EPOCHS[protocol]
        if protocol == "fast":
            kept, labels = look(train, "images to train on")
            mean, deviation = kept.mean(0), kept.std(0).clamp_min(1e-6)
            kept, judged = (kept - mean) / deviation, (judged - mean) / deviation
            source: _Source = _Kept(kept, labels, seed)
        else:
            source = _Augmented(look, train, size, seed)
        apart, rest = _held_out(train.labels, seed)
        shape: dict[str, Any] = {"epochs": epochs, "classes": classes, "width": judged.shape[1], "progress": progress}
        heads = _heads(source, rest, _RATES, what="learning rates", **shape)
        held, told = source.plain(apart)
        rates = [_accuracy(_scores(head, held), told, classes, 1) for head in heads]
        best = max(range(len(_RATES)), key=rates.__getitem__)
        everyone = torch.arange(len(train))
        (head,) = _heads(source, everyone, _RATES[best : best + 1], what="linear layer", **shape)
        scores = _scores(head, judged)
        result |= {"learning_rate": _RATES[best], "held_out_top1": rates[best], "epochs": epochs}
    result |= {f"top{k}": _accuracy(scores, truth, classes, min(k, classes)) for k in (1, 5)}
    if fingerprint(encoder) != before:
        raise RuntimeError("the encoder changed while it was judged; it has layers that learn without gradients")
    return result


def _labelled(data: Data) -> tuple[Images, Images]:
    if data.train.labels is None:
        raise DataError(
            f"{data.name} has no classes, and a probe needs them: a folder for each class, or a column of labels. "
            "For pretraining it will do"
        )
    if data.test is None or data.test.labels is None:
        raise DataError(f"{data.name} has no labelled images to judge by; add a folder or a split named val or test")
    lacking = sorted(set(data.test.labels.tolist()) - set(data.train.labels.tolist()))
    if lacking:
        named = [data.test.classes[i] if data.test.classes else str(i) for i in lacking[:5]]
        raise DataError(
            f"{data.name}: labels of images to judge by that no image to train on has: "
            f"{', '.join(named)}{' …' if len(lacking) > 5 else ''}; complete train, or leave these out"
        )
    return data.train, data.test


def fingerprint(module: nn.Module) -> str:
    """A hash of every parameter and buffer."""
    digest = hashlib.sha256()
    for name, value in sorted(module.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


# ----------------------------------------------------------------------------------------------------------- features


def features(
    encoder: nn.Module,
    images: Images,
    *,
    size: int,
    device: torch.device | str = "cpu",
    bf16: bool = True,
    workers: int = 0,
) -> Tensor:
    """Features [n, d] of images as they are judged, whole and without augmentation."""
    return _Look(encoder.to(device).eval(), size, torch.device(device), bf16, workers, _silent)(images, "")[0]


class _Look:
    """A frozen encoder's view of images: features, and the labels of what was really seen."""

    def __init__(
        self, encoder: nn.Module, size: int, device: torch.device, bf16: bool, workers: int, progress: Progress
    ) -> None:
        self.encoder, self.size, self.device, self.bf16 = encoder, size, device, bf16
        self.workers, self.progress = workers, progress

    @torch.no_grad()
    def __call__(self, images: Images, what: str) -> tuple[Tensor, Tensor]:
        found, seen = [], []
        for batch, indices in _batches(images, self.size, self.workers):
            found.append(self.encode(batch))
            seen.append(indices)
            self.progress(what, sum(map(len, seen)), len(images))
        labels = torch.zeros(len(images)).long() if images.labels is None else images.labels
        return torch.cat(found), labels[torch.cat(seen)].to(self.device)

    @torch.no_grad()
    def encode(self, batch: Tensor) -> Tensor:
        batch = normalized(batch.to(self.device)).contiguous(memory_format=torch.channels_last)
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.bf16):
            out: Tensor = self.encoder(batch)
        return out.float()


class _Fitted(Dataset[tuple[Tensor, int]]):
    def __init__(self, images: Images, size: int) -> None:
        self.images, self.size = images, size

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image, really = self.images[index]
        return fitted(tvf.pil_to_tensor(image), self.size), really


def _by(workers: int) -> dict[str, Any]:
    return {"num_workers": workers, "multiprocessing_context": "fork" if workers else None}  # as in `Feed`


def _batches(images: Images, size: int, workers: int) -> Iterable[tuple[Tensor, Tensor]]:
    """uint8 batches in order, with the indices of what is in them; from memory if they are kept there."""
    stack = images.stacked()
    if stack is None:
        return DataLoader(_Fitted(images, size), batch_size=_BATCH, **_by(workers))
    seen = torch.tensor([images.really(index) for index in range(len(images))])
    parts = zip(stack.split(_BATCH), seen.split(_BATCH), strict=True)
    return ((fitted(part, size) if part.shape[-2:] != (size, size) else part, indices) for part, indices in parts)


# ------------------------------------------------------------------------------------------------- nearest neighbours


def knn(
    encoder: nn.Module,
    train: Images,
    test: Images,
    *,
    size: int,
    device: torch.device | str = "cpu",
    bf16: bool = True,
    workers: int = 0,
) -> float:
    """The share of `test` that the neighbours in `train` name rightly: a quick look while training."""
    assert train.labels is not None
    assert test.labels is not None
    classes = 1 + int(max(train.labels.max(), test.labels.max()))
    look = _Look(encoder.to(device).eval(), size, torch.device(device), bf16, workers, _silent)
    asked, truth = look(test, "")
    return _accuracy(knn_scores(asked, *look(train, ""), classes), truth, classes, 1)


def knn_scores(asked: Tensor, bank: Tensor, labels: Tensor, classes: int) -> Tensor:
    """A score for each class, [n, classes]: the votes of the twenty nearest, weighted as DINO does."""
    asked, bank = F.normalize(asked), F.normalize(bank)
    ranked = torch.cat(
        [
            knn_predict(part, bank.T, labels, classes, knn_k=min(20, len(bank)), knn_t=0.07)
            for part in asked.split(_BATCH)
        ]
    )
    return -ranked.argsort(1).float()  # the rank of each class, of which the first is best


# ------------------------------------------------------------------------------------------------------- linear layers

Head = tuple[Tensor, Tensor]
"""Weights [d, classes] and bias [classes]."""


class _Kept:
    """Features that were kept."""

    def __init__(self, kept: Tensor, labels: Tensor, seed: int) -> None:
        self.kept, self.labels, self.seed, self.device = kept, labels, seed, kept.device

    def epoch(self, epoch: int, chosen: Tensor) -> Iterable[tuple[Tensor, Tensor]]:
        for key in _keys(len(chosen), self.seed, epoch):
            index = chosen[list(key.indices)]
            yield self.kept[index], self.labels[index]

    def plain(self, chosen: Tensor) -> tuple[Tensor, Tensor]:
        return self.kept[chosen], self.labels[chosen]


class _Augmented(Dataset[tuple[Tensor, Tensor]]):
    """Features of random crops and flips, each by the seed, the epoch and the index."""

    def __init__(self, look: _Look, images: Images, size: int, seed: int) -> None:
        assert images.labels is not None
        self.look, self.images, self.labels, self.size, self.seed = look, images, images.labels, size, seed
        self.chosen, self.device = torch.arange(len(images)), look.device

    def __getitem__(self, key: Key) -> tuple[Tensor, Tensor]:
        stack = self.images.stacked()
        made, seen = [], []
        index = self.chosen[list(key.indices)]
        with torch.random.fork_rng(devices=()):
            for i in index.tolist():
                torch.manual_seed(seed_of(self.seed, "crops", key.epoch, i))
                if stack is None:
                    picture, really = self.images[i]
                    image = tvf.pil_to_tensor(picture)
                else:
                    image, really = stack[i], self.images.really(i)
                made.append(_crop(image, self.size))
                seen.append(really)
        return torch.stack(made), self.labels[seen]

    def epoch(self, epoch: int, chosen: Tensor) -> Iterable[tuple[Tensor, Tensor]]:
        self.chosen = chosen
        keys = list(_keys(len(chosen), self.seed, epoch))
        workers = 0 if self.images.stacked() is not None else self.look.workers
        for crops, labels in DataLoader(self, sampler=keys, batch_size=None, **_by(workers)):
            yield self.look.encode(crops), labels.to(self.look.device)

    def plain(self, chosen: Tensor) -> tuple[Tensor, Tensor]:
        return self.look(self.images.take(chosen.tolist()), "held-out images")


_Source = _Kept | _Augmented


def _crop(image: Tensor, size: int) -> Tensor:
    """A random crop of 8 to 100 % of the area, flipped half of the time: uint8 [3, size, size]."""
    top, left, height, width = _CROP.make_params([image]).values()
    crop = tvf.resized_crop(image, top, left, height, width, [size, size], antialias=True)
    return crop.flip(-1) if torch.rand(()) < 0.5 else crop


_CROP = v2.RandomResizedCrop(1, antialias=True)


def _keys(count: int, seed: int, epoch: int) -> Iterable[Key]:
    order = Order(count, min(_BATCH, count), seed, 0, 1)
    order.set_epoch(epoch)
    return order


def _held_out(labels: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """A tenth of the images, and the others."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed_of(seed, "held out")))
    tenth = max(1, len(labels) // 10)
    return order[:tenth], order[tenth:]


def _heads(
    source: _Source,
    chosen: Tensor,
    rates: Sequence[float],
    *,
    epochs: int,
    classes: int,
    width: int,
    progress: Progress,
    what: str,
) -> list[Head]:
    """A linear layer for each learning rate, all trained on the same batches: SGD with momentum, cosine, no decay."""
    device = source.device
    weight = torch.zeros((len(rates), width, classes), device=device, requires_grad=True)
    bias = torch.zeros((len(rates), 1, classes), device=device, requires_grad=True)
    moments = [torch.zeros_like(p) for p in (weight, bias)]
    batch = min(_BATCH, len(chosen))
    per_epoch = len(chosen) // batch
    scaled = torch.tensor(rates, device=device)[:, None, None] * (batch / 256)
    step, steps = 0, max(1, epochs * per_epoch)
    for epoch in range(epochs):
        for found, labels in source.epoch(epoch, chosen):
            logits = torch.baddbmm(bias, found.expand(len(rates), -1, -1), weight)
            loss = F.cross_entropy(logits.flatten(0, 1), labels.repeat(len(rates))) * len(rates)
            gradients = torch.autograd.grad(loss, (weight, bias))
            rate = scaled * (0.5 * (1 + torch.cos(torch.tensor(torch.pi * step / steps))).item())
            with torch.no_grad():
                for parameter, moment, gradient in zip((weight, bias), moments, gradients, strict=True):
                    moment.mul_(0.9).add_(gradient)
                    parameter.sub_(rate * moment)
            step += 1
        progress(what, epoch + 1, epochs)
    return [(w, b.squeeze(0)) for w, b in zip(weight.detach(), bias.detach(), strict=True)]


def _scores(head: Head, found: Tensor) -> Tensor:
    return found @ head[0] + head[1]


def _accuracy(scores: Tensor, truth: Tensor, classes: int, k: int) -> float:
    if classes < 2:
        return 1.0
    scores = scores.nan_to_num(-torch.inf)  # a learning rate that was too high
    return round(float(multiclass_accuracy(scores, truth, classes, average="micro", top_k=k)), 6)  # it was float32

"""Images to learn from, wherever they are.

`load(name)` finds a data set: images to train on, and images to judge by. An `Images` is a sequence of RGB pictures
with labels or without. A picture that cannot be read is replaced by the next that can, and counted; no run dies of one.

What a name may be: `demo` and `demo-ood` (varieties of fruit that come with the package); `cifar10`, `cifar100`,
`stl10`, `stl10-unlabeled`, `imagenet` and `inat2018` (torchvision's classes, on files that you put under `root`); a
folder of images; a Parquet file or a folder of them; a folder that Hugging Face `datasets` saved; or `hf:NAME` for a
data set of its hub.
"""

from __future__ import annotations

import io
import json
import logging
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import get_worker_info
from torchvision.transforms.v2 import functional as tvf

from randfield import pictures
from randfield.views import MEAN, STD

__all__ = ["BUILT_IN", "Data", "DataError", "Images", "fitted", "load", "normalized"]

log = logging.getLogger("randfield")

BUILT_IN = ("demo", "demo-ood", "cifar10", "cifar100", "stl10", "stl10-unlabeled", "imagenet", "inat2018")
_TRAIN = ("train", "training")
_TEST = ("val", "valid", "validation", "test", "testing")
_SUFFIXES = {suffix for suffix, kind in Image.registered_extensions().items() if kind in Image.OPEN}


class DataError(Exception):
    """The data is not there, or not what was asked for; the message says what to do."""

    def __str__(self) -> str:
        return super().__str__().rpartition("DataError: ")[2].strip()  # torch puts a worker's traceback before it


@dataclass(frozen=True)
class Images:
    """Pictures that can be read by index, with their labels.

    `read(index)` gives an image as PIL has it and may fail; `images[index]` is an RGB image and does not.
    """

    name: str
    count: int
    read: Callable[[int], Image.Image]
    labels: Tensor | None = None
    classes: tuple[str, ...] = ()
    where: Callable[[int], str] = str
    """What a picture is called in a message."""
    broken: dict[int, str] = field(default_factory=dict, compare=False)
    """Why a picture could not be read, for those met so far."""
    _kept: dict[int, Tensor | None] = field(default_factory=dict, compare=False, repr=False)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        """An RGB image and the index it really has: another one's where this cannot be read."""
        for tried in range(index, index + 100):
            at = tried % self.count
            if at in self.broken:
                continue
            try:
                return pictures.as_rgb(self.read(at)), at
            except Exception as error:  # Pillow raises what it likes: SyntaxError, struct.error, DecompressionBomb, …
                self.note({at: pictures.reason(error)})
        raise DataError(
            f"{self.name}: none of 100 images from {self.where(index)} on can be read; is it a data set of images?"
        )

    def note(self, broken: Mapping[int, str]) -> None:
        """Name in the log, once, what cannot be read; a worker leaves that to the process that it works for."""
        for index, reason in broken.items():
            if index not in self.broken:
                self.broken[index] = reason
                if get_worker_info() is None:
                    log.warning(
                        "%s: cannot read %s: %s; the next takes its place", self.name, self.where(index), reason
                    )

    def really(self, index: int) -> int:
        """The index that is read in the place of one, as far as is known: of itself, if it can be."""
        return next(at % self.count for at in range(index, index + self.count) if at % self.count not in self.broken)

    def take(self, indices: Sequence[int]) -> Images:
        """Some of the images, in the given order."""
        chosen = list(map(int, indices))
        return replace(
            self,
            count=len(chosen),
            read=lambda i: self.read(chosen[i]),
            labels=None if self.labels is None else self.labels[chosen],
            where=lambda i: self.where(chosen[i]),
            broken={},
            _kept={},
        )

    def stacked(self, most: int = 2**32) -> Tensor | None:
        """All images as uint8 [n, 3, h, w], if they are of one size and take at most so many bytes; else None.

        A few odd ones among them are resized; what cannot be read is replaced. Done once, and kept.
        """
        if most not in self._kept:
            self._kept[most] = self._stacked(most)
        return self._kept[most]

    def _stacked(self, most: int) -> Tensor | None:
        sizes = [self[i][0].size for i in range(0, self.count, max(1, self.count // 16))]
        width, height = sizes[0]
        if len(set(sizes)) > 1 or self.count * 3 * width * height > most:
            return None
        out = torch.empty((self.count, 3, height, width), dtype=torch.uint8)

        def put(index: int) -> None:
            image, _ = self[index]
            out[index] = tvf.pil_to_tensor(image if image.size == (width, height) else image.resize((width, height)))

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(put, range(self.count), chunksize=64))
        return out


@dataclass(frozen=True)
class Data:
    """A data set: what to train on, and what to judge by, which is None where nothing has a label."""

    name: str
    train: Images
    test: Images | None


def load(name: str, root: str | Path = "data") -> Data:
    """Find a data set by name or path, see the top of this file; `root` is where torchvision's files are."""
    root = Path(root)
    if name in ("demo", "demo-ood"):
        return _demo(name)
    if name in BUILT_IN:
        return _torchvision(name, root)
    if name.startswith("hf:"):
        return _hugging_face(name, lambda datasets: datasets.load_dataset(name.removeprefix("hf:")))
    path = Path(name)
    if not path.exists():
        raise DataError(
            f"{name} is no file or folder, nor one of {', '.join(BUILT_IN)}; expected one of these, a folder of "
            "images, a Parquet file, or hf:NAME for a data set of the Hugging Face hub"
        )
    if path.is_file():
        if path.suffix != ".parquet":
            raise DataError(f"{name} is one file; expected a folder of images, or a Parquet file")
        return _parquet(name, {"train": [path]})
    if (path / "dataset_dict.json").exists() or (path / "state.json").exists():
        return _hugging_face(name, lambda datasets: datasets.load_from_disk(str(path)))
    files = sorted(path.rglob("*.parquet"))
    if files:
        return _parquet(name, _by_split(files, name))
    return _folder(path)


# ----------------------------------------------------------------------------------------------------------- embedded


def _demo(name: str) -> Data:
    """Fruits-360, 60 varieties at 32²: 40 to learn from, and the other 20 as what was never seen."""
    here = resources.files("randfield.learn") / "fruits"
    names = (here / "classes.txt").read_text(encoding="utf-8").splitlines()
    known = range(40) if name == "demo" else range(40, 60)
    return Data(name, *(_sheet(name, here / f"{split}.webp", names, known) for split in ("train", "test")))


def _sheet(name: str, file: Any, names: list[str], rows: range) -> Images:
    """A row of the sheet is a class."""
    side = 32
    with Image.open(io.BytesIO(file.read_bytes())) as opened:
        sheet = tvf.pil_to_tensor(opened.convert("RGB"))
    tiles = sheet.unfold(1, side, side).unfold(2, side, side).movedim(0, 2)[rows.start : rows.stop]
    columns = tiles.shape[1]
    tiles = tiles.flatten(0, 1).contiguous()
    return Images(
        name,
        len(tiles),
        lambda i: tvf.to_pil_image(tiles[i]),
        torch.arange(len(rows)).repeat_interleave(columns),
        tuple(names[row] for row in rows),
        lambda i: f"{names[rows[i // columns]]}, {i % columns}",
    )


# -------------------------------------------------------------------------------------------------------- torchvision

_FILES = {
    "cifar10": "cifar-10-python.tar.gz, unpacked to cifar-10-batches-py",
    "cifar100": "cifar-100-python.tar.gz, unpacked to cifar-100-python",
    "stl10": "stl10_binary.tar.gz, unpacked to stl10_binary",
    "imagenet": "ILSVRC2012_devkit_t12.tar.gz, ILSVRC2012_img_train.tar and ILSVRC2012_img_val.tar (image-net.org)",
    "inat2018": "train_val2018.tar.gz, unpacked to 2018 as torchvision.datasets.INaturalist does, and val2018.json",
}


def _torchvision(name: str, root: Path) -> Data:
    from torchvision import datasets

    try:
        if name == "inat2018":
            return _inaturalist(root)
        if name == "imagenet":
            splits = [datasets.ImageNet(root, split) for split in ("train", "val")]
        elif name == "stl10-unlabeled":  # the hundred thousand to pretrain on; stl10 has the labels for a probe
            unlabeled = _wrapped(name, datasets.STL10(root, "unlabeled"))
            return Data(name, replace(unlabeled, labels=None, classes=()), None)
        elif name == "stl10":
            splits = [datasets.STL10(root, split) for split in ("train", "test")]
        else:
            kind = datasets.CIFAR10 if name == "cifar10" else datasets.CIFAR100
            splits = [kind(root, train=train) for train in (True, False)]
    except (RuntimeError, OSError) as error:
        raise DataError(
            f"{name} is not in {root}: {str(error).rstrip('.')}. Put there what its authors give: "
            f"{_FILES[name.split('-')[0]]}; or name another folder with --root"
        ) from error
    return Data(name, *map(_wrapped, [name] * 2, splits))


def _wrapped(name: str, dataset: Any) -> Images:
    """A data set of torchvision's; its classes convert to RGB themselves, or hold arrays."""
    targets = getattr(dataset, "targets", None)
    labels = dataset.labels if targets is None else targets
    classes = [" ".join(c) if isinstance(c, tuple) else str(c) for c in dataset.classes]
    files = getattr(dataset, "samples", None)

    def read(index: int) -> Image.Image:
        return pictures.read(Path(files[index][0]))[0] if files else dataset[index][0]

    def where(index: int) -> str:
        return str(files[index][0]) if files else f"image {index}"

    return Images(name, len(dataset), read, torch.as_tensor(labels).long(), tuple(classes), where)


def _inaturalist(root: Path) -> Data:
    """The 2018 release comes in one archive; the official list of its validation images tells the splits apart."""
    from torchvision.datasets import INaturalist

    both = INaturalist(root, version="2018", target_type="full")
    listed = json.loads((root / "val2018.json").read_text(encoding="utf-8"))["images"]
    held_out = {Path(image["file_name"]).name for image in listed}
    files = [Path(both.root) / both.all_categories[category] / file for category, file in both.index]
    images = Images(
        "inat2018",
        len(files),
        lambda i: pictures.read(files[i])[0],
        torch.tensor([category for category, _ in both.index]),
        tuple(both.all_categories),
        lambda i: str(files[i]),
    )
    is_test = [file.name in held_out for file in files]
    return Data("inat2018", *(images.take([i for i, t in enumerate(is_test) if t == test]) for test in (False, True)))


# ------------------------------------------------------------------------------------------------------------ folders


def _folder(path: Path) -> Data:
    """`PATH/train/CLASS/…` and `PATH/val/CLASS/…`; or `PATH/CLASS/…`, a tenth kept to judge by; or images alone."""
    inside = {entry.name.lower(): entry for entry in sorted(path.iterdir()) if entry.is_dir()}
    train = next((inside[name] for name in _TRAIN if name in inside), None)
    test = next((inside[name] for name in _TEST if name in inside), None)
    if train is None:
        return _split(_images_in(path, path.name))
    learned = _images_in(train, path.name)
    if test is None:
        return _split(learned)
    return Data(path.name, learned, _images_in(test, path.name, classes=learned.classes))


def _images_in(path: Path, name: str, classes: tuple[str, ...] = ()) -> Images:
    files = sorted(
        Path(folder) / file
        for folder, _, files in os.walk(path, followlinks=True)
        for file in files
        if not file.startswith(".") and Path(file).suffix.lower() in _SUFFIXES
    )
    if not files:
        raise DataError(
            f"no images in {path}; expected files such as .jpg or .png, there or in a folder for each class"
        )
    kinds = [file.relative_to(path).parts[0] if file.parent != path else None for file in files]
    labels = None
    if None not in kinds and (classes or len(set(kinds)) > 1):
        found = sorted({str(kind) for kind in kinds})
        classes = classes or tuple(found)
        unknown = sorted(set(found) - set(classes))
        if unknown:
            raise DataError(
                f"{path} has classes that the images to train on lack: {', '.join(unknown[:5])}"
                f"{' …' if len(unknown) > 5 else ''}; the folders of both must have the same names"
            )
        number = {kind: index for index, kind in enumerate(classes)}
        labels = torch.tensor([number[str(kind)] for kind in kinds])
    return Images(
        name, len(files), lambda i: pictures.read(files[i])[0], labels, classes if labels is not None else (),
        lambda i: str(files[i]),
    )  # fmt: skip


def _split(images: Images) -> Data:
    """Where nobody has said what to judge by, a tenth is kept for it, chosen by name and so for good."""
    if images.labels is None:
        return Data(images.name, images, None)
    names = (os.fsencode("/".join(Path(images.where(i)).parts[-2:])) for i in range(len(images)))
    held = [zlib.crc32(name) % 10 == 0 for name in names]
    if not 0 < sum(held) < len(held):
        return Data(images.name, images, None)
    log.info("%s: no folder val or test; %d of %d images are kept to judge by", images.name, sum(held), len(held))
    return Data(images.name, *(images.take([i for i, h in enumerate(held) if h == test]) for test in (False, True)))


# ---------------------------------------------------------------------------------------------------- Parquet, datasets


def _by_split(files: list[Path], name: str) -> dict[str, list[Path]]:
    """train*.parquet is to train on, val* or test* to judge by; validation comes before test."""
    found: dict[str, list[Path]] = {}
    for kind, words in (("train", _TRAIN), ("test", _TEST)):
        for word in words:
            mine = [f for f in files if f.stem.lower().startswith(word) or f.parent.name.lower() == word]
            if mine:
                found[kind] = mine
                break
    if "train" not in found:
        if "test" in found or not files:
            raise DataError(f"{name} has no train*.parquet; found {', '.join(f.name for f in files[:5])}")
        found["train"] = files
    return found


def _parquet(name: str, files: dict[str, list[Path]]) -> Data:
    def read(datasets: Any) -> Any:
        named = {split: [str(f) for f in paths] for split, paths in files.items()}
        return datasets.load_dataset("parquet", data_files=named)

    return _hugging_face(name, read)


def _hugging_face(name: str, read: Callable[[Any], Any]) -> Data:
    import datasets

    datasets.disable_progress_bars()
    try:
        found = read(datasets)
    except Exception as error:  # a library of many others: whatever it is, it names the data set
        raise DataError(f"{name} cannot be read as a data set: {pictures.reason(error)}") from error
    if not isinstance(found, dict):
        found = {"train": found}
    train = next((found[s] for s in _TRAIN if s in found), None)
    if train is None:
        raise DataError(f"{name} has no split called train; it has {', '.join(found)}")
    test = next((found[s] for s in _TEST if s in found), None)
    learned = _table(name, train, datasets)
    if test is None:
        return _split(learned)
    judged = _table(name, test, datasets)
    if learned.classes and judged.classes and learned.classes != judged.classes:
        raise DataError(f"{name}: the splits to train on and to judge by have different lists of classes")
    return Data(name, learned, judged)


def _table(name: str, table: Any, datasets: Any) -> Images:
    columns = table.features
    pictured = [c for c, f in columns.items() if isinstance(f, datasets.Image)]
    encoded = [c for c, f in columns.items() if isinstance(f, dict) and "bytes" in f]
    if not pictured and not encoded:
        raise DataError(f"{name} has no column of images; its columns are {', '.join(columns)}")
    column = (pictured or encoded)[0]
    if pictured:
        table = table.cast_column(column, datasets.Image(decode=False))
    kinds = [c for c, f in columns.items() if isinstance(f, datasets.ClassLabel)]
    kinds += [c for c in ("label", "labels", "fine_label", "target") if c in columns and c not in kinds]
    labels: Tensor | None = None
    classes: tuple[str, ...] = ()
    if kinds:
        feature, values = columns[kinds[0]], table[kinds[0]][:]
        if isinstance(feature, datasets.ClassLabel):
            classes, labels = tuple(feature.names), torch.tensor(values)
        else:
            classes = tuple(sorted({str(v) for v in values}, key=lambda v: (len(v), v)))
            number = {kind: index for index, kind in enumerate(classes)}
            labels = torch.tensor([number[str(v)] for v in values])
        if bool((labels < 0).any()):  # the hub's mark for "not told"
            labels, classes = None, ()

    def opened(index: int) -> Image.Image:
        cell = table[index][column]
        if cell["bytes"] is None:
            return pictures.read(Path(cell["path"]))[0]
        return pictures.read(io.BytesIO(cell["bytes"]))[0]

    return Images(name, len(table), opened, labels, classes, lambda i: f"row {i}")


# ------------------------------------------------------------------------------------------------------- for an encoder


def fitted(images: Tensor, size: int) -> Tensor:
    """Images [..., 3, h, w] as they are judged, [..., 3, size, size]: the centre, after a resize that keeps the shape.

    At 128 pixels and more a margin of an eighth is cut off, as in the papers (256 to 224); small images are kept whole.
    """
    shorter = size if size < 128 else round(size * 8 / 7)
    return tvf.center_crop(tvf.resize(images, [shorter], antialias=True), [size, size])


def normalized(images: Tensor) -> Tensor:
    """uint8 images as an encoder takes them, as `SimCLRViews` does."""
    return tvf.normalize(images.float().div_(255), list(MEAN), list(STD), inplace=True)

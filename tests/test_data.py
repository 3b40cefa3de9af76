"""Images to learn from: every place they may be, and everything that may be wrong with them."""

import io
import json
import logging
import pickle
import re
from importlib import resources

import pytest
import torch
from PIL import Image
from torchvision import datasets as torchvision_datasets
from torchvision.transforms.v2 import functional as tvf

from randfield.learn import data
from randfield.learn.data import DataError, fitted, load, normalized
from randfield.learn.feed import Feed, Order
from randfield.views import SimCLRViews

SIZE = (53, 37)


def picture(seed=0, size=SIZE, mode="RGB"):
    values = torch.randint(0, 256, (size[1], size[0], 3), generator=torch.Generator().manual_seed(seed))
    return Image.fromarray(values.to(torch.uint8).numpy()).convert(mode)


def folder(path, classes=("cat", "dog"), count=4, splits=("train", "val")):
    for split in splits:
        for number, kind in enumerate(classes):
            (path / split / kind).mkdir(parents=True, exist_ok=True)
            for index in range(count):
                picture(100 * number + index).save(path / split / kind / f"{index}.png")
    return path


# ----------------------------------------------------------------------------------------------------------- embedded


def test_the_demo_has_forty_varieties_and_twenty_others():
    known, others = load("demo"), load("demo-ood")
    assert len(known.train) == 1600
    assert len(known.test) == 400
    assert len(others.train) == 800
    assert len(others.test) == 200
    assert not set(known.train.classes) & set(others.train.classes)
    assert len(set(known.train.classes)) == 40
    assert len(set(others.train.classes)) == 20
    for images in (known.train, known.test, others.train, others.test):
        assert images.labels.bincount().unique().numel() == 1
        stack = images.stacked()
        assert stack is not None
        assert stack.shape == (len(images), 3, 32, 32)
        assert stack.dtype == torch.uint8
        assert stack[:, :, 0, 0].float().mean() > 230  # fruit on white, upright in its tile
    image, index = known.train[37]
    assert image.size == (32, 32)
    assert index == 37


def test_the_demo_carries_its_licence():
    text = (resources.files("randfield.learn") / "fruits" / "LICENCE.txt").read_text()
    assert "MIT License" in text
    assert "Mihai Oltean, Horea Muresan" in text


# ------------------------------------------------------------------------------------------------------------ folders


def test_a_folder_with_splits(tmp_path):
    found = load(str(folder(tmp_path)))
    assert found.train.classes == found.test.classes == ("cat", "dog")
    assert found.train.labels.tolist() == [0] * 4 + [1] * 4
    assert found.train[5][0].size == SIZE
    assert found.train.where(5).endswith("dog/1.png")


def test_a_folder_of_classes_alone_keeps_a_tenth_to_judge_by(tmp_path):
    folder(tmp_path, count=60, splits=(".",))
    once, again = load(str(tmp_path)), load(str(tmp_path))
    assert len(once.train) + len(once.test) == 120
    assert 2 <= len(once.test) <= 30
    assert [once.test.where(i) for i in range(len(once.test))] == [again.test.where(i) for i in range(len(again.test))]


def test_a_folder_without_classes_is_for_pretraining(tmp_path):
    for index in range(3):
        picture(index).save(tmp_path / f"{index}.jpg")
    (tmp_path / "notes.txt").write_text("not an image")
    found = load(str(tmp_path))
    assert len(found.train) == 3
    assert found.train.labels is None
    assert found.test is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path, "no images in"),
        (lambda path: path / "none", "is no file or folder, nor one of demo"),
        (lambda path: ((path / "a.txt").write_text("") and None) or path / "a.txt", "is one file"),
    ],
)
def test_what_is_no_data_set(tmp_path, make, message):
    with pytest.raises(DataError, match=message):
        load(str(make(tmp_path)))


def test_classes_that_only_the_test_images_have(tmp_path):
    folder(tmp_path)
    folder(tmp_path, classes=("cow",), splits=("val",))
    with pytest.raises(DataError, match="cow"):
        load(str(tmp_path))


# --------------------------------------------------------------------------------------------------------- bad pictures


def truncated():
    encoded = io.BytesIO()
    picture(size=(200, 200)).save(encoded, "JPEG")
    return encoded.getvalue()[:3000]


def test_unreadable_pictures_are_counted_named_once_and_replaced(tmp_path, caplog):
    folder(tmp_path, splits=("train",))
    for name, content in (("a", b""), ("b", b"no picture"), ("c", truncated())):
        (tmp_path / "train" / "cat" / f"{name}.jpg").write_bytes(content)
    images = data._images_in(tmp_path / "train", "mine")
    with caplog.at_level(logging.WARNING, logger="randfield"):
        for _ in range(3):
            assert [images[i][1] for i in range(len(images))] == [*range(4), 7, 7, 7, *range(7, 11)]
    assert set(images.broken) == {4, 5, 6}
    assert len(caplog.records) == 3
    assert all(f"{name}.jpg" in caplog.text for name in "abc")
    assert images.stacked().shape == (11, 3, SIZE[1], SIZE[0])


def test_nothing_but_unreadable_pictures(tmp_path):
    for index in range(3):
        (tmp_path / f"{index}.png").write_bytes(b"")
    with pytest.raises(DataError, match="none of 100 images"):
        load(str(tmp_path)).train[0]


@pytest.mark.parametrize(
    "image",
    [
        picture().convert("CMYK"),
        Image.fromarray(torch.arange(0, 58830, 30).reshape(37, 53).to(torch.uint16).numpy()),
        picture().convert("P"),
        picture().convert("L"),
        picture().convert("1"),
        picture().convert("RGBA"),
        picture(size=(1, 1)),
        picture(size=(12_000, 7)),
    ],
    ids=["CMYK", "16 bits", "palette", "grey", "bits", "RGBA", "1×1", "12,000 wide"],
)
def test_pictures_of_every_kind_become_views(tmp_path, image):
    suffix = "tif" if image.mode == "CMYK" else "png"
    for index in range(2):
        image.save(tmp_path / f"{index}.{suffix}")
    images = load(str(tmp_path)).train
    read, _ = images[0]
    assert read.mode == "RGB"
    assert read.size == image.size
    assert fitted(tvf.pil_to_tensor(read), 16).shape == (3, 16, 16)
    views = SimCLRViews(16)(tvf.pil_to_tensor(read))
    assert all(view.isfinite().all() for view in views)


def test_sixteen_bits_keep_their_contrast(tmp_path):
    values = torch.linspace(1000, 3000, 37 * 53).reshape(37, 53).to(torch.int32).to(torch.uint16)
    Image.fromarray(values.numpy()).save(tmp_path / "0.png")
    image, _ = load(str(tmp_path)).train[0]
    assert image.getextrema() == ((0, 255),) * 3


def test_images_of_several_sizes_are_not_stacked(tmp_path):
    picture(size=(20, 30)).save(tmp_path / "0.png")
    picture(size=(30, 20)).save(tmp_path / "1.png")
    images = load(str(tmp_path)).train
    assert images.stacked() is None
    assert load(str(folder(tmp_path / "more"))).train.stacked(most=1000) is None  # they would not fit


# ------------------------------------------------------------------------------------------------------------- Parquet


def parquet(path, rows, *, classes=None):
    datasets = pytest.importorskip("datasets", reason="the extra `learn` brings it")
    feature = datasets.ClassLabel(names=classes) if classes else datasets.Value("string")
    table = datasets.Dataset.from_dict(
        {"image": [picture(i) for i in range(len(rows))], "label": rows},
        features=datasets.Features({"image": datasets.Image(), "label": feature}),
    )
    table.to_parquet(path)


def test_a_folder_of_parquet_files(tmp_path):
    parquet(tmp_path / "train-0.parquet", [0, 1, 1], classes=["a", "b"])
    parquet(tmp_path / "validation.parquet", [1], classes=["a", "b"])
    parquet(tmp_path / "test.parquet", [0, 0], classes=["a", "b"])
    found = load(str(tmp_path))
    assert found.train.labels.tolist() == [0, 1, 1]
    assert found.test.labels.tolist() == [1]
    assert found.train.classes == ("a", "b")
    assert found.train[2][0].tobytes() == picture(2).tobytes()


def test_one_parquet_file_with_names_for_labels(tmp_path):
    parquet(tmp_path / "all.parquet", ["x", "y", "x"])
    found = load(str(tmp_path / "all.parquet"))
    assert found.train.classes == ("x", "y")
    assert found.train.labels.tolist() == [0, 1, 0]


def test_a_data_set_saved_by_hugging_face(tmp_path):
    datasets = pytest.importorskip("datasets", reason="the extra `learn` brings it")
    table = datasets.Dataset.from_dict({"img": [picture(i) for i in range(4)], "fine_label": [3, 1, 1, 3]})
    table = table.cast_column("img", datasets.Image())
    datasets.DatasetDict({"train": table, "test": table}).save_to_disk(tmp_path / "saved")
    found = load(str(tmp_path / "saved"))
    assert found.train.classes == ("1", "3")
    assert found.test.labels.tolist() == [1, 0, 0, 1]


def test_a_table_without_images(tmp_path):
    datasets = pytest.importorskip("datasets", reason="the extra `learn` brings it")
    datasets.Dataset.from_dict({"text": ["a"]}).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match="no column of images; its columns are text"):
        load(str(tmp_path / "t.parquet"))


# ---------------------------------------------------------------------------------------------------------- torchvision


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "stl10", "stl10-unlabeled", "imagenet", "inat2018"])
def test_what_is_missing_is_told_with_what_to_put_where(name, tmp_path):
    with pytest.raises(DataError, match=re.escape(str(tmp_path))) as failed:
        load(name, tmp_path)
    assert data._FILES[name.split("-")[0]] in str(failed.value)


def test_cifar(tmp_path, monkeypatch):
    monkeypatch.setattr(torchvision_datasets.CIFAR10, "_check_integrity", lambda self: True)  # ours is not the real one
    base = tmp_path / "cifar-10-batches-py"
    base.mkdir()
    values = torch.randint(0, 256, (2, 3072), dtype=torch.uint8).numpy()
    for number, file in enumerate([f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]):
        (base / file).write_bytes(pickle.dumps({"data": values, "labels": [number % 10, 3]}))
    (base / "batches.meta").write_bytes(pickle.dumps({"label_names": [f"kind {i}" for i in range(10)]}))
    monkeypatch.setattr(torchvision_datasets.cifar, "check_integrity", lambda *a: True)
    found = load("cifar10", tmp_path)
    assert len(found.train) == 10
    assert len(found.test) == 2
    assert found.test.labels.tolist() == [5, 3]
    assert found.test.classes[3] == "kind 3"
    assert found.train[0][0].size == (32, 32)


def test_imagenet(tmp_path):
    kinds = {"n01": ("tench", "Tinca tinca"), "n02": ("goldfish",)}
    torch.save((kinds, ["n01"]), tmp_path / "meta.bin")
    folder(tmp_path, classes=tuple(kinds), count=2)
    (tmp_path / "train" / "n02" / "bad.JPEG").write_bytes(b"")
    found = load("imagenet", tmp_path)
    assert found.train.classes == ("tench Tinca tinca", "goldfish")
    assert found.test.labels.tolist() == [0, 0, 1, 1]
    assert [found.train[i][1] for i in range(5)] == [0, 1, 2, 3, 0]  # the bad one is replaced
    assert found.train.really(4) == 0


def test_inaturalist(tmp_path):
    for kind, files in {"Aves/0": ("a", "b"), "Fungi/1": ("c", "d")}.items():
        (tmp_path / "2018" / kind).mkdir(parents=True)
        for file in files:
            picture().save(tmp_path / "2018" / kind / f"{file}.jpg")
    listed = {"images": [{"file_name": "train_val2018/Aves/0/b.jpg"}, {"file_name": "train_val2018/Fungi/1/c.jpg"}]}
    (tmp_path / "val2018.json").write_text(json.dumps(listed))
    found = load("inat2018", tmp_path)
    assert [found.test.where(i)[-5:] for i in (0, 1)] == ["b.jpg", "c.jpg"]
    assert found.train.labels.tolist() == found.test.labels.tolist() == [0, 1]
    assert found.train[1][0].size == SIZE


# -------------------------------------------------------------------------------------------------------------- batches


def test_the_order_does_not_depend_on_the_number_of_processes():
    for epoch in (0, 1):
        orders = {world: [Order(103, 24, 7, rank, world) for rank in range(world)] for world in (1, 2, 4)}
        batches = {}
        for world, shares in orders.items():
            for share in shares:
                share.set_epoch(epoch)
            batches[world] = [sum((key.indices for key in keys), ()) for keys in zip(*shares, strict=True)]
        assert batches[1] == batches[2] == batches[4]
        assert len(batches[1]) == 4
        assert len(set(sum(batches[1], ()))) == 96
    first, second = Order(103, 24, 7, 0, 1), Order(103, 24, 7, 0, 1)
    second.set_epoch(1)
    assert [k.indices for k in first] != [k.indices for k in second]


@pytest.mark.parametrize("workers", [1, 2])
def test_streamed_views_do_not_depend_on_the_number_of_workers(tmp_path, workers):
    folder(tmp_path, count=6, splits=("train",))
    picture(size=(20, 20)).save(tmp_path / "train" / "cat" / "odd.png")
    (tmp_path / "train" / "dog" / "bad.png").write_bytes(b"")
    images = data._images_in(tmp_path / "train", "mine")

    def batches(workers):
        feed = Feed(images, SimCLRViews(8), batch_size=5, seed=3, workers=workers)
        loader = feed.loader()
        found = []
        for epoch in range(2):
            loader.sampler.set_epoch(epoch)  # type: ignore[attr-defined]  # ours has it
            found += list(loader)
        return found

    alone, together = batches(0), batches(workers)
    assert len(alone) == len(together) == 4
    for one, other in zip(alone, together, strict=True):
        assert one["epoch"] == other["epoch"]
        assert one["step"] == other["step"]
        assert all(torch.equal(a, b) for a, b in zip(one["views"], other["views"], strict=True))
    assert not torch.equal(alone[0]["views"][0], alone[2]["views"][0])  # another epoch
    assert set(alone[-1]["broken"]) == set(together[-1]["broken"]) == {13}


def test_a_batch_larger_than_the_data():
    with pytest.raises(ValueError, match="batch_size is 401, but demo has 400 images"):
        Feed(load("demo").test, SimCLRViews(8), batch_size=401, seed=0)
    with pytest.raises(ValueError, match="cannot be shared by 3 processes"):
        Feed(load("demo").test, SimCLRViews(8), batch_size=10, seed=0).loader(0, 3)


def test_what_an_encoder_sees_is_what_the_views_have():
    image = torch.randint(0, 256, (3, 16, 16), dtype=torch.uint8)
    views = SimCLRViews(16, n_views=1, strength=0, blur=False, crop_scale=(1, 1))
    torch.manual_seed(0)
    same = [views(image)[0] for _ in range(40)]
    plain = normalized(image)
    assert any(torch.allclose(view, plain, atol=1e-5) for view in same)


def test_large_images_lose_a_margin():
    image = torch.zeros(3, 256, 300, dtype=torch.uint8)
    image[:, :, 150 - 112 : 150 + 112] = 255
    assert fitted(image, 224).shape == (3, 224, 224)
    assert (fitted(image, 224) == 255).all(0)[20:-20, 2:-2].all()
    assert fitted(image[:, ::8, ::8], 32).shape == (3, 32, 32)

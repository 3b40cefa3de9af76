"""The probe: what it measures, what it must not touch, what it says where it cannot."""

import pytest
import torch
from PIL import Image
from torch import nn
from torchvision.transforms.v2 import functional as tvf

from randfield.learn import probe as module
from randfield.learn.data import Data, DataError, Images, load
from randfield.learn.probe import PROTOCOLS, features, fingerprint, knn, probe


class Pixels(nn.Module):
    """An encoder that sees the mean colour, and has a batch norm to forget to freeze."""

    num_features = 3

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(3)

    def forward(self, x):
        return self.norm(x).mean((-2, -1))


def colours(count, *, classes=6, size=(12, 10), seed=0, name="colours"):
    """Images of one colour and some noise for each class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % classes
    values = torch.randint(0, 256, (classes, 3, 1, 1), generator=torch.Generator().manual_seed(9))[labels]
    noise = torch.randint(-30, 31, (count, 3, size[1], size[0]), generator=generator)
    pictures = (values + noise).clamp(0, 255).to(torch.uint8)
    return Images(name, count, lambda i: tvf.to_pil_image(pictures[i]), labels)


EASY = Data("colours", colours(300), colours(60, seed=1))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_linear_question_is_answered(protocol):
    encoder = Pixels()
    before = fingerprint(encoder)
    result = probe(encoder, EASY, protocol=protocol, size=8, epochs=None if protocol == "knn" else 10, bf16=False)
    assert result["top1"] > 0.95
    assert result["top1"] <= result["top5"] <= 1
    assert result["n"] == 60
    assert result["protocol"] == protocol
    assert fingerprint(encoder) == before
    assert ("learning_rate" in result) == (protocol != "knn")
    if protocol != "knn":
        assert result["learning_rate"] in module._RATES
        assert result["held_out_top1"] > 0.9


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_probe_repeats_itself(protocol):
    options = {"protocol": protocol, "size": 8, "epochs": 2}
    assert probe(Pixels(), EASY, **options) == probe(Pixels(), EASY, **options)


def test_the_test_images_choose_nothing():
    """With other labels to judge by, the learning rate and what it was chosen by are the same."""
    assert EASY.test.labels is not None
    wrong = Images("wrong", 60, EASY.test.read, EASY.test.labels.roll(1))
    right = probe(Pixels(), EASY, size=8, epochs=3)
    other = probe(Pixels(), Data("wrong", EASY.train, wrong), size=8, epochs=3)
    for key in ("learning_rate", "held_out_top1"):
        assert right[key] == other[key]
    assert other["top1"] < 0.1 < right["top1"]


def test_chance_is_chance():
    assert EASY.train.labels is not None
    shuffled = EASY.train.labels[torch.randperm(300, generator=torch.Generator().manual_seed(3))]
    result = probe(
        Pixels(), Data("noise", Images("noise", 300, EASY.train.read, shuffled), EASY.test), size=8, epochs=3
    )
    assert result["top1"] < 0.5


def test_an_encoder_that_moves_is_found_out():
    class Restless(Pixels):
        def forward(self, x):
            self.norm.running_mean.add_(1)
            return super().forward(x)

    with pytest.raises(RuntimeError, match="the encoder changed"):
        probe(Restless(), EASY, size=8, protocol="knn")


def test_features_are_the_same_from_memory_and_from_files(tmp_path):
    for index in range(5):
        EASY.train[index][0].save(tmp_path / f"{index}.png")
    Image.new("RGB", (40, 50)).save(tmp_path / "9.png")  # of another size: nothing is kept in memory
    streamed = load(str(tmp_path)).train
    assert streamed.stacked() is None
    encoder = Pixels().eval()
    kept = features(encoder, EASY.train.take(range(5)), size=8, bf16=False)
    for workers in (0, 1):
        read = features(encoder, streamed, size=8, bf16=False, workers=workers)
        torch.testing.assert_close(read[:5], kept)


def test_what_replaces_an_unreadable_image_brings_its_label():
    def broken(index):
        if index % 6 == 2:
            raise OSError("broken")
        return EASY.train.read(index)

    damaged = Data("damaged", Images("damaged", 300, broken, EASY.train.labels), EASY.test)
    assert probe(Pixels(), damaged, size=8, protocol="knn")["top1"] == pytest.approx(5 / 6, abs=0.05)


def test_neighbours_while_training():
    assert knn(Pixels(), EASY.train, EASY.test, size=8) > 0.95


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        (Images("a", 60, EASY.test.read), EASY.test, "a probe needs them"),
        (EASY.train, None, "no labelled images to judge by"),
        (colours(300, classes=5), EASY.test, "labels of images to judge by that no image to train on has: 5"),
    ],
)
def test_data_that_cannot_be_probed(train, test, message):
    with pytest.raises(DataError, match=message):
        probe(Pixels(), Data("mine", train, test), size=8)


def test_an_unknown_protocol():
    with pytest.raises(ValueError, match="protocol must be one of sgd, fast, knn, got 'best'"):
        probe(Pixels(), EASY, size=8, protocol="best")

"""Shapes are checked while the tests run: every function of randfield goes through `tests.shapes.checked`."""

import typing

import pytest
import torch
import torchvision  # noqa: F401  # before the switch below, which is meant for randfield alone
from jaxtyping import install_import_hook

import tests.shapes  # noqa: F401  # the hook looks it up

# randfield imports jaxtyping for type checkers only, so that users need not have it. Here we are one.
typing.TYPE_CHECKING = True  # type: ignore[misc]  # a constant to mypy
with install_import_hook("randfield", "tests.shapes.checked"):
    import randfield  # noqa: F401
typing.TYPE_CHECKING = False  # type: ignore[misc]


torch.set_num_threads(1)  # the tests run side by side, and on small images


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def image() -> torch.Tensor:
    """The default image is not square: square ones hid bugs in other libraries for years."""
    return torch.randint(0, 256, (3, 37, 53), dtype=torch.uint8)


@pytest.fixture
def few(monkeypatch):
    """The demo with 80 images to learn from and 40 to judge by."""
    from randfield.learn import data

    whole = data.load("demo")
    less = data.Data("demo", whole.train.take(range(0, 1600, 20)), whole.test.take(range(0, 400, 10)))
    monkeypatch.setattr(data, "load", lambda name, root="data": less)
    return less


@pytest.fixture
def fruits(tmp_path):
    """A folder with 80 of the demo's images to learn from and 40 to judge by, for processes of their own."""
    from randfield.learn.data import load

    for split, images in (("train", load("demo").train), ("val", load("demo").test)):
        assert images is not None
        assert images.labels is not None
        for index in range(0, len(images), 20 if split == "train" else 10):
            kind = tmp_path / "fruits" / split / f"{images.labels[index]:02}"
            kind.mkdir(parents=True, exist_ok=True)
            images[index][0].save(kind / f"{index}.png")
    return str(tmp_path / "fruits")

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

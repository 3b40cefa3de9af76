"""What a reader can paste is executed."""

import itertools
import math
import re
from pathlib import Path

import pytest
import torch

import randfield
from randfield import LocalAffine, functional

README = Path(__file__).parent.parent / "README.md"
ATOMS = ["LocalRotate", "LocalScale", "LocalShear", "LocalTranslate"]


def test_readme_runs_from_top_to_bottom():
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert len(blocks) >= 6
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, README.name, "exec"), names)


def test_files_that_the_readme_names_exist():
    text = README.read_text()
    for name in {*re.findall(r"\]\(([^)#:]+)\)", text), *re.findall(r"`((?:docs|tests)/[\w/.]+)`", text)}:
        if "/_build/" not in name:  # `make docs` makes that
            assert (README.parent / name).exists(), name


def shares_folding(transform, draws):
    """The share of pixels that fold, of each of so many draws."""
    size = (112, 112)
    grids = (transform.grid(transform.make_params([torch.zeros(1, *size)]), size) for _ in range(draws))
    return torch.stack([functional.folding(grid)[0] for grid in grids])


@pytest.mark.parametrize("name", ATOMS)
def test_table_of_folding(name):
    row = re.search(rf"\| `{name}` \| ([\d.]+) % \| ([\d.]+) %", README.read_text())
    assert row
    claimed, draws = float(row[1]) / 100, 300
    shares = shares_folding(getattr(randfield, name)(), draws)
    folding = shares[shares > 0]
    error = math.sqrt(claimed * (1 - claimed) * (1 / draws + 1 / 2000))
    assert abs(len(folding) / draws - claimed) <= 4 * error + 0.005  # what the table rounds off
    if len(folding) > 100:  # of the pixels of those that fold
        assert abs(folding.mean() - float(row[2]) / 100) <= 4 * folding.std() / math.sqrt(len(folding)) + 0.005


@pytest.mark.parametrize("names", list(itertools.combinations(ATOMS, 2)), ids="+".join)
def test_folding_of_composites(names):
    with_rotation = re.search(r"rotation and another \| (\d+) to (\d+) %", README.read_text())
    others = re.search(r"two of the others \| at most ([\d.]+) %", README.read_text())
    assert with_rotation
    assert others
    low, high = (float(v) / 100 for v in (with_rotation.groups() if "LocalRotate" in names else ("0", others[1])))
    draws = 200
    share = float((shares_folding(LocalAffine([getattr(randfield, n)() for n in names]), draws) > 0).double().mean())
    error = math.sqrt(max(high * (1 - high), low * (1 - low)) * (1 / draws + 1 / 2000))
    assert low - 4 * error <= share <= high + 4 * error

"""What a reader can paste is executed."""

import itertools
import math
import re
from pathlib import Path

import pytest
import torch

import randfield
from randfield import functional

README = Path(__file__).parent.parent / "README.md"


def test_readme_runs_from_top_to_bottom():
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert len(blocks) >= 6
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, README.name, "exec"), names)


def test_files_that_the_readme_names_exist():
    text = README.read_text()
    for name in {*re.findall(r"\]\(([^)#:]+)\)", text), *re.findall(r"`((?:docs|tests)/[\w/.]+)`", text)}:
        assert (README.parent / name).exists(), name


ATOMS = ("LocalRotate", "LocalScale", "LocalShear", "LocalTranslate")


def folding(transform: randfield.LocalWarp | randfield.LocalAffine, draws: int) -> float:
    """The share of draws at 112² that fold anywhere."""
    image = torch.zeros(1, 112, 112)
    grids = (transform.grid(transform.make_params([image]), (112, 112)) for _ in range(draws))
    return sum(bool(functional.folding(grid)[0]) for grid in grids) / draws


@pytest.mark.parametrize("name", ATOMS)
def test_table_of_folding(name):
    row = re.search(rf"\| `{name}` \| ([\d.]+) %", README.read_text())
    assert row
    claimed, draws = float(row[1]) / 100, 300
    error = math.sqrt(claimed * (1 - claimed) * (1 / draws + 1 / 2000))
    assert abs(folding(getattr(randfield, name)(), draws) - claimed) <= 4 * error + 0.005  # what the table rounds off


@pytest.mark.parametrize("pair", [*itertools.combinations(ATOMS, 2)], ids="+".join)
def test_table_of_folding_of_pairs(pair):
    label = "rotation and another" if "LocalRotate" in pair else "two of the others"
    row = re.search(rf"\| `LocalAffine`, {label} \| ([\d.]+) to ([\d.]+) %", README.read_text())
    assert row
    low, high = float(row[1]) / 100, float(row[2]) / 100
    share, draws = folding(randfield.LocalAffine([getattr(randfield, name)() for name in pair]), draws=150), 150
    error = 4 * math.sqrt(high * (1 - high) * (1 / draws + 1 / 2000)) + 0.005
    assert low - error <= share <= high + error

"""What a reader can paste is executed."""

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
        assert "/_build/" in name or (README.parent / name).exists(), name


@pytest.mark.parametrize("name", ["LocalRotate", "LocalScale", "LocalShear", "LocalTranslate"])
def test_table_of_folding(name):
    row = re.search(rf"\| `{name}` \| ([\d.]+) %", README.read_text())
    assert row
    claimed, draws = float(row[1]) / 100, 300
    transform, image = getattr(randfield, name)(), torch.zeros(1, 112, 112)
    folds = sum(
        bool(functional.folding(transform.grid(transform.make_params([image]), (112, 112)))[0]) for _ in range(draws)
    )
    error = math.sqrt(claimed * (1 - claimed) * (1 / draws + 1 / 2000))
    assert abs(folds / draws - claimed) <= 4 * error + 0.005  # what the table rounds off

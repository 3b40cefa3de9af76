"""What a reader can paste is executed."""

import re
from pathlib import Path

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

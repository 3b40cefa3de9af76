"""Every Python block of the documentation runs, page by page, from top to bottom."""

import ast
import re
import shlex
import warnings
from pathlib import Path

import pytest

import randfield

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))

# Libraries that an example may need and an installation may lack: `make docs` has them all.
OTHERS = ("datasets", "lightly", "stable_pretraining")


def blocks(page: Path) -> list[tuple[str, str]]:
    """The Python blocks of a page, each with the other library it imports, or none."""
    found = []
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL):
        imported = {
            name.split(".")[0]
            for node in ast.walk(ast.parse(block))
            for name in (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
        }
        (other,) = imported & set(OTHERS) or {""}
        assert max(map(len, block.splitlines())) <= 92, "the site shows no more of a line"
        found.append((block, other))
    return found


CASES = [(page, other) for page in PAGES for other in sorted({other for _, other in blocks(page)})]


@pytest.mark.parametrize(("page", "other"), CASES, ids=lambda case: getattr(case, "stem", case))
def test_examples_of(page, other, tmp_path, monkeypatch):
    """The blocks that need nothing else, and those that need `other`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPT_CACHE_DIR", str(tmp_path))  # where stable-pretraining writes what it finds
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    if other:
        # The warnings of another library, about its own dependencies, are not ours to mend.
        warnings.filterwarnings("ignore")
        pytest.importorskip(other, reason=f"this example needs {other}; `make docs` runs it")
        warnings.filterwarnings("error", module=r"randfield\b")
    names: dict[str, object] = {}
    for number, (block, needs) in enumerate(blocks(page), start=1):
        if needs in ("", other):
            exec(compile(block, f"{page.name}, block {number}", "exec"), names)


def commands():
    """The commands of randfield in the pages' shell blocks."""
    for page in [ROOT / "README.md", *PAGES]:
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                if "randfield" in words and words[0] in ("randfield", "srun", "torchrun"):
                    yield pytest.param(words[words.index("randfield") + 1 :], id=f"{page.stem}: {' '.join(words)[:60]}")


@pytest.mark.parametrize("words", list(commands()))
def test_commands_are_commands(words):
    from randfield.cli import app

    app.parse_args(words, exit_on_error=False, print_error=False)


def test_pages_link_to_what_exists():
    generated = ("examples/", "benchmarks.md")
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        for name in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert name.startswith(generated) or (page.parent / name).exists(), f"{page.name}: {name}"


def test_every_page_is_in_the_menu():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    listed = {line for tree in re.findall(r"```\{toctree\}(.*?)```", index, flags=re.DOTALL) for line in tree.split()}
    assert {page.stem for page in PAGES} - {"index"} <= listed


def test_reference_has_the_public_names():
    reference = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    documented = set(re.findall(r":: (\w+)(?:\(\.\.\.\))?\n", reference))
    assert documented >= {*randfield.__all__, *randfield.functional.__all__} - {"functional"}


@pytest.mark.parametrize("script", sorted((ROOT / "docs" / "gallery").glob("plot_*.py")), ids=lambda path: path.stem)
def test_gallery_scripts_are_short_and_ask_a_question(script):
    text = script.read_text(encoding="utf-8")
    assert 20 <= len(text.splitlines()) <= 80
    title, underline = text.splitlines()[1:3]
    assert title.endswith("?")
    assert underline == "=" * len(title)
    assert f'"{script.stem.removeprefix("plot_")}"' in (ROOT / "docs" / "conf.py").read_text(encoding="utf-8")


def test_citation_and_changelog_know_the_version():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {randfield.__version__}\n" in citation
    assert "2311.03629" in citation
    assert f"## {randfield.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")

"""The demo, from the command to the page: both runs, the probes, what is said and what is shown."""

import contextlib
import io
import json
import re

import pytest

from randfield.learn import config, data
from tests.test_cli import run

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:lightning"),  # theirs, and so are those of the libraries
    pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorboard"),  # it imports
    pytest.mark.filterwarnings("ignore::FutureWarning:lightning"),
]


def small(patched):
    """A tenth of the fruits, a smaller picture."""
    load = data.load

    def less(name, root="data"):
        whole = load(name, root)
        parts = (images.take(range(0, len(images), 10)) for images in (whole.train, whole.test))
        return data.Data(name, *parts)

    patched.setattr(data, "load", less)
    fewer = {"size": 16, "batch_size": 40, "hidden_dim": 32, "knn_every": 1}
    patched.setitem(config.PRESETS, "demo", config.PRESETS["demo"] | fewer)


def said(*arguments):
    """The exit status of `randfield demo ARGUMENTS`, and what it says on standard output and standard error."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as error:
        status = run("demo", *arguments)
    return status, out.getvalue(), error.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A demo of two epochs, told as JSON."""
    out = tmp_path_factory.mktemp("demo") / "a & <b>"
    with pytest.MonkeyPatch.context() as patched:
        small(patched)
        status, told, shown = said("--epochs", 2, "--out", out, "--json")
    assert status == 0, shown
    (out / "told.txt").write_text(told, encoding="utf-8")
    (out / "shown.txt").write_text(shown, encoding="utf-8")
    return out


def test_its_last_line_is_the_result_and_progress_goes_elsewhere(folder):
    lines = (folder / "told.txt").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 1
    result = json.loads(lines[0])
    assert result["report"] == str(folder / "report.html")
    assert set(result["top1"]) == {"untrained", "baseline", "translate"}
    for top1 in result["top1"].values():
        assert set(top1) == {"demo", "demo-ood"}
        assert 0 <= top1["demo"] <= 1
    shown = (folder / "shown.txt").read_text(encoding="utf-8")
    assert "SimCLR with local translation · epoch 2 of 2" in shown
    assert "Probes" in shown


def test_its_runs_differ_in_the_local_transform_alone(folder):
    one, other = (config.Config.load(folder / name / "config.json").plain() for name in ("baseline", "translate"))
    assert {key for key in one if one[key] != other[key]} == {"local"}
    assert (one["local"], other["local"], other["epochs"]) == ("none", "translate", 2)


def test_its_page_needs_nothing_else_and_shows_everything(folder):
    page = (folder / "report.html").read_text(encoding="utf-8")
    sources = re.findall(r'(?:src|href)="([^"]{0,30})', page)
    assert len(sources) == 6 * 6 + 1 + 3  # six transforms with field, photo and draws; the views; three encoders' likes
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert "url(" not in page
    assert "@import" not in page
    rows = re.findall(r"<tr><td>(.*?)</td>.*?</tr>", page)
    assert rows == ["untrained", "SimCLR", "SimCLR with local translation"]
    result = json.loads((folder / "told.txt").read_text(encoding="utf-8"))
    for top1 in result["top1"].values():
        assert all(f"<td>{value:.1%}</td>" in page for value in top1.values())
    assert page.count("<polyline") == 4  # loss and neighbours of two runs
    assert "flatters" in page


def test_it_goes_on_with_what_is_there(folder, monkeypatch):
    small(monkeypatch)
    before = (folder / "baseline" / "last.ckpt").stat().st_mtime_ns
    page = (folder / "report.html").read_bytes()
    status, told, _ = said("--epochs", 2, "--out", folder)
    assert status == 0
    assert told.splitlines()[-1] == f"The report is {folder / 'report.html'}"
    assert "flatter" in told
    assert (folder / "baseline" / "last.ckpt").stat().st_mtime_ns == before
    assert (folder / "report.html").read_bytes() == page


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("--photo", "none.jpg"), 1, "cannot show none.jpg: No such file or directory; name a photo"),
        (("--epochs", "3"), 1, "holds a run with size 16 and not 32, epochs 2 and not 3"),
        (("--epochs", "0"), 2, "Must be >= 1"),
    ],
)
def test_what_it_cannot_do_is_a_sentence(folder, arguments, status, message):
    ended, told, error = said("--out", folder, *arguments)
    assert ended == status
    assert not told
    assert message in re.sub(r"[\s│]+", " ", error)

"""The commands reproduce, tune and report: what they print, and what they say when they cannot."""

import json
import sys

import pytest
from PIL import Image

from randfield.paper.commands import duration
from tests.test_cli import run

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:lightning"),  # theirs, and so are those of the libraries
    pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorboard"),  # it imports
    pytest.mark.filterwarnings("ignore::FutureWarning:lightning"),
]
QUICK = ["--epochs", "1", "--size", "16", "--batch-size", "40"]


def last_line(capsys):
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_a_table_from_the_plan_to_the_report(few, tmp_path, capsys):
    asked = ["reproduce", "table1", "--rows", "baseline", "shear", "--out", tmp_path / "out", *QUICK]
    assert run(*asked, "--dry-run", "--seeds", 2) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[:4] == [f"{row}, seed {seed}: to do" for seed in (0, 1) for row in ("baseline", "shear")]
    assert "4 trials, 4 to do\nAbout " in out
    assert not (tmp_path / "out").exists()

    assert run(*asked) == 0
    out, error = capsys.readouterr()
    assert out.splitlines()[0] == "table1: 2 trials"
    assert str(tmp_path / "out" / "report.html") in out
    assert "table1-demo: 2 of 2 trials" in error
    assert run(*asked, "--dry-run", "--seeds", 2, "--json") == 0
    plan = last_line(capsys)
    assert [trial["state"] for trial in plan["trials"]] == ["done", "done", "to do", "to do"]
    assert plan["left"] == 2
    assert plan["seconds"] == pytest.approx(2 * plan["seconds_each"], abs=2)

    assert run(*asked, "--json") == 0
    told = last_line(capsys)
    assert (told["table"], told["trials"], told["missing"], told["errors"]) == ("table1", 2, [], {})
    assert run("report", tmp_path / "out", "--out", tmp_path / "report", "--json") == 0
    told = last_line(capsys)
    assert told["missing"] == {"table1": []}
    assert "Table 1: atomic" in (tmp_path / "report" / "report.md").read_text()


def test_the_trials_are_listed_where_the_data_is_missing(tmp_path, capsys):
    paper = ["reproduce", "table1", "--preset", "paper", "--root", tmp_path, "--out", tmp_path / "out", "--dry-run"]
    assert run(*paper) == 1
    out, error = capsys.readouterr()
    assert "6 trials, 6 to do" in out
    assert "imagenet is not in" in error


def test_a_row_that_fails_is_in_the_status(few, tmp_path, capsys, monkeypatch):
    def failing(config, out, **options):
        raise RuntimeError("no more memory")

    monkeypatch.setattr("randfield.paper.study.pretrain", failing)
    assert run("reproduce", "table3", "--rows", "p0.0", "--out", tmp_path, *QUICK) == 1
    out, error = capsys.readouterr()
    assert "randfield: table3: p0.0, seed 0 failed: no more memory" in error
    assert "1 missing" in out


def test_figures(tmp_path, capsys):
    assert run("reproduce", "fig1", "--out", tmp_path, "--json") == 0
    assert last_line(capsys)["out"] == [str(tmp_path / f"fig1.{kind}") for kind in ("png", "svg")]
    Image.effect_noise((53, 37), 80).save(tmp_path / "photo.png")
    assert run("reproduce", "fig2", "--out", tmp_path, "--photo", tmp_path / "photo.png") == 0
    assert (tmp_path / "fig2.svg").exists()
    (tmp_path / "text.png").write_text("no picture")
    assert run("reproduce", "fig2", "--out", tmp_path, "--photo", tmp_path / "text.png") == 1
    assert "cannot draw fig2 from" in capsys.readouterr().err
    assert run("reproduce", "fig2", "--out", tmp_path, "--photo", tmp_path / "none.png") == 1
    assert "No such file" in capsys.readouterr().err


def test_tune(few, tmp_path, capsys, monkeypatch):
    def scored(config, out, **options):
        return {"epochs": config.epochs, "knn_top1": 0.5 - abs(config.alpha[1] - 0.2)}

    monkeypatch.setattr("randfield.paper.tune.pretrain", scored)
    assert run("tune", "--trials", 6, "--local", "translate", "shear", "--out", tmp_path, *QUICK) == 0
    out = capsys.readouterr().out
    assert "Best of 6 trials (" in out
    assert "with the paper's best 36.7%" in out
    assert "What the differences come from: alpha " in out
    assert f"randfield pretrain --config {tmp_path / 'best.json'}" in out
    assert run("tune", "--trials", 6, "--local", "translate", "shear", "--out", tmp_path, *QUICK, "--json") == 0
    assert set(last_line(capsys)) == {
        "config", "setting", "score", "baseline", "paper", "trials", "pruned", "importances",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["reproduce", "table5"], 2, "table5"),
        (["reproduce", "table1", "--rows", "sheer"], 2, "table1 has no row 'sheer'; its rows are baseline, color"),
        (["reproduce", "table1", "--preset", "small"], 2, "name images to learn from with --data"),
        (["reproduce", "table1", "--seeds", "0"], 2, "seeds"),
        (
            ["reproduce", "table1", "--storage", "postgresql://joe:secret@127.0.0.1:1/x"],
            1,
            "joe:***@127.0.0.1:1/x does",
        ),
        (["report", "nowhere"], 1, "no results in nowhere"),
        (["tune", "--local", "turn"], 2, "unknown transform 'turn'"),
        (["tune", "--data", "nowhere"], 1, "nowhere is no file or folder"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(arguments, status, words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(*arguments) == status
    out, error = capsys.readouterr()
    assert words in " ".join((out + error).split())
    assert "Traceback" not in error
    assert "secret" not in out + error


@pytest.mark.parametrize("module", ["optuna", "scipy"])
def test_without_the_extra_it_says_what_to_install(module, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    for name in ("study", "report"):  # as if they had never been imported
        monkeypatch.delitem(sys.modules, f"randfield.paper.{name}", raising=False)
        monkeypatch.delattr(f"randfield.paper.{name}", raising=False)
    assert run("reproduce", "table1", "--out", tmp_path) == 1
    assert f"needs {module}; install it with: pip install 'randfield[study]'" in capsys.readouterr().err


def test_durations_are_round():
    assert [duration(seconds) for seconds in (3, 200, 9000, 300000)] == [
        "3 seconds", "3.3 minutes", "2.5 hours", "3.5 days",
    ]  # fmt: skip

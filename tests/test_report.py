"""Reports: the paper's numbers, ours beside, what is missing, and statistics that agree with their definitions."""

import json
import math
import re
from pathlib import Path

import pytest
import torch

from randfield import functional
from randfield.paper.report import ReportError, _rank_correlation, difference, folds, report
from randfield.paper.study import Setup
from randfield.paper.tables import TABLES


@pytest.fixture(autouse=True)
def _few_draws(monkeypatch):
    monkeypatch.setattr("randfield.paper.report._folds", lambda row: folds(row, draws=10))


def line(table, row, seed, top1, *, ood=True):
    metrics = {"in": {"top1": top1, "top5": min(1.0, top1 + 0.2), "n": 400}}
    metrics |= {"ood": {"top1": top1 / 2, "top5": top1, "n": 200}} if ood else {}
    return {"table": table, "row": row, "seed": seed, "metrics": metrics, "device": "2 CPU cores"}


def folder(path, lines, wanted, table="table1", **given):
    """What `reproduce` leaves."""
    path.mkdir(exist_ok=True)
    settings = json.loads(json.dumps(Setup.of(table, "demo", **given).plain()))
    (path / f"{table}.json").write_text(json.dumps({"settings": settings, "wanted": wanted}))
    with (path / "results.jsonl").open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    return path


def everything(table, seeds):
    """A result for every row: the share that is the paper's, a little different for each seed."""
    return [
        line(table, row.name, seed, row.paper["in"].top1 + 0.01 * seed) for row in TABLES[table].rows for seed in seeds
    ]


def keys(lines):
    return [(line["row"], line["seed"]) for line in lines]


def written(told):
    return [Path(told["out"][kind]).read_text() for kind in ("markdown", "html")]


@pytest.mark.parametrize("table", TABLES)
def test_a_finished_table_has_the_papers_numbers_and_ours(table, tmp_path):
    lines = everything(table, (0, 1, 2))
    told = report([folder(tmp_path, lines, keys(lines), table)], tmp_path)
    assert told["missing"] == {table: []}
    markdown, html = written(told)
    for page in (markdown, html):
        assert TABLES[table].title in page
        assert "Unfinished" not in page
        assert "missing" not in page
        for row in TABLES[table].rows:
            if row.printed:
                assert f"{row.paper['in'].top1:.4f}" in page
                assert f"{row.paper['ood'].top1:.4f}" in page
                assert f"{row.paper['in'].top1 + 0.01:.4f} ± 0.0100" in page.replace(
                    "\N{NO-BREAK SPACE}", " "
                )  # the mean and deviation of three seeds
        assert "(n = 3)" in page.replace("\N{NO-BREAK SPACE}", " ")
    assert "http" not in re.sub(r'xmlns="[^"]*"', "", html)  # nothing from elsewhere
    assert html.count("<svg") == (2 if table == "table3" else 0)
    assert html.count("color-mix") == {"table2": 36, "table4": 40}.get(table, 0)


def test_an_unfinished_table_says_what_is_missing_and_reports_the_rest(tmp_path):
    lines = [line("table1", "baseline", 0, 0.5), line("table1", "baseline", 1, 0.52), line("table1", "shear", 0, 0.6)]
    wanted = [(row, seed) for row in ("baseline", "shear", "scale") for seed in (0, 1)]
    told = report([folder(tmp_path, lines, wanted)], tmp_path)
    assert told["missing"] == {"table1": ["shear, seed 1", "scale, seed 0", "scale, seed 1"]}
    markdown = written(told)[0].replace("\N{NO-BREAK SPACE}", " ")
    assert "Unfinished: 3 of 6 trials are missing: scale (seeds 0, 1), shear (seed 1)." in markdown
    row = next(text for text in markdown.splitlines() if text.startswith("| Local shear | +"))
    assert "+10.00 (n = 1)" in row  # over the seed that both have, without an interval
    assert "missing" in next(text for text in markdown.splitlines() if text.startswith("| Local scale | +"))


def test_folders_of_several_machines_add_up(tmp_path):
    one = folder(tmp_path / "one", [line("table1", "baseline", 0, 0.5)], [("baseline", 0)])
    two = folder(tmp_path / "two", [line("table1", "shear", 0, 0.6)], [("shear", 0)])
    assert report([one, two], tmp_path)["missing"] == {"table1": []}
    other = folder(tmp_path / "other", [], [], epochs=7)
    with pytest.raises(ReportError, match=r"different settings in .*other \(epochs\b.*\)"):
        report([one, other], tmp_path)


def test_without_other_data_there_is_no_column_for_it(tmp_path):
    lines = [line("table1", "baseline", 0, 0.5, ood=False)]
    markdown, _ = written(report([folder(tmp_path, lines, keys(lines), data="photos")], tmp_path))
    assert "ours, photos" in markdown
    assert "out of distribution on iNaturalist" in markdown
    assert markdown.count("ours, ") == 3  # accuracies, differences, folds


def test_nothing_to_report(tmp_path):
    with pytest.raises(ReportError, match="no results in"):
        report([tmp_path], tmp_path)


def test_differences_are_paired_by_seed():
    """Seeds shift everything; their differences do not vary."""
    baseline = {0: 0.1, 1: 0.5, 2: 0.9}
    mean, half, n = difference({seed: value + 0.02 for seed, value in baseline.items()}, baseline)
    assert (round(mean, 6), round(half, 6), n) == (0.02, 0.0, 3)
    mean, none, n = difference({0: 0.3, 7: 0.9}, baseline)
    assert (round(mean, 6), none, n) == (0.2, None, 1)
    mean, half, n = difference({}, baseline)
    assert math.isnan(mean)
    assert n == 0


def test_the_interval_is_students():
    mean, half, n = difference({0: 1.0, 1: 2.0, 2: 3.0, 3: 4.0}, dict.fromkeys(range(4), 0.0))
    assert (mean, n) == (2.5, 4)
    assert half == pytest.approx(3.182446 * 1.290994 / 2, rel=1e-5)  # t(0.975, 3), s, sqrt n


def test_folds_are_what_folding_says():
    rotate = TABLES["table1"].row("rotate")
    transform = rotate.transform()
    image = torch.zeros(3, 112, 112, dtype=torch.uint8)
    torch.manual_seed(3)
    found = [
        bool(functional.folding(transform.grid(transform.make_params([image]), (112, 112)))[0] > 0) for _ in range(400)
    ]
    assert folds(rotate, draws=400) == pytest.approx(
        sum(found) / 400, abs=0.14
    )  # four standard errors of the difference
    assert folds(TABLES["table1"].row("color")) == folds(TABLES["table1"].row("baseline")) == 0


@pytest.mark.slow
def test_the_papers_table_2_has_the_order_of_its_folds():
    """What the docs say of the paper's own numbers."""
    rows = [row for row in TABLES["table2"].rows if row.printed]
    shares = [folds(row, draws=8000) for row in rows]
    for task, said, p in (("in", -1.0, 0.0001), ("ood", -0.83, 0.009)):
        found = _rank_correlation(shares, [row.paper[task].top1 for row in rows])  # type: ignore[index]  # it is a task
        assert found is not None
        assert found[0] == pytest.approx(said, abs=0.006)
        assert found[1] == pytest.approx(p, rel=0.2)

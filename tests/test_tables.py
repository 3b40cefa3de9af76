"""The paper's tables: what their rows are, and that they agree where they overlap."""

import pytest

from randfield import LocalAffine, LocalColorJitter, LocalTranslate
from randfield.learn.config import Config
from randfield.paper.tables import TABLES


def test_every_row_is_there_once():
    assert {name: sum(row.printed for row in table.rows) for name, table in TABLES.items()} == {
        "table1": 6, "table2": 9, "table3": 6, "table4": 10,
    }  # fmt: skip
    for table in TABLES.values():
        names = [row.name for row in table.rows]
        assert len(set(names)) == len(names)
        assert table.row(table.baseline).settings == {"local": "none"}
        for row in table.rows:
            Config.of("paper", **row.settings)  # says what is wrong
            assert set(row.paper) == {"in", "ood"}
            assert all(0.3 < a.top1 < (a.top5 or 0.99) < 1 for a in row.paper.values())


def test_the_best_rows_are_those_that_the_paper_prints_in_bold():
    best = {"table1": "translate", "table2": "gamma7-10-alpha0.33", "table3": "p0.8"}
    for name, table in TABLES.items():
        for task in ("in", "ood"):
            top1 = {row.name: row.paper[task].top1 for row in table.rows}
            assert name not in best or max(top1, key=top1.__getitem__) == best[name]


def test_rows_with_the_same_settings_have_the_same_numbers():
    seen: dict[str, dict[str, float]] = {}
    for table in TABLES.values():
        for row in table.rows:
            key = str(sorted(Config.of("paper", **row.settings).plain().items()))
            top1 = {task: accuracy.top1 for task, accuracy in row.paper.items()}
            assert seen.setdefault(key, top1) == top1
    assert len(seen) == 24  # runs for 33 rows


@pytest.mark.parametrize(
    ("table", "row", "kind", "gamma", "alpha", "p"),
    [
        ("table1", "translate", LocalTranslate, (7, 10), (0, 1 / 3), 0.8),
        ("table1", "color", LocalColorJitter, (7, 10), None, 0.8),
        ("table2", "gamma3-7-alpha0.67", LocalTranslate, (3, 7), (0, 2 / 3), 0.8),
        ("table2", "gamma3-10-alpha1.00", LocalTranslate, (3, 10), (0, 1), 0.8),
        ("table3", "p0.2", LocalTranslate, (7, 10), (0, 1 / 3), 0.2),
        ("table4", "scale+shear", LocalAffine, None, None, 0.8),
    ],
)
def test_rows_are_the_transforms_of_the_paper(table, row, kind, gamma, alpha, p):
    transform = TABLES[table].row(row).transform()
    assert isinstance(transform, kind)
    assert transform.p == p
    assert gamma is None or transform.gamma == pytest.approx(gamma)
    assert alpha is None or transform.alpha == pytest.approx(alpha)


def test_the_transform_of_a_row_is_that_of_its_run():
    for table in TABLES.values():
        for row in table.rows:
            local, its = row.transform(), Config.of("paper", **row.settings).views().local
            assert (local is None and its is None) or local.config == its.config

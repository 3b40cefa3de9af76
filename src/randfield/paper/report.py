"""Reports: the tables as the paper prints them, ours beside, as Markdown and as one HTML page.

What is compared: the mean over seeds with its standard deviation, and for each row the difference to the baseline of
the same seed, whose mean has a 95 % interval (Student's t). Levels differ with the data and the encoder; differences
are what can be compared with the paper's.

Whether rows that fold do worse is asked, not assumed: the rank correlation between the share of views that a row folds
and its accuracy, in the paper's numbers and in ours, with the probability of one so far from zero if there were none.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import torch
from PIL import Image
from scipy import stats
from torchvision.transforms.v2 import functional as tvf
from torchvision.utils import make_grid

from randfield import functional, page, pictures
from randfield.learn.train import RunError, write_whole
from randfield.paper.tables import TABLES, Accuracy, Row, Table, Task
from randfield.seeds import seed_of
from randfield.transforms import LocalAffine, LocalWarp

__all__ = ["ReportError", "difference", "folds", "report"]

_TASKS: tuple[Task, ...] = ("in", "ood")
_PAPERS = {"in": "ImageNet", "ood": "iNaturalist"}


class ReportError(RunError):
    """There is nothing to report; the message says why."""


class Part(NamedTuple):
    """A piece of a report in both of its forms."""

    markdown: str
    html: str


def report(runs: Sequence[Path], out: Path) -> dict[str, Any]:
    """Write report.md and report.html to `out` from the folders of `reproduce`: where they are, and what is missing."""
    found = [_Found.of(table, runs) for table in TABLES.values()]
    sections = [section for section in found if section]
    if not sections:
        raise ReportError(
            f"no results in {', '.join(map(str, runs))}; expected folders that `randfield reproduce table1` and the "
            "like wrote with --out"
        )
    parts = [_text("The paper's tables, with our numbers beside those it prints (Mansfield et al., 2023).")]
    for section in sections:
        parts += section.parts()
    title = "Random field augmentations, reproduced"
    files = {"markdown": out / "report.md", "html": out / "report.html"}
    write_whole(files["markdown"], "\n\n".join([f"# {title}", *(p.markdown for p in parts if p.markdown)]) + "\n")
    write_whole(files["html"], page.document(title, *(part.html for part in parts)))
    missing = {section.table.name: [f"{row}, seed {seed}" for row, seed in section.missing] for section in sections}
    return {"out": {kind: str(file) for kind, file in files.items()}, "missing": missing}


# ------------------------------------------------------------------------------------------------------------- numbers


def difference(ours: Mapping[int, float], baseline: Mapping[int, float]) -> tuple[float, float | None, int]:
    """The mean difference over the seeds that both have, half the width of its 95 % interval, and how many they are.

    One pair has a difference and no interval.

    >>> mean, half, n = difference({0: 0.5, 1: 0.7, 2: 0.6}, {0: 0.4, 1: 0.5, 2: 0.5})
    >>> round(mean, 4), round(half, 4), n
    (0.1333, 0.1434, 3)
    """
    pairs = [ours[seed] - baseline[seed] for seed in sorted(ours) if seed in baseline]
    if not pairs:
        return math.nan, None, 0
    mean, n = statistics.mean(pairs), len(pairs)
    if n == 1:
        return mean, None, 1
    return mean, float(stats.t.ppf(0.975, n - 1)) * statistics.stdev(pairs) / math.sqrt(n), n


def folds(row: Row, *, draws: int = 2000, size: int = 112) -> float:
    """The share of views, those that are passed over included, that the transform of a row folds anywhere."""
    transform = row.transform()
    if not isinstance(transform, LocalWarp | LocalAffine):
        return 0.0  # colours move nothing
    transform.generator = torch.Generator().manual_seed(seed_of(0, "folds", row.name))
    image = torch.empty((3, size, size), dtype=torch.uint8)
    folded = 0
    for _ in range(draws):
        params = transform.make_params([image])
        folded += bool(params) and bool(functional.folding(transform.grid(params, (size, size)))[0] > 0)
    return folded / draws


_folds = cache(folds)


def _rank_correlation(x: Sequence[float], y: Sequence[float]) -> tuple[float, float] | None:
    """Spearman's, and the probability of one as far from zero by chance: over all pairings, or many of them."""
    if len(x) < 4 or len(set(x)) < 2 or len(set(y)) < 2:
        return None

    first, second = (stats.zscore(stats.rankdata(values)) for values in (x, y))

    def correlation(second: Any, axis: int) -> Any:
        return (first * second).mean(axis)

    tested = stats.permutation_test(
        (second,), correlation, permutation_type="pairings", vectorized=True, n_resamples=20000, rng=0
    )
    return float(tested.statistic), float(tested.pvalue)


# ------------------------------------------------------------------------------------------------------------ one table


@dataclass(frozen=True)
class _Found:
    """What several folders hold of one table."""

    table: Table
    settings: dict[str, Any]
    lines: list[dict[str, Any]]
    wanted: list[tuple[str, int]]

    @classmethod
    def of(cls, table: Table, runs: Sequence[Path]) -> _Found | None:
        settings: dict[str, Any] | None = None
        lines: dict[tuple[str, int], dict[str, Any]] = {}
        wanted: list[tuple[str, int]] = []
        for run in runs:
            asked, results = run / f"{table.name}.json", run / "results.jsonl"
            if not asked.exists():
                continue
            note = json.loads(asked.read_text(encoding="utf-8"))
            if settings is not None and note["settings"] != settings:
                keys = [key for key in settings if settings[key] != note["settings"].get(key)]
                raise ReportError(
                    f"{table.name} was made with different settings in {run} ({', '.join(keys)}); report them apart"
                )
            settings = note["settings"]
            wanted += [(row, seed) for row, seed in note["wanted"] if (row, seed) not in wanted]
            read = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
            for line in map(json.loads, read):
                if line["table"] == table.name:
                    lines.setdefault((line["row"], line["seed"]), line)
        return None if settings is None else cls(table, settings, list(lines.values()), wanted)

    @property
    def missing(self) -> list[tuple[str, int]]:
        there = {(line["row"], line["seed"]) for line in self.lines}
        return [key for key in self.wanted if key not in there]

    @property
    def tasks(self) -> list[Task]:
        return [task for task in _TASKS if task == "in" or self.settings["ood"]]

    def values(self, row: Row, task: Task, k: int = 1) -> dict[int, float]:
        """Ours, by seed."""
        return {
            line["seed"]: line["metrics"][task][f"top{k}"]
            for line in self.lines
            if line["row"] == row.name and task in line["metrics"]
        }

    def data(self, task: Task) -> str:
        return Path(str(self.settings["data" if task == "in" else "ood"])).name

    # -- in words and pictures

    def parts(self) -> list[Part]:
        parts = [_heading(self.table.title), _text(self._what_ours_is())]
        if self.missing:
            told = ", ".join(
                f"{row} (seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))})"
                for row, seeds in self._gaps()
            )
            parts.append(
                _text(f"Unfinished: {len(self.missing)} of {len(self.wanted)} trials are missing: {told}. "
                      "The same command goes on with them.")
            )  # fmt: skip
        if all(row.cell for row in self._printed()):
            parts += self._matrices()
        else:
            parts.append(self._as_printed())
        parts.append(
            _text(
                "Top-1 above the baseline, in points; ours is the mean over seeds of the difference to the baseline of "
                "the same seed, with its 95 % interval."
            )
        )
        parts.append(self._differences())
        if self.table.name == "table3":
            parts.append(self._curves())
        parts += self._about_folds()
        parts.append(self._seen())
        return parts

    def _what_ours_is(self) -> str:
        s, seeds = self.settings, {line["seed"] for line in self.lines}
        machines = sorted({line["device"] for line in self.lines})
        told = [
            f"Ours: {s['encoder']}, {s['method']}, {s['epochs']} epochs of {self.data('in')} at {s['size']}², batches "
            f"of {s['batch_size']}, judged by the {s['protocol']} probe"
            + (f", out of distribution on {self.data('ood')}" if s["ood"] else "")
            + f"; {len(seeds)} seed{'s' * (len(seeds) != 1)}, {len(self.lines)} trials"
            + (f" on {', '.join(machines)}." if machines else "."),
            "The paper: ResNet-50, SimCLR on ImageNet at 224², out of distribution on iNaturalist 2018, a run of each.",
            "Levels differ with data and encoder; compare the differences.",
        ]
        if s["data"] == "demo":
            told.append("The demo's fruits turn on a white ground, which flatters every encoder.")
        return " ".join(told)

    def _gaps(self) -> list[tuple[str, list[int]]]:
        ordered = sorted(self.missing)
        return [(row, [seed for _, seed in keys]) for row, keys in groupby(ordered, key=lambda key: key[0])]

    def _printed(self) -> list[Row]:
        return [row for row in self.table.rows if row.printed]

    def _as_printed(self) -> Part:
        header = ["", *(f"paper, {_PAPERS[t]}: top-1 / top-5" for t in _TASKS)]
        header += [f"ours, {self.data(t)}: top-1 / top-5" for t in self.tasks]
        rows = [
            [row.label, *(_printed(row.paper[t]) for t in _TASKS), *(self._ours(row, t) for t in self.tasks)]
            for row in self._printed()
        ]
        return _table(header, rows)

    def _ours(self, row: Row, task: Task) -> str:
        top1, top5 = (list(self.values(row, task, k).values()) for k in (1, 5))
        if not top1:
            return "missing"
        return f"{_spread(top1)} / {_spread(top5)} {_count(len(top1))}"

    def _matrices(self) -> list[Part]:
        cells = {row.cell: row for row in self._printed() if row.cell}
        rows, columns = (list(dict.fromkeys(cell[axis] for cell in cells)) for axis in (0, 1))
        parts = []
        for task in self.tasks:
            paper = {cell: row.paper[task].top1 for cell, row in cells.items()}
            parts.append(
                _matrix(
                    rows, columns, paper, {cell: _printed(row.paper[task]) for cell, row in cells.items()},
                    f"The paper, {_PAPERS[task]}: top-1{' / top-5' if self.table.name == 'table2' else ''}",
                )
            )  # fmt: skip
            ours = {cell: list(values.values()) for cell, row in cells.items() if (values := self.values(row, task))}
            parts.append(
                _matrix(
                    rows, columns, {cell: statistics.mean(values) for cell, values in ours.items()},
                    {cell: self._ours(cells[cell], task) for cell in ours},
                    f"Ours, {self.data(task)}: top-1 / top-5, mean ± standard deviation",
                )
            )  # fmt: skip
        return parts

    def _differences(self) -> Part:
        baseline = self.table.row(self.table.baseline)
        header = [""]
        for task in self.tasks:
            header += [f"paper, {_PAPERS[task]}", f"ours, {self.data(task)}"]
        rows = []
        for row in self.table.rows:
            if row is baseline:
                continue
            cells = [row.label]
            for task in self.tasks:
                cells.append(_points(row.paper[task].top1 - baseline.paper[task].top1))
                mean, half, n = difference(self.values(row, task), self.values(baseline, task))
                interval = "" if half is None else f" [{_points(mean - half)},\N{NO-BREAK SPACE}{_points(mean + half)}]"
                cells.append("missing" if n == 0 else f"{_points(mean)}{interval} {_count(n)}")
            rows.append([*cells, f"{_folds(row):.1%}"])
        return _table([*header, "views that fold"], rows)

    def _curves(self) -> Part:
        drawn = []
        baseline = self.table.row(self.table.baseline)
        for task in self.tasks:
            lines = {
                f"paper, {_PAPERS[task]}": [
                    (float(row.label), 100 * (row.paper[task].top1 - baseline.paper[task].top1))
                    for row in self.table.rows
                ],
                f"ours, {self.data(task)}": [
                    (float(row.label), 100 * difference(self.values(row, task), self.values(baseline, task))[0])
                    for row in self.table.rows
                ],
            }
            drawn.append(
                page.curves(
                    lines, x="probability p", y="top-1, points above p = 0",
                    caption="In distribution" if task == "in" else "Out of distribution",
                )
            )  # fmt: skip
        return Part("", "\n".join(drawn))

    def _about_folds(self) -> list[Part]:
        """Do the rows that fold do worse?"""
        if self.table.name == "table3":
            return []  # there the share is p, times one number
        moved = [row for row in self._printed() if isinstance(row.transform(), LocalWarp | LocalAffine)]
        asked: list[tuple[str, Callable[[Row], float | None]]] = []
        for task in self.tasks:
            asked.append((f"paper, {_PAPERS[task]}", lambda row, task=task: row.paper[task].top1))  # type: ignore[misc]
            asked.append((f"ours, {self.data(task)}", lambda row, task=task: self._mean(row, task)))  # type: ignore[misc]
        rows = []
        for name, value in asked:
            both = [(_folds(row), v) for row in moved if (v := value(row)) is not None]
            found = _rank_correlation(*zip(*both, strict=True)) if both else None
            rows.append(
                [
                    name,
                    len(both),
                    *(
                        ("too few", "")
                        if found is None
                        else (f"{found[0]:+.2f}".replace("-", "\N{MINUS SIGN}"), f"{found[1]:.3f}")
                    ),
                ]
            )
        question = (
            "Do the rows that fold more of their views do worse? Rank correlation between that share and top-1 over "
            "the rows that move pixels; p is how often chance does as much."
        )
        return [_text(question), _table(["accuracies", "rows", "correlation", "p"], rows)]

    def _mean(self, row: Row, task: Task) -> float | None:
        values = self.values(row, task)
        return statistics.mean(values.values()) if values else None

    def _seen(self) -> Part:
        """What the settings do to a photo."""
        with (resources.files("randfield") / "chelsea.jpg").open("rb") as file:
            photo = pictures.as_rgb(pictures.read(file)[0]).resize((96, 64), Image.Resampling.LANCZOS)
        image, seen, rows = tvf.pil_to_tensor(photo), [], []
        for row in self.table.rows:
            transform = row.transform()
            if transform is None:
                continue
            transform.generator = torch.Generator().manual_seed(seed_of(0, "seen", row.name))
            seen += [transform(image) for _ in range(8)]
            rows.append(row.label)
        drawn = tvf.to_pil_image(make_grid(torch.stack(seen), nrow=8, padding=3, pad_value=255))
        told = f"Eight draws of each setting, from the top: {'; '.join(rows)}. Where nothing changes, p passed it over."
        return Part("", page.picture(drawn, told, kind="JPEG"))


# ---------------------------------------------------------------------------------------------------------- both forms


def _printed(accuracy: Accuracy) -> str:
    """As the paper does."""
    return f"{accuracy.top1:.4f}" + ("" if accuracy.top5 is None else f" / {accuracy.top5:.4f}")


def _spread(values: Sequence[float]) -> str:
    mean = f"{statistics.mean(values):.4f}"
    return mean if len(values) < 2 else f"{mean} ± {statistics.stdev(values):.4f}".replace(" ", "\N{NO-BREAK SPACE}")


def _count(n: int) -> str:
    return f"(n\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{n})"


def _points(share: float) -> str:
    return f"{100 * share:+.2f}".replace("-", "\N{MINUS SIGN}")


def _heading(words: str) -> Part:
    return Part(f"## {words}", page.heading(words))


def _text(words: str) -> Part:
    return Part(words, page.text(words))


def _table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> Part:
    return Part(_markdown(header, rows), page.table(header, rows))


def _matrix(
    rows: Sequence[str],
    columns: Sequence[str],
    values: Mapping[tuple[str, str], float],
    words: Mapping[tuple[str, str], str],
    caption: str,
) -> Part:
    body = [[row, *(words.get((row, column), "") for column in columns)] for row in rows]
    return Part(
        f"{caption}:\n\n{_markdown(['', *columns], body)}",
        page.matrix(rows, columns, values, words=words, caption=caption),
    )


def _markdown(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)

"""The command line: run subjects, show them on the terminal, write them down, publish them."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter
from rich.console import Console
from rich.table import Table

from benchmarks import cases, report, scaling
from benchmarks.measure import Case, Outcome, compare
from benchmarks.report import ROOT, Run

Subject = Literal["transforms", "color", "fields", "views", "scaling"]
SUBJECTS: dict[Subject, Callable[[], list[Case]]] = {
    "transforms": cases.transforms,
    "color": cases.color,
    "fields": cases.fields,
    "views": cases.views,
    "scaling": scaling.curves,
}

app = App(name="python -m benchmarks", help="Peers and randfield in one run. `accelerator` is the subject for a GPU.")
console = Console(width=None if sys.stdout.isatty() else 140)


@app.default
def run(
    *subjects: Subject,
    rounds: Annotated[int, Parameter(help="turns that every contender of a case gets")] = 15,
    block: Annotated[float, Parameter(help="seconds of consecutive calls in a turn, about")] = 0.1,
    threads: Annotated[int | None, Parameter(help="in place of what each case states")] = None,
    out: Annotated[Path, Parameter(help="folder for JSON, Markdown and charts")] = Path("runs/bench"),
) -> None:
    """Run subjects (all but the accelerator by default), show their tables, and write JSON, Markdown and charts."""
    chosen = subjects or tuple(SUBJECTS)
    todo: list[Case] = [case for subject in chosen for case in SUBJECTS[subject]()]
    made = Run(report.environment(), {"rounds": rounds, "block": block, "subjects": list(chosen)})
    for case in todo:
        with console.status(case.title) as status:
            outcome = compare(
                case,
                rounds=rounds,
                block=block,
                threads=threads,
                progress=lambda now, title=case.title: status.update(f"{title} · {now}"),  # type: ignore[misc]
            )
        made.outcomes.append(outcome)
        console.print(curve(outcome) if outcome.axis else comparison(outcome))
    console.print(targets(made))
    for line in report.unsteady(made):
        console.print(f"Unsteady, quartiles more than a quarter of the median apart: {line}", style="yellow")
    path = out / f"{'-'.join(subjects) or 'all'}.json"
    made.save(path)
    path.with_suffix(".md").write_text(report.page(made))
    written = [path, path.with_suffix(".md"), *_charts(made, out, path.stem)]
    console.print("Written:", *map(str, written))


@app.command
def publish(
    source: Annotated[Path, Parameter(help="JSON of a run of all subjects")] = Path("runs/bench/all.json"),
    *,
    accelerator: Annotated[Path | None, Parameter(help="JSON of a run on an accelerator")] = None,
    docs: Annotated[Path, Parameter(help="folder of the page, its charts and the JSON they are made from")] = ROOT
    / "docs",
    readme: Annotated[Path, Parameter(help="gets its table between the markers")] = ROOT / "README.md",
) -> None:
    """Write docs/benchmarks.md with its charts, and the README's table, from the JSON of a run."""
    made, gpu = Run.load(source), Run.load(accelerator) if accelerator else None
    if gpu and not gpu.environment["accelerator"]:
        raise ValueError(f"{accelerator} was not measured on an accelerator")
    if source.resolve() != (docs / "benchmarks.json").resolve():
        shutil.copyfile(source, docs / "benchmarks.json")
    if accelerator and accelerator.resolve() != (docs / "accelerator.json").resolve():
        shutil.copyfile(accelerator, docs / "accelerator.json")
    (docs / "benchmarks.md").write_text(report.page(made, gpu))
    from benchmarks import charts

    charts.bars(made, docs / "benchmarks.png")
    charts.scaling(made, docs / "scaling.png")
    readme.write_text(report.with_section(readme.read_text(), made))


def _charts(made: Run, out: Path, stem: str) -> list[Path]:
    try:
        from benchmarks import charts
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        console.print("No charts: matplotlib is not installed.")
        return []
    drawn = [charts.bars(made, out / f"{stem}.png"), charts.scaling(made, out / f"{stem}-scaling.png")]
    return [path for path in drawn if path]


# ------------------------------------------------------------------------------------------------------------- tables


def comparison(outcome: Outcome) -> Table:
    unit, per_second = outcome.unit
    us = outcome.us
    table = Table(title=_title(outcome), title_justify="left", title_style="bold")
    table.add_column("")
    table.add_column(f"median, {unit}", justify="right")
    table.add_column("quartiles", justify="right")
    table.add_column("ours / it", justify="right")
    for r in outcome.results:
        if not r.seconds:
            table.add_row(r.name, "n/a", "", r.unavailable, style="dim")
            continue
        low, high = (report.number(q * per_second) for q in r.quartiles)
        share = "" if us is None or r is us else f"{report.number(report.against(us, r))} ×"
        table.add_row(
            r.name,
            report.number(r.median * per_second),
            f"{low} to {high}",
            share,
            style="cyan" if r.library == "randfield" else None,
        )
    return table


def curve(outcome: Outcome) -> Table:
    unit, per_second = outcome.unit
    table = Table(title=f"{_title(outcome)}: {unit}", title_justify="left", title_style="bold")
    table.add_column(str(outcome.axis), justify="right")
    names = list(dict.fromkeys(r.name for r in outcome.results))
    for name in names:
        table.add_column(name, justify="right")
    points = {(r.name, r.x): r for r in outcome.results}
    for x in dict.fromkeys(r.x for r in outcome.results):
        cells = [points.get((name, x)) for name in names]
        table.add_row(f"{x:g}", *(report.number(r.median * per_second) if r and r.seconds else "n/a" for r in cells))
    if most := report.multiples(outcome):
        table.caption = "Peak memory, in sizes of the uint8 input: " + ", ".join(
            f"{name} {report.number(m)}" for name, m in most.items()
        )
    return table


def targets(made: Run) -> Table:
    table = Table(title="Targets", title_justify="left", title_style="bold")
    table.add_column("what")
    table.add_column("at most", justify="right")
    table.add_column("of")
    table.add_column("measured (quartiles)", justify="right")
    table.add_column("")
    for verdict in (v for outcome in made.outcomes for v in outcome.verdicts):
        table.add_row(
            verdict.what.replace("`", ""),
            report.ratio(verdict.at_most, verdict.at_most),
            verdict.theirs or "",
            report.measured(verdict),
            report.met(verdict),
            style={True: "green", False: "red", None: "dim"}[verdict.met],
        )
    return table


def _title(outcome: Outcome) -> str:
    return f"{outcome.title} (threads: {', '.join(f'{name} {n}' for name, n in outcome.threads.items())})"

"""The commands `reproduce`, `tune` and `report`; what they need is imported when they run."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter
from rich.progress import Progress, TaskID

from randfield.learn.commands import Protocol, advance, failures, progress_bar
from randfield.learn.config import MethodName, PresetName
from randfield.paper.tables import LOCALS
from randfield.terminal import Count, Flag, Json, stop

if TYPE_CHECKING:
    from randfield.learn.train import Progress as Made
    from randfield.paper.study import Hooks

__all__ = ["duration", "mount"]

What = Literal["fig1", "fig2", "table1", "table2", "table3", "table4"]


def mount(app: App) -> None:
    """Make these commands of an app."""
    app.command(reproduce, usage="Usage: randfield reproduce fig1|fig2|table1|table2|table3|table4 [OPTIONS]")
    app.command(tune, usage="Usage: randfield tune [OPTIONS]")
    app.command(report, usage="Usage: randfield report RUNS... [OPTIONS]")


def reproduce(
    what: What,
    /,
    *,
    preset: PresetName = "demo",
    data: str | None = None,
    ood: str | None = None,
    root: str | None = None,
    rows: Annotated[tuple[str, ...] | None, Parameter(consume_multiple=True)] = None,
    seeds: Count = 1,
    protocol: Protocol | None = None,
    method: MethodName | None = None,
    encoder: str | None = None,
    size: Count | None = None,
    epochs: Count | None = None,
    batch_size: Count | None = None,
    out: Path | None = None,
    storage: str | None = None,
    devices: Count | None = None,
    workers: int | None = None,
    dry_run: Flag = False,
    photo: Path | None = None,
    seed: int = 0,
    json_: Json = False,
) -> int:
    """Make a figure or a table of the paper anew.

    `fig1` draws fields for gamma 2 to 10, `fig2` every transform on a photo, each as PNG and SVG. `table1` compares the
    atomic transforms, `table2` smoothness and strength of the translation, `table3` its probability, `table4`
    composites of two. For each row and seed an encoder is pretrained, then judged on its own data and on other data;
    the report has the paper's numbers beside.

    The same command goes on where it was stopped. With a --storage that several machines reach, the same command on
    each of them shares the work; a row that a machine dies with is done by another.

    Parameters
    ----------
    preset
        demo, on fruits that come with randfield, minutes for a table; small, a narrow ResNet-18 at 32² on --data,
        a quarter of an hour for each trial; paper, ResNet-50 at 224² on ImageNet and iNaturalist 2018.
    data
        The images to learn from and to be judged on; see `randfield pretrain --help`.
    ood
        Other images to be judged on, out of distribution.
    root
        Where the files of imagenet and the like are.
    rows
        Some rows of the table by name; an unknown one lists them.
    seeds
        Trials of each row; from two on, the report has intervals.
    protocol
        How encoders are judged: sgd for the preset paper, fast for the others by default.
    method
        In place of the preset's, as are the following; see `randfield pretrain --help`.
    encoder
        A model of timm.
    size
        Side of the views in pixels.
    epochs
        Of each trial.
    batch_size
        Images of a step.
    out
        The folder that receives results.jsonl, the study, the runs and the report; runs/tables-PRESET by
        default, figures in
        runs/figures. Tables in one folder share the rows that they have in common.
    storage
        The database of the study, such as postgresql://user@host/name; by default a file in --out.
    devices
        GPUs of a trial; all of this machine by default.
    workers
        Processes that decode images for each device.
    dry_run
        Only list the trials, and estimate the time from a few steps measured now.
    photo
        For fig2; by default a cat's.
    seed
        For figures.
    """
    given = {
        "data": data, "root": root, "method": method, "encoder": encoder, "size": size, "epochs": epochs,
        "batch_size": batch_size,
    }  # fmt: skip
    if what in ("fig1", "fig2"):
        return _figure(what, out or Path("runs/figures"), photo, seed, json_)
    with _told_failures():
        from randfield.paper import report as reports
        from randfield.paper import study

        setup = study.Setup.of(what, preset, ood=ood, protocol=protocol, **given)  # type: ignore[arg-type]  # figures are done
        out = out or Path("runs") / f"tables-{preset}"
        if dry_run:
            return _dry_run(setup, out, rows, seeds, storage, devices, json_)
        with progress_bar() as bar:
            made = study.reproduce(
                setup, out, rows=rows, seeds=seeds, storage=storage, devices=devices, workers=workers,
                hooks=_hooks(bar, setup.name),
            )  # fmt: skip
        written = reports.report([out], out)
    for name, error in made["errors"].items():
        print(f"randfield: {what}: {name} failed: {error}", file=sys.stderr)
    missing = written["missing"][what]
    if json_:
        print(
            json.dumps(
                {"table": what, "trials": len(made["results"]), "missing": missing}
                | written["out"]
                | {"errors": made["errors"]}
            )
        )
    else:
        print(f"{what}: {len(made['results'])} trials" + (f", {len(missing)} missing" if missing else ""))
        print(f"The report is {written['out']['html']}, and {written['out']['markdown']}")
    return 1 if made["errors"] else 0


def tune(
    *,
    data: str | None = None,
    root: str | None = None,
    preset: PresetName = "demo",
    trials: Count = 20,
    local: Annotated[tuple[str, ...], Parameter(consume_multiple=True, show_default=" ".join)] = LOCALS,
    score: Literal["knn", "fast"] = "knn",
    method: MethodName | None = None,
    encoder: str | None = None,
    size: Count | None = None,
    epochs: Count | None = None,
    batch_size: Count | None = None,
    out: Path = Path("runs/tune"),
    storage: str | None = None,
    workers: int | None = None,
    seed: int = 0,
    json_: Json = False,
) -> None:
    """Search for the transform, gamma, alpha and p that suit images of yours.

    Each trial pretrains an encoder and scores it; those that fall behind are stopped early. The paper's best setting is
    tried first, and learning without a field is scored beside. The same command goes on where it was stopped.

    Parameters
    ----------
    data
        The images, with labels to score by; see `randfield pretrain --help`.
    root
        Where the files of cifar10 and the like are.
    trials
        Settings to try.
    local
        The transforms to choose from, by the names of `randfield pretrain --local`.
    score
        knn: the share of the images to judge by that their nearest neighbours name rightly. fast: a linear probe, on
        images held out of those to train on. Either chooses the setting: judge the winner by images that neither has
        seen.
    out
        The folder that receives best.json, a config for `pretrain`, trials.jsonl, the study and the runs.
    storage
        The database of the study, for several machines; by default a file in --out.
    workers
        Processes that decode images.
    method
        In place of the preset's, as are the following; see `randfield pretrain --help`.
    encoder
        A model of timm.
    size
        Side of the views in pixels.
    epochs
        Of each trial.
    batch_size
        Images of a step.
    """
    given = {
        "data": data, "root": root, "method": method, "encoder": encoder, "size": size, "epochs": epochs,
        "batch_size": batch_size, "seed": seed,
    }  # fmt: skip
    with _told_failures():
        from randfield.learn.config import Config
        from randfield.paper.tune import tune as search

        config = Config.of(preset, **given)
        with progress_bar() as bar:
            found = search(
                config, out, trials=trials, local=local, score=score, storage=storage, workers=workers,
                hooks=_hooks(bar, "Trials"),
            )  # fmt: skip
    if json_:
        print(json.dumps(found))
        return
    its, by = found["setting"], {"knn": "kNN top-1", "fast": "held-out top-1"}[score]
    ranges = [" to ".join(f"{v:g}" for v in its[name]) for name in ("gamma", "alpha")]
    beside = [f"without a field {found['baseline']:.1%}"]
    beside += [] if found["paper"] is None else [f"with the paper's best {found['paper']:.1%}"]
    print(
        f"Best of {found['trials']} trials ({found['pruned']} stopped early): {its['local']}, gamma {ranges[0]}, alpha "
        f"{ranges[1]}, p {its['p']:g}: {by} {found['score']:.1%}; {', '.join(beside)}."
    )
    if found["importances"]:
        shares = ", ".join(f"{name} {share:.0%}" for name, share in found["importances"].items())
        print(f"What the differences come from: {shares}.")
    print(f"Use it: randfield pretrain --config {found['config']} --out RUN")


def report(
    runs: Annotated[tuple[Path, ...], Parameter(consume_multiple=True)],
    /,
    *,
    out: Path | None = None,
    json_: Json = False,
) -> None:
    """Write a report of tables, finished or not, as Markdown and as one HTML page.

    Parameters
    ----------
    runs
        Folders that `reproduce` wrote; of several, each adds its trials.
    out
        The folder that receives report.md and report.html; the first of RUNS by default.
    """
    with _told_failures():
        from randfield.paper.report import report as write

        written = write(runs, out or runs[0])
    if json_:
        print(json.dumps(written["out"] | {"missing": written["missing"]}))
        return
    for table, missing in written["missing"].items():
        if missing:
            print(f"{table}: {len(missing)} trials are missing, such as {missing[0]}")
    print(f"The report is {written['out']['html']}, and {written['out']['markdown']}")


def _figure(what: str, out: Path, photo: Path | None, seed: int, json_: bool) -> int:
    with _told_failures():
        from randfield import pictures
        from randfield.paper.figures import figure1, figure2

        try:
            files = figure1(out, seed=seed) if what == "fig1" else figure2(out, photo=photo, seed=seed)
        except (OSError, SyntaxError) as error:  # as Pillow says that a PNG is broken
            stop(f"cannot draw {what}{f' from {photo}' if photo else ''}: {pictures.reason(error)}")
    print(json.dumps({"out": list(map(str, files))}) if json_ else f"Wrote {files[0]} and {files[1]}.")
    return 0


def _dry_run(
    setup: Any,
    out: Path,
    rows: tuple[str, ...] | None,
    seeds: int,
    storage: str | None,
    devices: int | None,
    json_: bool,
) -> int:
    from randfield.paper import study

    plan = study.planned(setup, out, rows=rows, seeds=seeds, storage=storage)
    left = sum(trial.state != "done" for trial in plan)
    if not json_:  # before anything is measured, for which the data has to be there
        for trial in plan:
            print(f"{trial.row}, seed {trial.seed}: {trial.state}")
        print(f"{len(plan)} trials, {left} to do", flush=True)
    each = study.estimate(setup, devices=devices) if left else 0.0
    if json_:
        listed = [{"row": trial.row, "seed": trial.seed, "state": trial.state} for trial in plan]
        print(json.dumps({"trials": listed, "left": left, "seconds_each": round(each), "seconds": round(each * left)}))
    else:
        print(
            f"About {duration(each)} each and {duration(each * left)} in all, by a few steps measured on this machine."
        )
    return 0


def duration(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} seconds"


def _hooks(bar: Progress, name: str) -> Hooks:
    from randfield.paper.study import Hooks

    tasks: list[TaskID] = []  # the study's and its trial's, once there is something to show

    def counted(done: int, of: int) -> None:
        if not tasks:
            tasks.extend(bar.add_task(words) for words in (name, ""))
        bar.update(tasks[0], total=of, completed=done, description=f"{name}: {done} of {of} trials")
        bar.update(tasks[1], visible=False)

    def at(trial: str, made: Made | None) -> None:
        bar.update(tasks[1], visible=True)
        if made is None:
            bar.update(tasks[1], description=f"{trial} · judging")
        else:
            advance(bar, tasks[1], made, prefix=f"{trial} · ")

    def waits(running: int) -> None:
        bar.update(tasks[1], visible=True, description=f"waiting for {running} trials of other workers")

    return Hooks(counted, at, waits)


@contextmanager
def _told_failures() -> Iterator[None]:
    try:
        with failures("the same command goes on"):
            yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("randfield"):
            raise
        stop(f"this command needs {error.name}; install it with: pip install 'randfield[study]'")

"""Where and when a run took place, and its numbers as JSON and Markdown.

Everything published is made from the JSON of one run: the page `docs/benchmarks.md` with its charts, and the table of
the README between its markers. Nothing is copied by hand, so nothing can be left out by hand.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure import Outcome, Result, Verdict, ratios

PACKAGES = (
    "torch",
    "torchvision",
    "albumentationsx",
    "kornia",
    "lightly",
    "monai",
    "FyeldGenerator",
    "powerbox",
    "gstools",
    "numpy",
    "opencv-python-headless",
    "pillow",
)
ROOT = Path(__file__).parents[1]


@dataclass
class Run:
    """Everything that one command measured, as it stands in the JSON. `facts` are what is true or not, not timed."""

    environment: dict[str, Any]
    protocol: dict[str, Any]
    outcomes: list[Outcome] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Run:
        raw = json.loads(path.read_text())
        for outcome in raw["outcomes"]:
            outcome["results"] = [Result(**r) for r in outcome["results"]]
            outcome["verdicts"] = [Verdict(**v) for v in outcome["verdicts"]]
        return cls(**raw | {"outcomes": [Outcome(**o) for o in raw["outcomes"]]})

    def outcome(self, name: str) -> Outcome | None:
        return next((o for o in self.outcomes if o.name == name), None)


# -------------------------------------------------------------------------------------------------------- environment


def environment() -> dict[str, Any]:
    """What a reader needs to judge the numbers, or to get them again."""
    import randfield
    from randfield import kernels

    versions = {"randfield": randfield.__version__}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": " ".join(["python -m benchmarks", *sys.argv[1:]]),
        "commit": _git("rev-parse", "HEAD"),
        "modified": bool(_git("status", "--porcelain", "--", "src", "benchmarks")),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load": [round(load, 2) for load in os.getloadavg()] if hasattr(os, "getloadavg") else None,
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": versions,
        "kernels": kernels.library is not None,
    }


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _cpu() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def setting(run: Run) -> str:
    """The environment in a sentence."""
    e = run.environment
    commit = f"commit {e['commit'][:7]}{' with changes' if e['modified'] else ''}" if e["commit"] else "no commit known"
    machine = f"{e['cpu']}, {e['cores']} cores" + (f", {e['accelerator']}" if e["accelerator"] else "")
    kernels = {True: ", with our kernels compiled", False: ", without our kernels", None: ""}[e.get("kernels")]
    return f"{e['date'][:10]}, {machine}, Python {e['python']}, PyTorch {e['versions']['torch']}{kernels}, {commit}"


# ------------------------------------------------------------------------------------------------------------ numbers


def number(value: float) -> str:
    """Three significant digits, without an exponent.

    >>> [number(v) for v in (0.04567, 4.567, 1234.5)]
    ['0.0457', '4.57', '1230']
    """
    if value == 0:
        return "0"
    text = f"{value:.3g}"
    return f"{float(text):.0f}" if "e" in text and value > 1 else text


def ratio(value: float, like: float) -> str:
    """A ratio, as the reciprocal where the target it is held against is one.

    >>> ratio(0.62, like=0.6), ratio(0.05, like=1 / 30), ratio(1 / 4, like=1 / 4)
    ('0.62 ×', '1/20', '1/4')
    """
    inverse = 1 / value
    if like > 1 / 3:
        return f"{number(value)} ×"
    return f"1/{inverse:.0f}" if inverse > 9.5 or abs(inverse - round(inverse)) < 0.05 else f"1/{inverse:.1f}"


def met(verdict: Verdict) -> str:
    return {True: "met", False: "not met", None: "n/a"}[verdict.met]


def bound(verdict: Verdict) -> str:
    """What the ratio of a target is of: "1/30 of torchvision", "0.9 × torchvision"."""
    of = "" if verdict.at_most > 1 / 3 else " of"
    return f"{of} {verdict.theirs}" if verdict.theirs else ""


def measured(verdict: Verdict) -> str:
    if verdict.ratio is None or verdict.quartiles is None:
        return "n/a"
    low, high = sorted(verdict.quartiles)
    return f"{ratio(verdict.ratio, verdict.at_most)} ({ratio(low, verdict.at_most)} to {ratio(high, verdict.at_most)})"


def against(us: Result, them: Result) -> float:
    """The median over the rounds of our time over theirs."""
    return statistics.median(ratios(us, them))


def multiples(outcome: Outcome) -> dict[str, float]:
    """Peak memory over the size of the input, the most of any x, by contender."""
    most: dict[str, float] = {}
    for r in outcome.results:
        if r.peak is not None and r.holds:
            most[r.name] = max(most.get(r.name, 0.0), r.peak / r.holds)
    return most


# ----------------------------------------------------------------------------------------------------------- Markdown


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def targets_table(run: Run) -> str:
    rows = [
        [v.what, f"{ratio(v.at_most, v.at_most)}{bound(v)}", measured(v), met(v)]
        for outcome in run.outcomes
        for v in outcome.verdicts
    ]
    return table(["what", "at most", "measured (quartiles)", ""], rows)


def comparison_table(outcome: Outcome) -> str:
    unit, per_second = outcome.unit
    us, rows = outcome.us, []
    for r in outcome.results:
        if not r.seconds:
            rows.append([r.name, "n/a", f"{r.unavailable}", ""])
            continue
        low, high = (number(q * per_second) for q in r.quartiles)
        rows.append(
            [
                f"**{r.name}**" if r.library == "randfield" else r.name,
                number(r.median * per_second),
                f"{low} to {high}",
                "" if us is None or r is us else f"{number(against(us, r))} ×",
            ]
        )
    ours = f"{us.name} / it" if us else ""
    return table(["", f"median, {unit}", "quartiles", ours], rows)


def curve_table(outcome: Outcome) -> str:
    unit, per_second = outcome.unit
    names = list(dict.fromkeys(r.name for r in outcome.results))
    points = {(r.name, r.x): r for r in outcome.results}
    rows = []
    for x in dict.fromkeys(r.x for r in outcome.results):
        cells = [points.get((name, x)) for name in names]
        rows.append([f"{x:g}", *(number(r.median * per_second) if r and r.seconds else "n/a" for r in cells)])
    return table([str(outcome.axis), *(f"{name}, {unit}" for name in names)], rows)


def losses(run: Run) -> list[str]:
    """Every peer that is faster than we are, in a sentence."""
    found = []
    for outcome in run.outcomes:
        us = outcome.us
        if us is None or outcome.axis:
            continue
        unit, per_second = outcome.unit
        for r in outcome.results:
            if r.library != "randfield" and r.seconds and (times := against(us, r)) > 1:
                found.append(
                    f"{outcome.title}: {r.name} takes {number(r.median * per_second)} {unit}, {us.name} "
                    f"{number(us.median * per_second)}, {number(times)} times as long."
                )
    return found


def unavailable(run: Run) -> list[str]:
    reasons: dict[str, set[str]] = {}
    for outcome in run.outcomes:
        for r in outcome.results:
            if r.unavailable:
                reasons.setdefault(r.unavailable, set()).add(r.name)
    return [f"{', '.join(sorted(names))}: {why}" for why, names in reasons.items()]


def unsteady(run: Run) -> list[str]:
    """Every result that another run may not find again."""
    return [
        f"{outcome.title}: {', '.join(names)}."
        for outcome in run.outcomes
        if (names := [r.key for r in outcome.results if r.seconds and not r.steady])
    ]


def memory_sentences(run: Run) -> list[str]:
    return [
        f"{name}: {number(multiple)} times the bytes of its uint8 input ({outcome.title.lower()})."
        for outcome in run.outcomes
        for name, multiple in multiples(outcome).items()
    ]


def protocol(run: Run) -> str:
    load = run.environment["load"]
    return (
        f"`{run.environment['command']}`: in {run.protocol['rounds']} rounds all contenders of a case take turns, with "
        f"{run.protocol['block']} s of consecutive calls each; medians over the rounds, and medians of the ratios "
        "within them. One thread unless said otherwise. Photographs are decoded outside the stopwatch; a library that "
        "takes several forms of an image is measured on each, and a target holds our slowest against its fastest."
    ) + (f" The machine's load before the run was {load[0]}." if load else "")


def summary(run: Run) -> str:
    met = [v.met for outcome in run.outcomes for v in outcome.verdicts]
    counts = f"{met.count(True)} are met, {met.count(False)} are not, {met.count(None)} could not be measured"
    return f"Of {len(met)} targets {counts}."


def page(run: Run, accelerator: Run | None = None) -> str:
    """`docs/benchmarks.md`."""
    parts = [
        "# Benchmarks",
        "<!-- Written by `python -m benchmarks publish` from docs/benchmarks.json; do not edit. -->",
        f"{setting(run)}. {protocol(run)}",
        summary(run),
        targets_table(run),
        "![Medians of peers and randfield](benchmarks.png)",
        "## Where others are faster",
        _bullets(losses(run)) or "Nowhere in this run.",
    ]
    if missing := unavailable(run):
        parts += ["## What could not run", _bullets(missing)]
    if wavering := unsteady(run):
        parts += [
            "## What wavered",
            "Quartiles more than a quarter of the median apart: the machine did something else as well.",
            _bullets(wavering),
        ]
    for outcome in run.outcomes:
        if not outcome.axis:
            parts += [f"## {outcome.title}", comparison_table(outcome), _bullets(outcome.notes)]
    if any(outcome.axis for outcome in run.outcomes):
        parts += ["## Scaling", "![Cost and memory against size, batch, gamma, atoms and workers](scaling.png)"]
        if sentences := memory_sentences(run):
            parts += [
                "The most that one call holds at any moment, its result included and its input not:",
                _bullets(sentences),
                "Tests hold transforms to 25 times one image, 4 times a batch of 16; views of these to 10 times.",
            ]
        for outcome in run.outcomes:
            if outcome.axis:
                parts += [f"### {outcome.title}", curve_table(outcome), _bullets(outcome.notes)]
    parts += ["## On an accelerator", *_accelerator(accelerator)]
    versions = ", ".join(f"{name} {version}" for name, version in run.environment["versions"].items())
    parts += ["## Versions", f"{versions}. {run.environment['system']}."]
    return "\n\n".join(part for part in parts if part) + "\n"


def _accelerator(run: Run | None) -> list[str]:
    if run is None:
        return ["This has not been run. `python -m benchmarks accelerator` does, on a machine with CUDA."]
    parts = [f"{setting(run)}. `{run.environment['command']}`."]
    parts += [_bullets([f"{what}: {fact}" for what, fact in run.facts.items()])]
    for outcome in run.outcomes:
        parts += [f"### {outcome.title}", comparison_table(outcome), _bullets(outcome.notes)]
    return parts


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"* {line}" for line in lines)


START, END = "<!-- benchmarks: written by `python -m benchmarks publish` -->", "<!-- /benchmarks -->"


def readme_section(run: Run) -> str:
    return "\n\n".join([START, targets_table(run), f"{setting(run)}; medians of {run.protocol['rounds']} rounds.", END])


def with_section(readme: str, run: Run) -> str:
    """The README with its benchmark table brought up to date."""
    if START not in readme or END not in readme:
        raise ValueError(f"the README needs the lines\n{START}\n{END}\nfor its table of benchmarks to go between")
    before, after = readme.split(START)[0], readme.split(END)[1]
    return before + readme_section(run) + after

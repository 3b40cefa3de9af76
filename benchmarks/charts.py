"""The numbers of a run as two pictures: bars against the peers, and curves of cost and memory.

In the bars every panel begins at zero and ends at twelve times our time; a longer bar is broken off, and its label has
the number. A logarithmic axis would make a peer thirty times slower look a little slower.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter, ScalarFormatter

from benchmarks.measure import Outcome, Result
from benchmarks.report import Run, against, number, setting

OURS, PEERS, INK, LOST = "#0b6e99", "#b9bec4", "#23282d", "#6b7177"
SHADES = ("#0b6e99", "#d1772b", "#5a8f3c")
BROKEN_AT = 12.0
TITLES = {
    "sides": "{} by image size",
    "batches": "{} by batch size",
    "gammas": "{} by smoothness",
    "atoms": "{} by number of atoms",
    "workers": "{} by workers",
}
STYLE: dict[str, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": PEERS,
    "xtick.color": LOST,
    "ytick.color": INK,
    "svg.fonttype": "none",
}


def bars(run: Run, path: Path) -> Path | None:
    """One panel for each case that peers take part in; None where the run has no such case."""
    outcomes = [o for o in run.outcomes if not o.axis and any(r.seconds for r in o.results)]
    if not outcomes:
        return None
    heights = [len(o.results) + 2.2 for o in outcomes]
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(
            len(outcomes), figsize=(10, 0.25 * sum(heights) + 0.5), height_ratios=heights, squeeze=False
        )
        for panel, outcome in zip(axes[:, 0], outcomes, strict=True):
            _bars(panel, outcome)
        figure.tight_layout(rect=(0, 0.35 / figure.get_figheight(), 1, 1), h_pad=1.4)
        figure.text(0.01, 0.1 / figure.get_figheight(), _footer(run), fontsize=7, color=LOST)
        figure.savefig(path, dpi=160)
        plt.close(figure)
    return path


def _bars(panel: Axes, outcome: Outcome) -> None:
    unit, per_second = outcome.unit
    ran = [r for r in outcome.results if r.seconds]
    us = outcome.us
    limit = min(max(r.median for r in ran), BROKEN_AT * (us or min(ran, key=lambda r: r.median)).median) * per_second
    for row, r in enumerate(outcome.results):
        mine = r.library == "randfield"
        if not r.seconds:
            panel.text(limit * 0.005, row, "n/a", va="center", color=LOST, fontsize=8)
            continue
        median, (low, high) = r.median * per_second, (q * per_second for q in r.quartiles)
        panel.barh(row, min(median, limit), color=OURS if mine else PEERS, height=0.72)
        label = number(median)
        if us is not None and not mine:
            label += f"   {number(1 / against(us, r))} × ours"
        elif r is us and len(ran) > 1:
            label += "   = ours"
        if median > limit * 1.001:
            _break_off(panel, row, limit)
            end = limit
        else:
            end = max(median, min(high, limit * 1.12))
            panel.plot([low, end], [row, row], color=INK, linewidth=1)
        panel.text(
            end + limit * 0.012,
            row,
            label,
            va="center",
            color=INK,
            fontsize=8,
            fontweight="bold" if mine else "normal",
        )
    panel.set_yticks(range(len(outcome.results)), [r.name for r in outcome.results])
    for tick, r in zip(panel.get_yticklabels(), outcome.results, strict=True):
        tick.set_color(OURS if r.library == "randfield" else INK)
    panel.set_xlim(0, limit * 1.55)
    panel.set_ylim(len(outcome.results) - 0.4, -0.6)
    panel.set_xticks([])
    panel.spines["bottom"].set_visible(False)
    panel.tick_params(length=0)
    threads = max(outcome.threads.values(), default=1)
    panel.set_title(f"{outcome.title}  ({unit}, {threads} thread{'s' if threads > 1 else ''})", x=0)


def _break_off(panel: Axes, row: int, limit: float) -> None:
    for at in (0.955, 0.97):
        panel.plot([limit * at, limit * (at + 0.008)], [row + 0.42, row - 0.42], color="white", linewidth=2.5)


def scaling(run: Run, path: Path) -> Path | None:
    """Small multiples: cost over each axis, then memory where it was measured; None where the run has no curve."""
    curves = [o for o in run.outcomes if o.axis and any(r.seconds for r in o.results)]
    if not curves:
        return None
    # One panel of memory says it, over the axis on which it could grow out of proportion.
    batches = [o for o in curves if o.name == "batches" and any(r.peak for r in o.results)]
    panels = [(o, False) for o in curves] + [(o, True) for o in batches]
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(rows, columns, figsize=(4.2 * columns, 3 * rows + 0.3), squeeze=False)
        for panel, (outcome, memory) in zip(axes.flat, panels, strict=False):
            _curve(panel, outcome, memory=memory)
        for panel in axes.flat[len(panels) :]:
            panel.set_visible(False)
        figure.tight_layout(rect=(0, 0.3 / figure.get_figheight(), 1, 1), h_pad=1.6, w_pad=1.6)
        figure.text(0.01, 0.1 / figure.get_figheight(), _footer(run), fontsize=7, color=LOST)
        figure.savefig(path, dpi=160)
        plt.close(figure)
    return path


def _curve(panel: Axes, outcome: Outcome, *, memory: bool) -> None:
    unit, per_second = outcome.unit
    lines: dict[str, list[Result]] = {}
    for r in outcome.results:
        if r.seconds and (r.peak or not memory):
            lines.setdefault(r.name, []).append(r)
    for shade, (name, points) in zip(SHADES, lines.items(), strict=False):
        xs = [float(r.x or 0) for r in points]
        ys = [_multiple(r) if memory else r.median * per_second for r in points]
        panel.plot(xs, ys, "o-", color=shade, markersize=3.5, linewidth=1.4, label=name)
        if not memory:
            low, high = zip(*(r.quartiles for r in points), strict=True)
            panel.fill_between(
                xs, [q * per_second for q in low], [q * per_second for q in high], color=shade, alpha=0.2, linewidth=0
            )
    ticks = sorted({float(r.x or 0) for points in lines.values() for r in points})
    if ticks[0] > 0 and ticks[-1] / ticks[0] > 10:
        panel.set_xscale("log", base=2)
        panel.xaxis.set_major_formatter(ScalarFormatter())
        panel.xaxis.set_minor_formatter(NullFormatter())
    panel.set_xticks(ticks, [f"{t:g}" for t in ticks])
    panel.set_ylim(0, 1.1 * panel.get_ylim()[1])
    panel.set_xlabel(str(outcome.axis))
    panel.set_ylabel("peak memory, × the uint8 input" if memory else unit)
    panel.set_title(TITLES.get(outcome.name, outcome.name).format("Memory" if memory else "Cost"))
    panel.grid(axis="y", color=PEERS, alpha=0.35, linewidth=0.6)
    panel.tick_params(length=0)
    panel.legend(frameon=False, fontsize=7.5)


def _multiple(r: Result) -> float:
    return (r.peak or 0) / (r.holds or 1)


def _footer(run: Run) -> str:
    return (
        f"{setting(run)}. Medians of {run.protocol['rounds']} rounds, lines between quartiles. Ours: our slowest entry."
    )

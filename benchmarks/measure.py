"""The stopwatch: contenders take turns, so that whatever disturbs the machine disturbs them all alike.

A *round* times every contender of a case once, in an order shuffled anew. What is timed is a *block* of consecutive
calls, long enough for the clock and for the coins inside a random transform (a blur with probability one half) to
average out; it yields one number, seconds per item. A contender's result is the median of its rounds with the
quartiles, and a ratio is the median of the ratios *within* the rounds, whose two blocks ran moments apart.

Building, warming up, garbage collection and seeding happen outside the blocks. The garbage collector stays on inside
them, as it is in training. A contender that cannot be built or called is reported with the reason, never left out.
"""

from __future__ import annotations

import gc
import json
import math
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

Call = Callable[[], object]
Stopwatch = Callable[[Call, int], float]
"""Seconds that this many consecutive calls take."""


# --------------------------------------------------------------------------------------------------- what is compared


@dataclass(frozen=True)
class Contender:
    """One way of doing the work of a case.

    `build` imports, constructs and prepares inputs, and returns what is timed: a function without arguments that makes
    `items` items. On a curve, `x` says where. `holds` is the size in bytes of the batch that one call works on, for
    contenders whose peak memory is to be measured.
    """

    name: str
    build: Callable[[], Call]
    library: str = "randfield"
    items: int = 1
    x: float | None = None
    holds: int | None = None


@dataclass(frozen=True)
class Target:
    """What must be reached: our slowest of `ours` takes at most `at_most` times the time of the fastest of `theirs`."""

    what: str
    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    at_most: float


@dataclass(frozen=True)
class Case:
    """Contenders for the same work.

    `ours` stand for us in the ratios, by the slowest of them. `unit` is (name, how many of it make a second); `axis`
    names the x of a curve. A block has at least `calls` calls, for pipelines whose calls differ from draw to draw.
    """

    name: str
    title: str
    contenders: tuple[Contender, ...]
    ours: tuple[str, ...] = ()
    targets: tuple[Target, ...] = ()
    calls: int = 1
    unit: tuple[str, float] = ("ms", 1e3)
    axis: str | None = None
    threads: int = 1
    notes: tuple[str, ...] = ()


# --------------------------------------------------------------------------------------------------- what is measured


@dataclass
class Result:
    """The rounds of one contender, in seconds per item; or why there are none."""

    name: str
    library: str = "randfield"
    x: float | None = None
    calls: int = 0
    seconds: list[float] = field(default_factory=list)
    unavailable: str | None = None
    holds: int | None = None
    peak: int | None = None

    @property
    def key(self) -> str:
        return self.name if self.x is None else f"{self.name} @ {self.x:g}"

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def quartiles(self) -> tuple[float, float]:
        return _quartiles(self.seconds)

    @property
    def steady(self) -> bool:
        """Whether the quartiles are within a quarter of the median of each other: else something else was going on."""
        low, high = self.quartiles
        return high - low <= self.median / 4


@dataclass
class Verdict:
    """A target with what was measured; `met` is None where one side could not run."""

    what: str
    at_most: float
    ours: str | None = None
    theirs: str | None = None
    ratio: float | None = None
    quartiles: tuple[float, float] | None = None
    met: bool | None = None


@dataclass
class Outcome:
    """A case that was run."""

    name: str
    title: str
    unit: tuple[str, float]
    axis: str | None
    threads: dict[str, int]
    notes: list[str]
    champion: str | None
    results: list[Result]
    verdicts: list[Verdict]

    @property
    def us(self) -> Result | None:
        """Who stands for us in the ratios."""
        return next((r for r in self.results if r.key == self.champion), None)


def compare(
    case: Case,
    *,
    rounds: int,
    block: float,
    threads: int | None = None,
    stopwatch: Stopwatch | None = None,
    memory: Callable[[Call], int] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Run a case: `rounds` rounds of blocks of about `block` seconds each.

    `stopwatch` is by default the wall clock, `memory` the accounting of `peak_bytes`.
    """
    stopwatch = stopwatch or wall_clock
    really = set_threads(case.threads if threads is None else threads)
    results = [Result(c.name, c.library, c.x, holds=c.holds) for c in case.contenders]
    runners: list[tuple[Contender, Result, Call]] = []
    for contender, result in zip(case.contenders, results, strict=True):
        progress(f"{result.key}: warming up")
        try:
            call = contender.build()
            result.calls = max(case.calls, _calls_for(block, call, stopwatch))
        except Exception as error:  # whatever it is, it is this contender's result
            result.unavailable = reason(error)
        else:
            runners.append((contender, result, call))
    gc.collect()
    gc.freeze()  # what has been built is not looked through again, so collecting between blocks is quick
    for turn in range(rounds):
        random.Random(turn).shuffle(runners)
        for contender, result, call in runners:
            progress(f"round {turn + 1} of {rounds}: {result.key}")
            gc.collect()
            _seed(turn)
            result.seconds.append(stopwatch(call, result.calls) / result.calls / contender.items)
    for _, result, call in runners:
        if result.holds is not None:
            progress(f"{result.key}: memory")
            result.peak = (memory or peak_bytes)(call)
    gc.unfreeze()
    us = slowest(case.ours, results)
    return Outcome(
        name=case.name,
        title=case.title,
        unit=case.unit,
        axis=case.axis,
        threads=really,
        notes=list(case.notes),
        champion=us.key if us else None,
        results=results,
        verdicts=[judge(target, results) for target in case.targets],
    )


def judge(target: Target, results: Sequence[Result]) -> Verdict:
    """Hold the results against a target: our slowest against their fastest, round by round."""
    verdict = Verdict(target.what, target.at_most)
    us, theirs = slowest(target.ours, results), [r for r in results if r.key in target.theirs and r.seconds]
    if us is None or not theirs:
        return verdict
    them = min(theirs, key=lambda r: r.median)
    compared = ratios(us, them)
    verdict.ours, verdict.theirs = us.key, them.key
    verdict.ratio, verdict.quartiles = statistics.median(compared), _quartiles(compared)
    verdict.met = verdict.ratio <= target.at_most
    return verdict


def slowest(names: Sequence[str], results: Sequence[Result]) -> Result | None:
    """The slowest of these; None where one of them could not run, since that one might have been it."""
    ran = [r for r in results if r.key in names and r.seconds]
    return max(ran, key=lambda r: r.median) if ran and len(ran) == len(names) else None


def ratios(us: Result, them: Result) -> list[float]:
    """Our time over theirs, round by round."""
    return [a / b for a, b in zip(us.seconds, them.seconds, strict=True)]


def _quartiles(values: Sequence[float]) -> tuple[float, float]:
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def reason(error: BaseException) -> str:
    """An exception on one line of a table."""
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {first}"[:200] if first else type(error).__name__


# ---------------------------------------------------------------------------------------------------------- the clock


def wall_clock(call: Call, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return time.perf_counter() - start


def over(function: Callable[[Any], object], inputs: Iterable[Any]) -> Call:
    """`function` on each of the inputs in turn, for ever."""
    samples = list(inputs)
    turn = 0

    def call() -> object:
        nonlocal turn
        turn = (turn + 1) % len(samples)
        return function(samples[turn])

    return call


def _calls_for(block: float, call: Call, stopwatch: Stopwatch) -> int:
    """Warm up, and find how many calls make a block: twice as many until a quarter of a block is full."""
    call()
    calls = 1
    while (seconds := stopwatch(call, calls)) < block / 4:
        calls *= 2
    return max(1, math.ceil(block * calls / seconds))


def _seed(turn: int) -> None:
    torch.manual_seed(turn)
    random.seed(turn)
    try:
        import numpy as np
    except ModuleNotFoundError:
        return
    np.random.seed(turn)  # noqa: NPY002  # the peers' own source of randomness


def set_threads(threads: int) -> dict[str, int]:
    """Set and read back the threads of every library that has its own; also what a DataLoader's workers call.

    A library that does not do as it is told ends the run: numbers under the wrong heading are worse than none.
    """
    torch.set_num_threads(threads)
    really = {"torch": torch.get_num_threads()}
    try:
        import cv2
    except ModuleNotFoundError:
        pass
    else:
        cv2.setNumThreads(threads)
        really["cv2"] = cv2.getNumThreads()
    if set(really.values()) != {threads}:
        raise RuntimeError(f"asked for {threads} threads, got {really}")
    return really


# --------------------------------------------------------------------------------------------------------- the memory


def peak_bytes(call: Call) -> int:
    """The most bytes that one call holds at any moment beyond what was there before, its result included.

    Counted by PyTorch's CPU allocator (the profiler's log of it), so temporaries inside operators count as well.
    """
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        result = call()
    del result
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text())["traceEvents"]
    steps = sorted((e["ts"], e["args"]["Bytes"], e["args"]["Addr"]) for e in events if e.get("name") == "[memory]")
    mine: set[int] = set()
    live = peak = 0
    for _, size, address in steps:
        if size > 0:
            mine.add(address)
        elif address not in mine:
            continue  # something older that happened to go now
        live += size
        peak = max(peak, live)
    return peak

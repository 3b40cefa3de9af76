"""The batched pipeline on a GPU: python -m benchmarks accelerator [--help].

A batch of 256 uint8 images of 256² becomes two views of 224² each, with the local field, beside Kornia and beside what
it feeds: one forward and backward pass of a ResNet-50 in bfloat16 on the same views. Times are CUDA events around
blocks of calls, so they are what a training loop would wait for, launch-bound or not; the time the host needs to launch
a call is reported apart. That nothing waits for the device inside a call is not argued but provoked:
`torch.cuda.set_sync_debug_mode("error")` raises where it would.

Needs torch and torchvision alone: what else is missing is reported as such. Where there is no GPU, `--rehearse` runs
every line that does not need one, in miniature, and looks for host synchronisation and graph breaks on pretended
tensors (`host_traffic`, `graph_break`), which tests can do too.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import report
from benchmarks.cases import kornia_views, ours, simclr_views
from benchmarks.measure import Call, Case, Contender, Outcome, compare, peak_bytes, reason, wall_clock

EAGER, COMPILED = "with LocalTranslate, eager", "with LocalTranslate, compiled"


@dataclass(frozen=True)
class Setting:
    """How much work, and where."""

    device: str = "cuda"
    batch: int = 256
    side: int = 256
    size: int = 224

    @property
    def real(self) -> bool:
        return self.device == "cuda"

    def batches(self, side: int) -> Callable[[], Tensor]:
        """Four uint8 batches in turn, so that none waits in the cache for its second use."""
        images = [
            torch.randint(0, 256, (self.batch, 3, side, side), dtype=torch.uint8, device=self.device) for _ in range(4)
        ]
        turn = 0

        def next_batch() -> Tensor:
            nonlocal turn
            turn = (turn + 1) % len(images)
            return images[turn]

        return next_batch

    def compiled(self, function: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
        return torch.compile(function, fullgraph=True, backend="inductor" if self.real else "eager")


def main(arguments: list[str]) -> int:
    summary = (__doc__ or "").split(":")[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks accelerator", description=summary)
    parser.add_argument("--batch", type=int, default=256, help="images in a batch (256)")
    parser.add_argument("--rounds", type=int, default=15, help="turns that every contender gets (15)")
    parser.add_argument("--block", type=float, default=0.3, help="seconds of consecutive calls in a turn, about (0.3)")
    parser.add_argument("--out", type=Path, default=Path("runs/bench/accelerator.json"), help="where the JSON goes")
    parser.add_argument("--rehearse", action="store_true", help="without a GPU, in miniature")
    options = parser.parse_args(arguments)
    if options.rehearse:
        setting = Setting(device="cpu", batch=4, side=40, size=32)
    elif torch.cuda.is_available():
        setting = Setting(batch=options.batch)
    else:
        print("No CUDA device: nothing measured. --rehearse runs what does not need one.")
        return 1
    made = measure(setting, rounds=options.rounds, block=options.block)
    made.save(options.out)
    print("\n\n".join([report.setting(made), *_text(made)]))
    print(f"\nWritten: {options.out}")
    return 0


def measure(setting: Setting, *, rounds: int, block: float) -> report.Run:
    made = report.Run(report.environment(), {"rounds": rounds, "block": block, "subjects": ["accelerator"]})
    torch.backends.cudnn.benchmark = setting.real
    for case in (views(setting), warp(setting)):
        outcome = compare(
            case,
            rounds=rounds,
            block=block,
            stopwatch=cuda_clock if setting.real else wall_clock,
            memory=cuda_peak if setting.real else peak_bytes,
            progress=lambda now, title=case.title: print(f"{title} · {now}", flush=True),  # type: ignore[misc]
        )
        made.outcomes.append(outcome)
        made.facts |= facts(setting, case)
    if not setting.real:
        made.facts |= rehearsal(setting)
    return made


def _text(made: report.Run) -> list[str]:
    def of(outcome: Outcome) -> str:
        multiples = ", ".join(f"{name} {report.number(m)}" for name, m in report.multiples(outcome).items())
        return f"{outcome.title}\n{report.comparison_table(outcome)}\nPeak memory, × the uint8 input: {multiples}"

    return [*map(of, made.outcomes), *(f"{what}: {fact}" for what, fact in made.facts.items())]


# ---------------------------------------------------------------------------------------------------------- contenders


def views(setting: Setting) -> Case:
    made = 2 * setting.batch

    def of(make: Callable[[], Callable[[Tensor], Any]]) -> Callable[[], Call]:
        @cache  # timed first, then looked into
        def build() -> Call:
            pipeline, next_batch = make(), setting.batches(setting.side)
            return lambda: pipeline(next_batch())

        return build

    def randfield(*, field: bool) -> Callable[[Tensor], Any]:
        return simclr_views(field=field, size=setting.size)

    def resnet() -> Call:
        import torchvision

        model = torchvision.models.resnet50(weights=None).to(setting.device, memory_format=torch.channels_last)
        images = torch.randn(made, 3, setting.size, setting.size, device=setting.device)
        images = images.contiguous(memory_format=torch.channels_last)

        def step() -> None:
            with torch.autocast(setting.device, dtype=torch.bfloat16):
                loss = model(images).float().square().mean()
            loss.backward()
            model.zero_grad(set_to_none=True)

        return step

    holds = 3 * setting.batch * setting.side**2
    contenders = (
        Contender(EAGER, of(lambda: randfield(field=True)), items=made, holds=holds),
        Contender(COMPILED, of(lambda: setting.compiled(randfield(field=True))), items=made, holds=holds),
        Contender("without a field, eager", of(lambda: randfield(field=False)), items=made, holds=holds),
        Contender(
            "without a field, compiled", of(lambda: setting.compiled(randfield(field=False))), items=made, holds=holds
        ),
        Contender(
            "Kornia AugmentationSequential, without a field",
            of(lambda: kornia_views("AugmentationSequential", setting.size, setting.device)),
            library="kornia",
            items=made,
            holds=holds,
        ),
        Contender("ResNet-50 on them, forward and backward, bfloat16", resnet, library="torchvision", items=made),
    )
    return Case(
        name="accelerator views",
        title=f"SimCLR views of {setting.size}² from a batch of {setting.batch} × {setting.side}² uint8, per view",
        unit=("µs", 1e6),
        contenders=contenders,
        ours=(EAGER,),
        notes=("ResNet-50 in channels_last, not compiled, without an optimiser.",),
    )


def warp(setting: Setting) -> Case:
    def local() -> Any:
        return ours("LocalTranslate", per_sample=True)()

    def of(make: Callable[[], Callable[[Tensor], Any]]) -> Callable[[], Call]:
        @cache
        def build() -> Call:
            transform, next_batch = make(), setting.batches(setting.size)
            return lambda: transform(next_batch())

        return build

    def sampling() -> Callable[[Tensor], Tensor]:
        theta = torch.tensor([[1.0, 0.1, 0.0], [-0.1, 1.0, 0.0]], device=setting.device)
        grid = F.affine_grid(theta.expand(setting.batch, 2, 3), [setting.batch, 3, setting.size, setting.size], False)
        return lambda images: F.grid_sample(images.float(), grid, padding_mode="border", align_corners=False).byte()

    holds = 3 * setting.batch * setting.size**2
    return Case(
        name="accelerator warp",
        title=f"LocalTranslate on a batch of {setting.batch} × {setting.size}² uint8, per image",
        unit=("µs", 1e6),
        contenders=(
            Contender("LocalTranslate, eager", of(local), items=setting.batch, holds=holds),
            Contender(
                "LocalTranslate, compiled", of(lambda: setting.compiled(local())), items=setting.batch, holds=holds
            ),
            Contender("grid_sample alone, from and to uint8", of(sampling), library="torch", items=setting.batch),
        ),
        ours=("LocalTranslate, eager",),
        notes=("grid_sample alone moves the same pixels with a grid made beforehand: the floor for an eager warp.",),
    )


# --------------------------------------------------------------------------------------------------------------- facts


def facts(setting: Setting, case: Case) -> dict[str, Any]:
    """For each of our contenders: whether the host waits inside a call, and how long it takes to launch one."""
    found: dict[str, Any] = {}
    for contender in case.contenders:
        if contender.library == "randfield":
            try:
                found[f"{case.title}, {contender.name}"] = _fact(setting, contender.build())
            except Exception as error:  # as in the table
                found[f"{case.title}, {contender.name}"] = reason(error)
    return found


def _fact(setting: Setting, call: Call) -> str:
    for _ in range(3):
        call()
    if not setting.real:
        return "ran"
    return f"host synchronisation: {synchronisation(call)}; launched in {launch(call):.2f} ms"


def rehearsal(setting: Setting) -> dict[str, Any]:
    """What can be told of a GPU without one."""
    found = {}
    for name, make, side in (
        ("SimCLRViews with LocalTranslate", lambda: simclr_views(field=True, size=setting.size), setting.side),
        ("LocalTranslate", ours("LocalTranslate", per_sample=True), setting.size),
    ):
        for what, look in (("host traffic", host_traffic), ("graph break", graph_break)):
            try:
                found[f"{name}, {what} on pretended tensors"] = look(make(), (setting.batch, 3, side, side)) or "none"
            except Exception as error:
                found[f"{name}, {what} on pretended tensors"] = reason(error)
    return found


def synchronisation(call: Call) -> str:
    """Where the host waits for the device in a call, or "none"."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        call()
    except RuntimeError as error:
        return f"{reason(error)} at {_line(traceback.extract_tb(error.__traceback__))}"
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return "none"


def launch(call: Call) -> float:
    """Milliseconds until a call returns to the host with the device idle at its start."""
    times = []
    for _ in range(11):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    torch.cuda.synchronize()
    return statistics.median(times) * 1e3


def cuda_clock(call: Call, calls: int) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    start.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


def cuda_peak(call: Call) -> int:
    call()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


# -------------------------------------------------------------------------------------------- pretending to have one


def host_traffic(transform: Callable[[Tensor], Any], shape: tuple[int, ...]) -> list[str]:
    """Where a transform of a uint8 batch on a GPU would exchange values with the host; no GPU needed.

    On PyTorch's pretended tensors, which have a device but no values: a look at a value is an error, a copy between
    host and device is noted with its line.
    """
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    found: list[str] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            leaves = tree_leaves((args, out))
            copies = func.overloadpacket in (torch.ops.aten._to_copy, torch.ops.aten.copy_)
            if copies and len({leaf.device.type for leaf in leaves if isinstance(leaf, Tensor)}) > 1:
                found.append(_line(traceback.extract_stack()) or str(func))
            return out

    with _pretended(transform, shape) as images, Watch():
        transform(images)
    return list(dict.fromkeys(found))


def graph_break(transform: Callable[[Tensor], Any], shape: tuple[int, ...]) -> str | None:
    """Why `torch.compile(fullgraph=True)` would not take a transform of a uint8 batch on a GPU; no GPU needed."""
    with _pretended(transform, shape) as images:
        try:
            torch.compile(transform, fullgraph=True, backend="eager")(images)
        except torch._dynamo.exc.TorchDynamoException as error:
            return reason(error)
    return None


@contextlib.contextmanager
def _pretended(transform: Callable[[Tensor], Any], shape: tuple[int, ...]) -> Iterator[Tensor]:
    from torch._subclasses.fake_tensor import FakeTensorMode

    transform(torch.zeros(shape, dtype=torch.uint8))  # what depends on the size alone is computed once, from values
    with FakeTensorMode(allow_non_fake_inputs=True):
        images = torch.empty(shape, dtype=torch.uint8, device="cuda")
        transform(images)  # and moved to a device once
        yield images


def _line(stack: traceback.StackSummary) -> str | None:
    """The last line of randfield in a stack."""
    mine = [frame for frame in stack if "randfield" in frame.filename]
    return f"{Path(mine[-1].filename).name}:{mine[-1].lineno}: {mine[-1].line}" if mine else None

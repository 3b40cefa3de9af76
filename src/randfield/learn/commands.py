"""The commands `pretrain`, `probe`, `export` and `demo`; what they need is imported when they run."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter
from cyclopts.validators import Number
from rich.console import Console
from rich.logging import RichHandler
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from randfield.learn.config import MethodName, PresetName
from randfield.terminal import Count, Flag, Json, stop

if TYPE_CHECKING:
    from randfield.learn.train import Progress as Made

__all__ = ["Protocol", "advance", "failures", "mount", "progress_bar"]

Values = Annotated[tuple[float, ...] | None, Parameter(consume_multiple=1)]
Workers = Annotated[int, Parameter(validator=Number(gte=0))]
Protocol = Literal["sgd", "fast", "knn"]

_FLATTERING = "The demo's fruits turn on a white ground: accuracy on them flatters every encoder."


def mount(app: App) -> None:
    """Make these commands of an app."""
    app.command(pretrain, usage="Usage: randfield pretrain --out RUN [OPTIONS]")
    app.command(probe, usage="Usage: randfield probe RUN [OPTIONS]")
    app.command(demo, usage="Usage: randfield demo [OPTIONS]")
    app.command(export, usage="Usage: randfield export RUN FILE [OPTIONS]")


def pretrain(
    *,
    out: Path,
    preset: PresetName | None = None,
    config: Path | None = None,
    data: str | None = None,
    root: str | None = None,
    local: str | None = None,
    gamma: Values = None,
    alpha: Values = None,
    p: float | None = None,
    method: MethodName | None = None,
    encoder: str | None = None,
    size: Count | None = None,
    epochs: Count | None = None,
    warmup_epochs: float | None = None,
    batch_size: Count | None = None,
    accumulate: Count | None = None,
    optimizer: Literal["lars", "sgd", "adamw"] | None = None,
    learning_rate: float | None = None,
    weight_decay: float | None = None,
    temperature: float | None = None,
    precision: Literal["bf16", "fp32"] | None = None,
    seed: int | None = None,
    devices: Count | None = None,
    nodes: Count = 1,
    workers: Workers | None = None,
    json_: Json = False,
) -> None:
    """Pretrain an encoder on views with random fields.

    A preset fills what is not given: `demo`, the default, the fruits that come with randfield, a minute or two on two
    cores; `small`, the same encoder at 32², for a quarter of an hour on 50,000 images; `paper`, ResNet-50 at 224² on
    ImageNet with SimCLR's published values. The same command goes on where it was stopped, and changes nothing when it
    is done.

    The folder receives the config, the state after the last epoch, a log of a JSON line for each epoch, and
    TensorBoard's files. On several GPUs the batch is shared among them; on several machines start the same command on
    each with torchrun or Slurm.

    Parameters
    ----------
    out
        The folder of the run.
    config
        A saved config, such as another run's `config.json`, in the place of a preset.
    data
        demo, cifar10, cifar100, stl10, stl10-unlabeled, imagenet, inat2018, a folder of images, a Parquet file or a
        folder of them, or hf:NAME.
    root
        Where the files of cifar10 and the like are.
    local
        The local transform: none, rotate, scale, shear, translate, hue, saturation, value, color, or several of the
        first four joined by +.
    gamma
        Smoothness of its fields: a number, or a lowest and a highest to draw from.
    alpha
        Its strength, in the same form.
    p
        Probability that it acts on a view.
    encoder
        A model of timm, or resnet18_small, resnet18_small_w16 or resnet50_small for images of about 32².
    size
        Side of the views in pixels.
    batch_size
        Images of a step, over all devices.
    accumulate
        Parts that a step is done in where memory is short; negatives come from one part.
    learning_rate
        Of the whole batch; it is not scaled.
    devices
        GPUs, or with none processes, of each machine; all GPUs, or one process, by default.
    nodes
        Machines.
    workers
        Processes that decode images for each device, where images do not fit the memory.
    """
    needed = _learning()
    given = {
        "data": data, "root": root, "local": local, "gamma": gamma, "alpha": alpha, "p": p, "method": method,
        "encoder": encoder, "size": size, "epochs": epochs, "warmup_epochs": warmup_epochs, "batch_size": batch_size,
        "accumulate": accumulate, "optimizer": optimizer, "learning_rate": learning_rate, "weight_decay": weight_decay,
        "temperature": temperature, "precision": precision, "seed": seed,
    }  # fmt: skip
    with failures(f"{out} can be taken up again by the same command"):
        if config is None:
            chosen = needed.Config.of(preset or "demo", **given)
        elif preset is not None:
            raise ValueError("--preset and --config exclude each other: a saved config leaves nothing to fill")
        else:
            changed = {key: value for key, value in given.items() if value is not None}
            chosen = needed.Config.read(needed.Config.load(config).plain() | changed)
        with progress_bar() as bar:
            task = bar.add_task("Pretraining")

            def show(made: Made) -> None:
                advance(bar, task, made)

            result = needed.pretrain(
                chosen, out, devices=devices or "auto", nodes=nodes, workers=workers, progress=show
            )
    if not _speaks():
        return
    if json_:
        print(json.dumps(result))
        return
    neighbours = "" if result["knn_top1"] is None else f", kNN top-1 {result['knn_top1']:.1%}"
    efficiency = result["pipeline_efficiency"]
    told = "" if efficiency is None else f", {efficiency:.0%} of the speed of the bare training step"
    print(
        f"Pretrained {result['epochs']} epochs in {out}: loss {result['loss']:.3f}{neighbours}; "
        f"{result['images_per_second']:.0f} images/s{told}."
    )
    if result["unreadable"]:
        print(f"Others took the place of {result['unreadable']} unreadable images.")
    print(f"Judge it: randfield probe {out}")


def probe(
    run: Path,
    /,
    *,
    data: str | None = None,
    root: str | None = None,
    protocol: Protocol = "fast",
    untrained: Flag = False,
    epochs: Count | None = None,
    seed: int = 0,
    workers: Workers = 0,
    json_: Json = False,
) -> None:
    """Judge the frozen encoder of a run.

    `sgd` is the papers' linear probe: random crops and flips, 90 epochs. `fast` trains the linear layer on features
    that are looked at once. `knn` asks the twenty nearest neighbours. The learning rate is chosen on a tenth of the
    images to train on; those to judge by are looked at once. The encoder is checked to be the same before and after.

    Parameters
    ----------
    run
        The folder that `pretrain` wrote.
    data
        Another data set than that of the run, in the same forms.
    root
        Where the files of cifar10 and the like are.
    untrained
        Judge the encoder that the run started from, to compare.
    epochs
        Of the linear layer: 90 for sgd and 30 for fast by default.
    workers
        Processes that decode images, where they do not fit the memory.
    """
    needed = _learning()
    with failures("nothing was written"):
        encoder, config = needed.load_encoder(run)
        if untrained:
            encoder = needed.untrained(config)
        name = data or config.data
        found = needed.load(name, root or config.root)
        with progress_bar() as bar:
            tasks: dict[str, Any] = {}

            def show(what: str, done: int, of: int) -> None:
                tasks.setdefault(what, bar.add_task(what.capitalize()) if what not in tasks else None)
                bar.update(tasks[what], total=of, completed=done)

            result = needed.probe(
                encoder, found, protocol=protocol, size=config.size, epochs=epochs, seed=seed,
                bf16=config.precision == "bf16", device=needed.device(), workers=workers, progress=show,
            )  # fmt: skip
    result = {"run": str(run), "data": name, "untrained": untrained} | result
    if json_:
        print(json.dumps(result))
        return
    rate = f", learning rate {result['learning_rate']:g}" if "learning_rate" in result else ""
    of = "untrained encoder" if untrained else "encoder"
    print(
        f"{name}, {protocol} probe of the {of} of {run}: top-1 {result['top1']:.2%}, top-5 {result['top5']:.2%} of "
        f"{result['n']} images in {result['classes']} classes{rate}."
    )
    if name.startswith("demo"):
        print(_FLATTERING)


def export(run: Path, file: Path, /, *, json_: Json = False) -> None:
    """Write the encoder of a run as safetensors, which timm loads.

    Parameters
    ----------
    run
        The folder that `pretrain` wrote.
    file
        The file to write, such as encoder.safetensors.
    """
    needed = _learning()
    with failures("nothing was written"):
        result = needed.export(run, file)
    if json_:
        print(json.dumps(result))
        return
    print(f"Wrote {file}. Load it:")
    if result["encoder"].endswith(("_small", "_w16")):
        print("    import randfield.learn.encoders  # tells timm of it")
    print(f"    timm.create_model({result['encoder']!r}, num_classes=0, checkpoint_path={str(file)!r})")


def demo(
    *,
    out: Path = Path("runs/demo"),
    photo: Path | None = None,
    epochs: Count | None = None,
    seed: int = 0,
    json_: Json = False,
) -> None:
    """Pretrain with and without a local field on fruits that come with randfield, probe both, write a report.

    Less than five minutes on two cores. The same command goes on where it was stopped.

    Parameters
    ----------
    out
        The folder that receives both runs and report.html.
    photo
        A photo to show the transforms on; by default a cat's.
    epochs
        Fewer or more than the demo's own.
    """
    needed = _learning()
    with failures(f"{out} can be taken up again by the same command"), progress_bar() as bar:
        tasks: dict[str, Any] = {}

        def show(what: str, made: Made | None) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=None)
            if made is not None:
                advance(bar, tasks[what], made, prefix=f"{what} · ")

        result = needed.demo(out, epochs=epochs, seed=seed, photo=photo, progress=show)
    if json_:
        print(json.dumps(result))
        return
    for name, top1 in result["top1"].items():
        print(f"{name}: {top1['demo']:.1%} of the kinds learned from, {top1['demo-ood']:.1%} of the others")
    print(_FLATTERING)
    print(f"The report is {result['report']}")


def advance(bar: Progress, task: Any, made: Made, *, prefix: str = "") -> None:
    neighbours = "" if made.knn_top1 is None else f" · kNN {made.knn_top1:.1%}"
    bar.update(
        task,
        total=made.epochs * made.steps,
        completed=(made.epoch - 1) * made.steps + made.step,
        description=f"{prefix}epoch {made.epoch} of {made.epochs} · loss {made.loss:.3f}{neighbours} · "
        f"{made.images_per_second:.0f} images/s",
    )


class _Needed:
    """What the commands call, once it is known to be installed."""

    def __init__(self) -> None:
        import torch

        from randfield.learn.config import Config
        from randfield.learn.data import load
        from randfield.learn.demo import demo
        from randfield.learn.probe import probe
        from randfield.learn.train import export, load_encoder, pretrain, untrained

        self.Config, self.load, self.probe, self.demo = Config, load, probe, demo
        self.export, self.load_encoder, self.pretrain, self.untrained = export, load_encoder, pretrain, untrained
        self.device = lambda: "cuda" if torch.cuda.is_available() else "cpu"


def _learning() -> _Needed:
    try:
        return _Needed()
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("randfield"):
            raise
        stop(f"this command needs {error.name}; install it with: pip install 'randfield[learn]'")


def _speaks() -> bool:
    """Of several processes, one."""
    from lightning.pytorch.utilities import rank_zero_only

    return int(getattr(rank_zero_only, "rank", 0)) == 0


@contextmanager
def failures(interrupted: str) -> Iterator[None]:
    """Errors that the user can mend as a sentence; the others as they are."""
    from randfield.learn.data import DataError
    from randfield.learn.train import RunError

    try:
        yield
    except ValueError as error:
        stop(str(error), status=2)
    except (DataError, RunError) as error:
        stop(str(error))
    except KeyboardInterrupt:
        stop(f"interrupted; {interrupted}", status=130)


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """A progress bar on standard error, above which the log's lines go."""
    console = Console(stderr=True)
    handler: logging.Handler = RichHandler(console=console, show_time=False, show_path=False)
    if not _speaks():
        handler = logging.NullHandler()
    log = logging.getLogger("randfield")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns, console=console, disable=not _speaks()) as bar:
            yield bar
    finally:
        log.removeHandler(handler)

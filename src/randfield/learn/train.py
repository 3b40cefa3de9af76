"""A run: pretraining from a config into a folder, which the same call takes up again wherever it was stopped.

The folder holds `config.json`; `last.ckpt`, the whole state after the last finished epoch; `log.jsonl`, a line for each
epoch; TensorBoard's files; and at the end `result.json`. A file is written whole or not at all.
"""

from __future__ import annotations

import copy
import json
import logging
import math
import os
import shutil
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch import nn

from randfield.learn import data, encoders, methods
from randfield.learn.config import Config
from randfield.learn.data import Images
from randfield.learn.feed import Feed
from randfield.learn.probe import knn
from randfield.learn.simclr import Method, Pretraining
from randfield.seeds import seed_of

__all__ = ["Progress", "RunError", "export", "load_encoder", "pretrain", "untrained", "write_whole"]

log = logging.getLogger("randfield")


class RunError(Exception):
    """A run that cannot be, or cannot go on; the message says what to do."""


@dataclass(frozen=True)
class Progress:
    """How far a run is, for whoever shows it."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    images_per_second: float
    knn_top1: float | None


def pretrain(
    config: Config,
    out: Path,
    *,
    devices: int | str = "auto",
    nodes: int = 1,
    workers: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    stop: Callable[[Progress], bool] | None = None,
) -> dict[str, Any]:
    """Pretrain as `config` says, in the folder `out`; go on with what is there if it was stopped before.

    Returns, and leaves in `result.json`: out, epochs, loss, knn_top1 (None without labels), images_per_second, and
    pipeline_efficiency, the share of the bare training step's speed that is left with the views being made beside it.
    `stop` is asked after each epoch whether the run is good enough, or hopeless; it may then be taken up again.
    """
    _claim(out, config)
    result_file = out / "result.json"
    if result_file.exists():
        result: dict[str, Any] = json.loads(result_file.read_text(encoding="utf-8"))
        return result
    found = data.load(config.data, config.root)
    micro = config.batch_size // config.accumulate
    if workers is None:
        processes = devices if isinstance(devices, int) else torch.cuda.device_count()
        workers = max(1, _cores() // max(1, processes) - 1)
    accelerated = torch.cuda.is_available()
    feed = Feed(found.train, config.views(), batch_size=micro, seed=config.seed, workers=workers, crops=accelerated)
    module = Pretraining(build(config), config, feed)
    checkpoint = out / "last.ckpt"
    numbers = 4 * sum(p.numel() for p in module.parameters())  # with what the optimizer keeps, and some to spare
    _try_to_write(out, 4 * numbers * (1 if checkpoint.exists() else 2))  # the next is written before the last goes
    watch = _Watch(out, config, found, progress, stop)
    with _quiet():
        try:
            trainer = L.Trainer(
                max_epochs=config.epochs,
                devices=devices,
                num_nodes=nodes,
                strategy="auto",
                precision="bf16-mixed" if config.precision == "bf16" else "32-true",
                accumulate_grad_batches=config.accumulate,
                sync_batchnorm=torch.cuda.is_available(),
                use_distributed_sampler=False,  # our order knows of processes
                default_root_dir=out,
                logger=TensorBoardLogger(out, name="", version="tensorboard"),
                callbacks=[watch, _checkpoints(out)],
                plugins=[_WholeFiles()],
                enable_progress_bar=False,
                enable_model_summary=False,
                num_sanity_val_steps=0,
                log_every_n_steps=10**9,  # `_Watch` logs
            )
        except MisconfigurationException as error:
            raise RunError(f"devices={devices!r} on {nodes} machines cannot be had: {error}") from error
        try:
            trainer.fit(module, ckpt_path=str(checkpoint) if checkpoint.exists() else None, weights_only=True)
        except SystemExit:
            if trainer.state.status == "interrupted":  # Lightning took Ctrl-C for itself
                raise KeyboardInterrupt from None
            raise
        except OSError as error:
            raise RunError(
                f"cannot go on: {error}. What was finished before is whole; once mended, the same command goes on"
            ) from error
        except RuntimeError as error:
            if "DataLoader worker" not in str(error):
                raise
            raise RunError(
                f"cannot go on: a process that decodes images was ended ({str(error).splitlines()[0]}). The same "
                "command goes on; if memory was short, with fewer --workers"
            ) from error
    result = watch.result(trainer.current_epoch)
    if trainer.is_global_zero and not watch.stopped and trainer.current_epoch == config.epochs:
        write_whole(result_file, json.dumps(result, indent=1) + "\n")
    return result


def _cores() -> int:
    """Cores that the processes of this machine may use."""
    per_task, tasks = (os.environ.get(f"SLURM_{name}") for name in ("CPUS_PER_TASK", "NTASKS_PER_NODE"))
    if per_task:
        return int(per_task) * int(tasks or 1)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def build(config: Config) -> Method:
    """An untrained method, the same for the same seed."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed_of(config.seed, "weights"))
        return methods.build(encoders.build(config.encoder), config)


def untrained(config: Config) -> nn.Module:
    """The encoder that a run starts from."""
    return build(config).encoder


def load_encoder(run: Path) -> tuple[nn.Module, Config]:
    """The encoder of a run as its last finished epoch left it, and the run's config."""
    config, checkpoint = Config.load(_existing(run / "config.json")), _existing(run / "last.ckpt")
    state = torch.load(checkpoint, map_location="cpu", weights_only=True)["state_dict"]
    encoder, prefix = encoders.build(config.encoder), "method.encoder."
    encoder.load_state_dict({k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)})
    return encoder, config


def export(run: Path, file: Path) -> dict[str, Any]:
    """Write a run's encoder as safetensors: `timm.create_model(name, num_classes=0, checkpoint_path=file)` loads it."""
    from safetensors.torch import save

    encoder, config = load_encoder(run)
    state = {key: value.contiguous() for key, value in encoder.state_dict().items()}
    write_whole(file, save(state, {"encoder": config.encoder, "config": json.dumps(config.plain())}))
    return {"out": str(file), "encoder": config.encoder, "parameters": sum(p.numel() for p in encoder.parameters())}


# -------------------------------------------------------------------------------------------------------------- folder


def _existing(file: Path) -> Path:
    if not file.exists():
        raise RunError(
            f"{file.parent} is not a run: it has no {file.name}; name the folder that pretrain wrote with --out"
        )
    return file


def _claim(out: Path, config: Config) -> None:
    """Make the folder, or see that it holds the run of this very config."""
    file = out / "config.json"
    if not file.exists():
        write_whole(file, json.dumps(config.plain(), indent=1) + "\n")
        return
    there = Config.load(file)
    differing = [key for key, value in there.plain().items() if config.plain()[key] != value]
    if differing:
        told = ", ".join(f"{key} {there.plain()[key]!r} and not {config.plain()[key]!r}" for key in differing)
        raise RunError(f"{out} holds a run with {told}; choose another --out, or give the same options")


def write_whole(file: Path, content: str | bytes) -> None:
    """Write a file, and the folders it is in, or leave everything as it was."""
    unfinished = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            unfinished.write_bytes(content.encode() if isinstance(content, str) else content)
            unfinished.replace(file)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise RunError(f"cannot write {file}: {error.strerror or error}; make room, or choose another place") from error


def _try_to_write(out: Path, size: int) -> None:
    """Checkpoints need about `size` bytes: fail now, not after the first epoch."""
    file = out / ".room.tmp"
    try:
        with file.open("wb") as opened:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(opened.fileno(), 0, max(1, size))
            else:
                opened.write(b"\0" * size)
    except OSError as error:
        raise RunError(
            f"no room for {size / 2**20:.0f} MiB of checkpoints in {out}: {error.strerror}; make some, or choose "
            "another --out"
        ) from error
    finally:
        file.unlink(missing_ok=True)


class _WholeFiles(TorchCheckpointIO):
    """Checkpoints that replace the one before only when they are whole and on the disk."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        file = Path(path)
        unfinished = file.with_name(f".{file.name}.tmp")
        try:
            with _uninterrupted(), unfinished.open("wb") as opened:
                torch.save(checkpoint, opened)
                opened.flush()
                os.fsync(opened.fileno())
            unfinished.replace(file)
        except RuntimeError as error:  # what torch makes of a full disk, without saying so
            unfinished.unlink(missing_ok=True)
            free = shutil.disk_usage(file.parent).free / 2**20
            raise OSError(f"cannot write {file}, with {free:.0f} MiB left on its disk") from error


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits until this is over: thrown into torch's writer, it would end the process by a crash."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: caught.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if caught:
        raise KeyboardInterrupt


def _checkpoints(out: Path) -> ModelCheckpoint:
    return ModelCheckpoint(
        out, "last", save_top_k=1, save_on_train_epoch_end=True, enable_version_counter=False, save_weights_only=False
    )


# --------------------------------------------------------------------------------------------------------------- watch


class _Watch(L.Callback):
    """Times the steps, looks at the neighbours, writes the log, tells the progress."""

    def __init__(
        self,
        out: Path,
        config: Config,
        found: data.Data,
        progress: Callable[[Progress], None] | None,
        stop: Callable[[Progress], bool] | None,
    ) -> None:
        self.out, self.config, self.found = out, config, found
        self.progress, self.stop = progress, stop
        self.judged = _to_look_at(found, config.seed)
        self.knn_top1: float | None = None
        self.loss = math.nan
        self.speed = 0.0
        self.efficiency: float | None = None
        self.stopped = False
        self._seen = 0  # steps of this process
        self._timed, self._seconds = 0, 0.0  # of these, those that were timed, and what they took
        self._told = 0.0

    def state_dict(self) -> dict[str, Any]:
        return {"knn_top1": self.knn_top1, "loss": self.loss, "speed": self.speed}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.knn_top1, self.loss, self.speed = (state_dict[key] for key in ("knn_top1", "loss", "speed"))

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        if trainer.is_global_zero:
            _forget_after(self.out / "log.jsonl", trainer.current_epoch)

    def on_train_epoch_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        self._began, self._of_epoch = time.perf_counter(), 0

    def on_train_batch_end(self, trainer: L.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        now = time.perf_counter()
        self._seen += 1
        if self._seen == _WARM_UP:
            self._began, self._of_epoch = now, 0
        else:
            self._of_epoch += 1
            self.speed = self._of_epoch * self._images() / (now - self._began)
        self.found.train.note(batch.get("broken", {}))
        if self.progress and trainer.is_global_zero and now - self._told > 0.5:
            self._told = now
            self.progress(self._state(trainer, module, module.latest_loss(), batch_idx + 1))

    def on_train_epoch_end(self, trainer: L.Trainer, module: Any) -> None:
        epoch = trainer.current_epoch + 1
        self.loss = module.mean_loss()
        if not math.isfinite(self.loss):
            raise RunError(f"the loss is {self.loss} after epoch {epoch}; try a lower learning rate")
        took = time.perf_counter() - self._began  # after `mean_loss`, which waits for the device
        if self._of_epoch:
            self.speed = self._of_epoch * self._images() / took
            self._timed, self._seconds = self._timed + self._of_epoch, self._seconds + took
        self.found.train.note(_of_all_processes(self.found.train.broken))
        asked = epoch % self.config.knn_every == 0 or epoch == self.config.epochs
        if self.judged and asked and trainer.is_global_zero:
            encoder = module.method.encoder
            self.knn_top1 = knn(
                encoder, *self.judged, size=self.config.size, device=module.device,
                bf16=self.config.precision == "bf16", workers=module.feed.workers,
            )  # fmt: skip
            encoder.train()
        state = self._state(trainer, module, self.loss, len(module.feed.images) // module.feed.batch_size)
        if trainer.is_global_zero:
            values = {
                "loss": self.loss,
                "learning_rate": trainer.optimizers[0].param_groups[0]["lr"],
                "images_per_second": self.speed,
            }
            if asked and self.knn_top1 is not None:
                values["knn_top1"] = self.knn_top1
            trainer.logger.log_metrics(values, step=trainer.global_step)  # type: ignore[union-attr]  # there is one
            broken = len(self.found.train.broken)
            line = {"epoch": epoch, "step": trainer.global_step} | values | ({"unreadable": broken} if broken else {})
            with (self.out / "log.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            if self.progress:
                self.progress(state)
        if self.stop and epoch < self.config.epochs and self.stop(state):
            self.stopped = trainer.should_stop = True

    def on_train_end(self, trainer: L.Trainer, module: Any) -> None:
        """Here, where the model is still on its device, and every process comes along."""
        if self._timed and not self.stopped:
            self.efficiency = round(_bare_step(module) / (self._seconds / self._timed), 3)

    def _images(self) -> int:
        return self.config.batch_size // self.config.accumulate

    def _state(self, trainer: L.Trainer, module: Any, loss: float, step: int) -> Progress:
        steps = len(module.feed.images) // module.feed.batch_size
        return Progress(trainer.current_epoch + 1, self.config.epochs, step, steps, loss, self.speed, self.knn_top1)

    def result(self, epochs: int) -> dict[str, Any]:
        return {
            "out": str(self.out),
            "epochs": epochs,
            "loss": self.loss,
            "knn_top1": self.knn_top1,
            "images_per_second": round(self.speed, 1),
            "pipeline_efficiency": self.efficiency,
            "unreadable": len(self.found.train.broken),
        }


def _to_look_at(found: data.Data, seed: int) -> tuple[Images, Images] | None:
    """A few thousand labelled images to compare with and a few to ask about, the same ones in every epoch."""
    if found.test is None or found.train.labels is None or found.test.labels is None:
        return None

    def some(images: Images, most: int) -> Images:
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed_of(seed, "look")))
        return images.take(order[:most].tolist()) if len(images) > most else images

    return some(found.train, 5000), some(found.test, 1000)


def _forget_after(file: Path, epoch: int) -> None:
    """Drop the lines of epochs that are done again."""
    if file.exists():
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [line for line in lines if line.endswith("\n") and json.loads(line)["epoch"] <= epoch]
        write_whole(file, "".join(kept))


def _of_all_processes(broken: dict[int, str]) -> dict[int, str]:
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return broken
    gathered: list[dict[int, str]] = [{}] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(gathered, broken)
    return {index: reason for its in gathered for index, reason in its.items()}


_WARM_UP = 3
"""Steps that are not timed: the first ones make buffers, and choose algorithms."""


def _bare_step(module: Pretraining, steps: int = 12) -> float:
    """Seconds of a training step by itself: the same forward, backward and update on views that are there already."""
    method, config = copy.deepcopy(module.method), module.config
    optimizer = Pretraining(method, config, module.feed).configure_optimizers()["optimizer"]
    shape = (module.feed.batch_size // module.trainer.world_size, 3, config.size, config.size)
    views = [torch.rand(shape, device=module.device).contiguous(memory_format=torch.channels_last) for _ in range(2)]
    method.train()
    for step in range(_WARM_UP + steps):
        if step == _WARM_UP:
            _wait_for(module.device)
            start = time.perf_counter()
        with torch.autocast(module.device.type, dtype=torch.bfloat16, enabled=config.precision == "bf16"):
            loss = method(views)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    _wait_for(module.device)
    return (time.perf_counter() - start) / steps


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


# --------------------------------------------------------------------------------------------------------------- quiet


@contextmanager
def _quiet() -> Iterator[None]:
    """Lightning tells what it found on the machine, and warns of what is meant so."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric", "pytorch_lightning")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="lightning")
        warnings.filterwarnings("ignore", message=".*(does not have many workers|is not empty|isinstance\\(treespec).*")
        try:
            yield
        finally:
            for logger, level in zip(loggers, before, strict=True):
                logger.setLevel(level)

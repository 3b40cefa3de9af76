"""The engine: a table as an Optuna study that any number of processes and machines work off.

A trial is a row of a table and a seed: pretrain an encoder, judge it on the data it learned from and on other data. A
study lives in a database, an SQLite file by default or a PostgreSQL server that all machines reach, and is all that
workers share. Each of them asks for the next row that nobody has, and none is told of the others:

* A trial whose worker died is failed, and its row is free again: at once where the process that had it was of this
  machine, and elsewhere when its heartbeat has been silent for a while.
* Two workers may ask for the same row at the same moment. The trial of the lower number counts, the other gives way.
* A trial that was trained and judged in another table of the same database is not trained again.

So every row and seed is completed once, whoever is stopped, and when.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import optuna
import torch
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from randfield.learn import data
from randfield.learn.config import Config, PresetName
from randfield.learn.feed import Feed
from randfield.learn.probe import Protocol, probe
from randfield.learn.simclr import Pretraining
from randfield.learn.train import Progress, RunError, build, load_encoder, pretrain, write_whole
from randfield.paper.tables import TABLES, Row, Table, TableName

__all__ = [
    "HEARTBEAT",
    "Hooks",
    "Planned",
    "Setup",
    "StudyError",
    "as_stable",
    "bury",
    "estimate",
    "judged",
    "open_study",
    "opened",
    "planned",
    "reproduce",
    "sign",
    "trials_of",
]

Key = tuple[str, int]
"""A row's name and a seed."""

HEARTBEAT = 60
"""Seconds between the signs of life of a worker; after five without one it counts as dead."""


class StudyError(RunError):
    """A study that cannot be opened or gone on with; the message says what to do."""


@dataclass(frozen=True)
class Setup:
    """What all trials of a table share: a config, which the rows change, and how encoders are judged."""

    table: Table
    preset: PresetName
    config: Config
    ood: str | None
    protocol: Protocol

    @classmethod
    def of(
        cls,
        table: TableName,
        preset: PresetName,
        *,
        ood: str | None = None,
        protocol: Protocol | None = None,
        **given: Any,
    ) -> Setup:
        """The setup of a preset; `given` replaces values of its config, as in `Config.of`."""
        if preset == "small" and not given.get("data"):
            raise ValueError(
                "the preset small has no data of its own: name images to learn from with --data and others to judge by "
                "with --ood, such as Tiny-ImageNet and Flowers-102"
            )
        if ood is None and not given.get("data"):
            ood = {"demo": "demo-ood", "paper": "inat2018"}[preset]
        protocol = protocol or ("sgd" if preset == "paper" else "fast")
        return cls(TABLES[table], preset, Config.of(preset, **given), ood, protocol)

    @property
    def name(self) -> str:
        return f"{self.table.name}-{self.preset}"

    def run(self, row: Row, seed: int) -> Config:
        """The config of one trial."""
        return Config.read(self.config.plain() | row.settings | {"seed": seed})

    def plain(self) -> dict[str, Any]:
        """What must be the same for all who work on a study."""
        config = self.config.plain()
        for varies in ("local", "gamma", "alpha", "p", "seed", "root"):  # by row and seed; root by machine
            del config[varies]
        return {"preset": self.preset, "ood": self.ood, "protocol": self.protocol} | config

    def tasks(self) -> dict[str, str]:
        """The data that encoders are judged on."""
        return {"in": self.config.data} | ({"ood": self.ood} if self.ood else {})


@dataclass(frozen=True)
class Planned:
    """A row and a seed, and how far they are."""

    row: str
    seed: int
    state: str
    """to do, running, done or failed."""


# ------------------------------------------------------------------------------------------------------------- storage


@contextmanager
def opened(url: str | None, out: Path, *, heartbeat: int = HEARTBEAT) -> Iterator[RDBStorage]:
    """The database at a URL, or else a file in the folder `out`."""
    storage = _connected(url, out, heartbeat)
    try:
        yield storage
    except SQLAlchemyError as error:
        raise StudyError(
            f"the storage does not answer any more: {_first_line(error)}; what was finished is kept, and the same "
            "command goes on"
        ) from error
    finally:
        storage.remove_session()
        storage.engine.dispose()


def _connected(url: str | None, out: Path, heartbeat: int) -> RDBStorage:
    if url is None:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StudyError(f"cannot write to {out}: {error.strerror}; choose another --out") from error
        url = f"sqlite:///{out / 'study.db'}"
    try:
        address = make_url(url)
    except ArgumentError:
        raise StudyError(
            f"--storage {_without_password(url)} is not the address of a database; expected one such as "
            "postgresql://user:password@host/name or sqlite:///file.db"
        ) from None
    told = address.render_as_string(hide_password=True)
    if address.drivername == "postgresql":
        address = address.set(drivername="postgresql+psycopg")
    waits = {"timeout": 60} if address.drivername.startswith("sqlite") else {"connect_timeout": 10}
    for attempt in range(10):
        try:
            with as_stable():
                return RDBStorage(
                    address.render_as_string(hide_password=False),
                    engine_kwargs={"connect_args": waits, "pool_pre_ping": True},
                    heartbeat_interval=heartbeat,
                    grace_period=5 * heartbeat,
                )
        except (ImportError, NoSuchModuleError) as error:
            raise StudyError(
                f"there is no driver for the storage {told}; pip install 'randfield[study]' brings those of PostgreSQL "
                "and SQLite"
            ) from error
        except SQLAlchemyError as error:
            reason = _first_line(error)
            # Who opens an empty database makes its tables; of several at once all but one find them there half made.
            if "already exists" not in reason and "duplicate key" not in reason:
                raise StudyError(f"the storage {told} does not answer: {_clean(reason, address.password)}") from None
            time.sleep(0.2 * (attempt + 1))
    raise StudyError(f"the storage {told} is being made ready by others for too long; try again")


def _first_line(error: SQLAlchemyError) -> str:
    return str(getattr(error, "orig", None) or error).strip().splitlines()[0]


def _clean(reason: str, password: str | None) -> str:
    return reason.replace(str(password), "***") if password else reason


def _without_password(url: str) -> str:
    """For what cannot be parsed: everything between the last colon before the last @ and that @ is hidden."""
    head, at, tail = url.rpartition("@")
    user, colon, _ = head.rpartition(":")
    return f"{user}:***@{tail}" if at and colon and not head.endswith("//") else url


@contextmanager
def as_stable() -> Iterator[None]:
    """Optuna calls its heartbeat experimental, and reports every trial in its log."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield


def open_study(
    storage: RDBStorage, name: str, settings: dict[str, Any], *, advice: str, **options: Any
) -> optuna.Study:
    """The study of a name, made if need be; an error if it was made with other settings."""
    with as_stable():
        study = optuna.create_study(storage=storage, study_name=name, load_if_exists=True, **options)
        settings = json.loads(json.dumps(settings))
        there = study.user_attrs.get("settings")
        if there is None:
            study.set_user_attr("settings", settings)
            return study
    differing = [key for key in sorted({*there, *settings}) if there.get(key) != settings.get(key)]
    if differing:
        told = "; ".join(f"{key} was {there.get(key)!r} and is now {settings.get(key)!r}" for key in differing)
        raise StudyError(f"the study {name} was begun with other settings: {told}. {advice}")
    return study


# -------------------------------------------------------------------------------------------------------------- trials


def trials_of(study: optuna.Study) -> dict[Key, FrozenTrial]:
    """The trial that counts for each row and seed: the lowest number of those that have not failed."""
    found: dict[Key, FrozenTrial] = {}
    for trial in study.get_trials(deepcopy=False):
        key = _key(trial)
        if key and trial.state in (TrialState.WAITING, TrialState.RUNNING, TrialState.COMPLETE):
            found.setdefault(key, trial)
    return found


def _key(trial: FrozenTrial | optuna.Trial) -> Key | None:
    attributes = trial.user_attrs
    return (attributes["row"], attributes["seed"]) if "row" in attributes else None


def bury(study: optuna.Study, heartbeat: int) -> None:
    """Fail the trials of workers that are dead."""
    with as_stable():
        optuna.storages.fail_stale_trials(study)
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        worker = trial.user_attrs.get("worker")
        if worker:
            dead = worker["machine"] == _machine() and not _alive(worker["process"])
        else:  # killed before it could say who it was
            dead = datetime.now() - (trial.datetime_start or datetime.now()) > timedelta(seconds=5 * heartbeat)
        if dead:
            with as_stable():
                study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)


def sign(trial: optuna.Trial) -> None:
    """Say who works on a trial."""
    trial.set_user_attr("worker", {"machine": _machine(), "process": os.getpid()})


def _machine() -> str:
    """Whose process numbers these are: a container, or a machine since it was started, has its own."""
    parts = [socket.gethostname()]
    with suppress(OSError):  # not Linux
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return " ".join(parts)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


# ---------------------------------------------------------------------------------------------------------------- work


@dataclass(frozen=True)
class Hooks:
    """Who is told how a study goes on."""

    counted: Callable[[int, int], None] = lambda done, of: None
    """How many of the wanted trials are complete."""
    at: Callable[[str, Progress | None], None] = lambda trial, made: None
    """What this worker does: None while it judges."""
    waits: Callable[[int], None] = lambda running: None
    """Nothing is left but what others have."""


def reproduce(
    setup: Setup,
    out: Path,
    *,
    rows: Iterable[str] | None = None,
    seeds: int = 1,
    storage: str | None = None,
    devices: int | None = None,
    workers: int | None = None,
    heartbeat: int = HEARTBEAT,
    hooks: Hooks | None = None,
) -> dict[str, Any]:
    """Work on a table until every wanted row and seed is complete, by this worker or another.

    Returns the results, a dict for each trial, and the errors of the trials that failed here, by name; `out` receives
    the runs, `results.jsonl` and, for the report, what was wanted.
    """
    wanted = _wanted(setup.table, rows, seeds)
    with opened(storage, out, heartbeat=heartbeat) as database:
        study = _study_of(setup, database)
        _note_what_is_wanted(setup, out, wanted)
        worker = _Worker(setup, study, database, out, devices, workers, hooks or Hooks())
        worker.work(wanted, heartbeat)
        errors = {f"{row}, seed {seed}": told for (row, seed), told in worker.errors.items()}
        return {"results": judged(setup, study), "errors": errors}


class _Worker:
    """One process at work on a table."""

    def __init__(
        self,
        setup: Setup,
        study: optuna.Study,
        storage: RDBStorage,
        out: Path,
        devices: int | None,
        workers: int | None,
        hooks: Hooks,
    ) -> None:
        self.setup, self.study, self.storage, self.out, self.hooks = setup, study, storage, out, hooks
        self.devices, self.workers = devices or max(1, torch.cuda.device_count()), workers
        self.errors: dict[Key, str] = {}
        self.load = cache(data.load)  # decoded once for all trials

    def work(self, wanted: list[Key], heartbeat: int) -> None:
        while True:
            bury(self.study, heartbeat)
            trials = trials_of(self.study)
            _write_results(self.setup, self.study, self.out)
            done = [key for key in wanted if key in trials and trials[key].state == TrialState.COMPLETE]
            self.hooks.counted(len(done), len(wanted))
            left = [key for key in wanted if key not in done and key not in self.errors]
            if not left:
                return
            free = [key for key in left if key not in trials]
            if free:
                row, seed = free[0]
                self.study.enqueue_trial({}, user_attrs={"row": row, "seed": seed})
            elif not any(trial.state == TrialState.WAITING for trial in trials.values()):
                self.hooks.waits(sum(trial.state == TrialState.RUNNING for trial in trials.values()))
                time.sleep(min(heartbeat, 5))
                continue
            with as_stable(), suppress(optuna.exceptions.UpdateFinishedTrialError):  # others took us for dead
                self.study.optimize(self._objective, n_trials=1, catch=(_TrialError,))

    def _objective(self, trial: optuna.Trial) -> float:
        sign(trial)
        key = _key(trial)
        first = trials_of(self.study).get(key) if key else None
        if key is None or first is None or first.number != trial.number:
            raise optuna.TrialPruned  # another worker's
        row = self.setup.table.row(key[0])
        config = self.setup.run(row, key[1])
        result = self._known_elsewhere(config)
        if result is None:
            try:
                folder = self.out / "runs" / f"{row.name}-seed{key[1]}"
                result = self._done(config, folder, f"{row.name}, seed {key[1]}")
            except Exception as error:
                self.errors[key] = str(error) or type(error).__name__
                trial.set_user_attr("error", self.errors[key])
                raise _TrialError from error
        trial.set_user_attr("result", result)
        top1: float = result["metrics"]["in"]["top1"]
        return top1

    def _known_elsewhere(self, config: Config) -> dict[str, Any] | None:
        """The result of the same trial in another table."""
        for table in TABLES:
            name = f"{table}-{self.setup.preset}"
            try:
                other = optuna.load_study(study_name=name, storage=self.storage)
            except KeyError:
                continue
            if other.user_attrs.get("settings") == self.study.user_attrs["settings"]:
                for trial in other.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
                    result: dict[str, Any] = trial.user_attrs["result"]
                    if _same(result["config"], config):
                        return result
        return None

    def _done(self, config: Config, folder: Path, name: str) -> dict[str, Any]:
        """Pretrain and judge."""
        began = time.perf_counter()
        self.hooks.at(name, Progress(0, config.epochs, 0, 1, float("nan"), 0.0, None))
        trained = self._pretrained(config, folder, lambda made: self.hooks.at(name, made))
        self.hooks.at(name, None)
        encoder, _ = load_encoder(folder)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        metrics: dict[str, Any] = {
            task: probe(
                encoder, self.load(where, config.root), protocol=self.setup.protocol, size=config.size,
                seed=config.seed, bf16=config.precision == "bf16", device=device, workers=self.workers or 0,
            )
            for task, where in self.setup.tasks().items()
        }  # fmt: skip
        metrics |= {key: trained[key] for key in ("loss", "knn_top1", "images_per_second")}
        return {
            "config": config.plain(),
            "metrics": metrics,
            "seconds": round(time.perf_counter() - began, 1),
            "device": torch.cuda.get_device_name() if device == "cuda" else f"{os.cpu_count()} CPU cores",
            "versions": {"python": platform.python_version()}
            | {name: version(name) for name in ("randfield", "torch", "torchvision", "lightning", "lightly", "timm")},
            "commit": _commit(),
        }

    def _pretrained(self, config: Config, folder: Path, progress: Callable[[Progress], None]) -> dict[str, Any]:
        if self.devices == 1:
            return pretrain(config, folder, devices=1, workers=self.workers, progress=progress)
        # For every further device Lightning starts the command that it runs in once more: it gets one of its own.
        wanted = folder / "wanted.json"
        write_whole(wanted, json.dumps(config.plain()))
        command = [sys.executable, "-m", "randfield", "pretrain", "--config", str(wanted), "--out", str(folder)]
        command += ["--json", "--devices", str(self.devices)]
        command += [] if self.workers is None else ["--workers", str(self.workers)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            raise StudyError(f"pretraining on {self.devices} devices ended with status {done.returncode}")
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return result


class _TrialError(Exception):
    """A trial that cannot be done here; the others can."""


def _wanted(table: Table, rows: Iterable[str] | None, seeds: int) -> list[Key]:
    names = [row.name for row in table.rows]
    chosen = list(rows or names)
    unknown = [name for name in chosen if name not in names]
    if unknown:
        raise ValueError(f"{table.name} has no row {unknown[0]!r}; its rows are {', '.join(names)}")
    return [(name, seed) for seed in range(seeds) for name in names if name in chosen]


def _study_of(setup: Setup, storage: RDBStorage) -> optuna.Study:
    return open_study(
        storage,
        setup.name,
        setup.plain(),
        advice="Give the same options again, or choose another --out or --storage",
        direction="maximize",
    )


def _same(there: dict[str, Any], config: Config) -> bool:
    here = config.plain()
    where = ("root",) if config.local != "none" else ("root", "gamma", "alpha", "p")  # which then mean nothing
    return all(there[key] == json.loads(json.dumps(here[key])) for key in here if key not in where)


def _commit() -> str | None:
    """The commit of the code that runs, where it is run from a clone."""
    here = Path(__file__).parent
    try:
        told = subprocess.run(["git", "-C", here, "ls-files", "--error-unmatch", __file__], capture_output=True)
        if told.returncode:  # installed beside somebody else's code
            return None
        done = subprocess.run(["git", "-C", here, "rev-parse", "HEAD"], capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() or None


# ------------------------------------------------------------------------------------------------------------- results


def judged(setup: Setup, study: optuna.Study) -> list[dict[str, Any]]:
    """The results so far, a dict for each row and seed, in the order of the table."""
    order = {row.name: number for number, row in enumerate(setup.table.rows)}
    lines = [
        {"table": setup.table.name, "row": row, "seed": seed, "trial": trial.number} | trial.user_attrs["result"]
        for (row, seed), trial in trials_of(study).items()
        if trial.state == TrialState.COMPLETE
    ]
    return sorted(lines, key=lambda line: (line["seed"], order[line["row"]]))


def _write_results(setup: Setup, study: optuna.Study, out: Path) -> None:
    """One line for each trial of all tables in a folder; those of this table are what the study has."""
    file = out / "results.jsonl"
    lines = judged(setup, study)
    if file.exists():
        there = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        lines = [line for line in there if line["table"] != setup.table.name] + lines
    write_whole(file, "".join(json.dumps(line) + "\n" for line in lines))


def _note_what_is_wanted(setup: Setup, out: Path, wanted: list[Key]) -> None:
    """For the report, which says what is missing: everything that was ever asked for in this folder."""
    file = out / f"{setup.table.name}.json"
    before = json.loads(file.read_text(encoding="utf-8"))["wanted"] if file.exists() else []
    both = sorted({*map(tuple, before), *wanted}, key=lambda key: (key[1], key[0]))
    write_whole(file, json.dumps({"settings": setup.plain(), "wanted": both}, indent=1) + "\n")


# ------------------------------------------------------------------------------------------------------------- dry run


def planned(
    setup: Setup,
    out: Path,
    *,
    rows: Iterable[str] | None = None,
    seeds: int = 1,
    storage: str | None = None,
) -> list[Planned]:
    """What `reproduce` would do, in its order; nothing is written where there is no study yet."""
    wanted = _wanted(setup.table, rows, seeds)
    if storage is None and not (out / "study.db").exists():
        return [Planned(row, seed, "to do") for row, seed in wanted]
    with opened(storage, out) as database:
        trials = trials_of(_study_of(setup, database))
    names = {TrialState.COMPLETE: "done", TrialState.RUNNING: "running"}
    return [
        Planned(row, seed, names.get(trials[row, seed].state, "to do") if (row, seed) in trials else "to do")
        for row, seed in wanted
    ]


def estimate(setup: Setup, *, devices: int | None = None, steps: int = 4) -> float:
    """Seconds that one trial will take, from a few steps measured here.

    Steps of at most 64 images are timed, and passes without gradient; the rest is multiplication: images to learn from
    times epochs, and images to judge by as often as the protocol looks at them. Views that the training process makes
    are in the steps. What other processes do meanwhile, decoding, is not, and one device is taken to be as quick as
    another.
    """
    row = setup.table.rows[-1]
    config = setup.run(row, 0)
    load = cache(data.load)
    found = load(config.data, config.root)
    batch = min(64, config.batch_size, len(found.train))
    some = found.train.take(range(batch))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    feed = Feed(some, config.views(), batch_size=batch, seed=0, workers=0, crops=device == "cuda")
    module = Pretraining(build(config), config, feed).to(device).train()
    optimizer = module.configure_optimizers()["optimizer"]
    times, looks = [], []
    for step in range(steps):
        (read,) = feed.loader()
        began = time.perf_counter()
        if "images" in read:
            views = module.views(read["images"].to(device))
        elif "crops" in read:
            views = [module.rest_of_views(crop.to(device))[0] for crop in read["crops"]]
        else:
            views = read["views"]
        with torch.autocast(device, dtype=torch.bfloat16, enabled=config.precision == "bf16"):
            loss = module.method([view.to(device) for view in views])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        float(loss.detach())  # waits for the device
        middle = time.perf_counter()
        with torch.no_grad(), torch.autocast(device, dtype=torch.bfloat16, enabled=config.precision == "bf16"):
            float(module.method.encoder(views[0].to(device)).sum())
        if step:  # the first warms up
            times.append(middle - began)
            looks.append(time.perf_counter() - middle)
    learning, looking = statistics.median(times) / batch, statistics.median(looks) / batch
    devices = devices or max(1, torch.cuda.device_count())
    total = learning * len(found.train) * config.epochs / devices
    for where in setup.tasks().values():
        task = load(where, config.root)
        passes = 2 * 90 if setup.protocol == "sgd" else 1  # with the learning rate to be chosen, two trainings of 90
        total += looking * (passes * len(task.train) + (len(task.test) if task.test else 0))
    return total

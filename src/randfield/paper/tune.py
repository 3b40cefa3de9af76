"""Search for the settings of a local transform on data of one's own: "careful hyperparameter tuning must be performed".

A trial pretrains with one setting; its score is that of the nearest neighbours in the last epoch, or of the fast probe
on images held out of those to train on. Optuna's TPE proposes settings, the paper's best first, and stops those that
are behind the median of the others. Workers share a study as in `study`; what a worker that died had begun is gone on
with.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import optuna
import torch
from optuna.trial import FrozenTrial, TrialState

from randfield.learn import data
from randfield.learn.config import Config
from randfield.learn.data import Data, DataError
from randfield.learn.probe import probe
from randfield.learn.train import Progress, load_encoder, pretrain, write_whole
from randfield.names import parse_local
from randfield.paper.study import HEARTBEAT, Hooks, StudyError, as_stable, bury, open_study, opened, sign
from randfield.paper.tables import LOCALS

__all__ = ["Score", "tune"]

Score = Literal["knn", "fast"]

_BEST = {"local": "translate", "gamma_low": 7.0, "gamma_span": 3.0, "alpha": 1 / 3, "p": 0.8}  # tables 1 to 3


def tune(
    config: Config,
    out: Path,
    *,
    trials: int = 20,
    local: Sequence[str] = LOCALS,
    score: Score = "knn",
    storage: str | None = None,
    workers: int | None = None,
    heartbeat: int = HEARTBEAT,
    hooks: Hooks | None = None,
) -> dict[str, Any]:
    """Search until so many trials are finished; `config` is what all of them share.

    Returns the best setting and its score beside those of no field and of the paper's best, and how much of the
    differences each number explains (None where there are too few trials to say). `out` receives `best.json`, a
    config for `pretrain`, `trials.jsonl` and the runs.
    """
    for name in local:
        parse_local(name)  # says what is wrong
    if trials < 1:
        raise ValueError(f"trials must be at least 1, got {trials}")
    found = data.load(config.data, config.root)
    if found.train.labels is None or found.test is None or found.test.labels is None:
        raise DataError(f"{config.data} has no labels to score by; tune needs them, though pretraining does not")
    shared = {k: v for k, v in config.plain().items() if k not in ("local", "gamma", "alpha", "p", "root")}
    with as_stable(), opened(storage, out, heartbeat=heartbeat) as database:
        study = open_study(
            database,
            f"tune-{Path(config.data).name}",
            {"score": score, "local": list(local)} | shared,
            advice="Give the same options again, or choose another --out or --storage",
            direction="maximize",
            sampler=optuna.samplers.TPESampler(seed=config.seed, multivariate=True, constant_liar=True),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=config.epochs // 4),
        )
        search = _Search(config, out, list(local), score, found, workers, hooks or Hooks())
        search.until(trials, study, heartbeat)
        return _told(study, config, out)


class _Search:
    """One process that tries settings."""

    def __init__(
        self, config: Config, out: Path, local: list[str], score: Score, found: Data, workers: int | None, hooks: Hooks
    ) -> None:
        self.config, self.out, self.local, self.score = config, out, local, score
        self.found, self.workers, self.hooks = found, workers, hooks

    def until(self, trials: int, study: optuna.Study, heartbeat: int) -> None:
        if "baseline" not in study.user_attrs:
            self.hooks.counted(0, trials)
            without = Config.read(_watched(self.config) | {"local": "none"})
            study.set_user_attr("baseline", self.scored("baseline", without))
        if "translate" in self.local:
            study.enqueue_trial(_asked(_BEST, self.local), user_attrs={"paper": True}, skip_if_exists=True)
        while True:
            bury(study, heartbeat)
            _go_on_with_what_was_begun(study)
            finished = [trial for trial in study.get_trials(deepcopy=False) if _finished(trial)]
            running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
            self.hooks.counted(min(len(finished), trials), trials)
            _write_trials(study, self.out)
            if len(finished) >= trials:
                return
            if len(finished) + len(running) < trials:
                study.optimize(self._objective, n_trials=1, catch=(_TrialError,))
            else:
                self.hooks.waits(len(running))
                time.sleep(min(heartbeat, 5))

    def _objective(self, trial: optuna.Trial) -> float:
        sign(trial)
        config = _config(self.config, _suggested(trial, self.local))

        def behind(made: Progress) -> bool:
            assert made.knn_top1 is not None
            trial.report(made.knn_top1, made.epoch)
            return trial.should_prune()

        try:
            reached = self.scored(f"trial-{trial.user_attrs.get('goes_on', trial.number)}", config, behind)
        except Exception as error:
            trial.set_user_attr("error", str(error) or type(error).__name__)
            raise _TrialError from error
        if reached is None:
            raise optuna.TrialPruned
        return reached

    def scored(self, name: str, config: Config, stop: Callable[[Progress], bool] | None = None) -> float | None:
        """The score of a config, None if it was stopped."""
        folder = self.out / "runs" / name
        self.hooks.at(name, Progress(0, config.epochs, 0, 1, float("nan"), 0.0, None))
        result = pretrain(
            config, folder, devices=1, workers=self.workers, progress=lambda made: self.hooks.at(name, made), stop=stop
        )
        if result["epochs"] < config.epochs:
            return None
        if self.score == "knn":
            return float(result["knn_top1"])
        self.hooks.at(name, None)
        judged = probe(
            load_encoder(folder)[0], self.found, size=config.size, seed=config.seed, bf16=config.precision == "bf16",
            device="cuda" if torch.cuda.is_available() else "cpu", workers=self.workers or 0,
        )  # fmt: skip
        return float(judged["held_out_top1"])  # not of the images to judge by, which choose nothing


class _TrialError(Exception):
    """A trial that cannot be done; the others can."""


def _watched(config: Config) -> dict[str, Any]:
    return config.plain() | {"knn_every": 1}  # whether to stop is asked after every epoch


def _suggested(trial: optuna.Trial, local: Sequence[str]) -> dict[str, Any]:
    asked = {"local": trial.suggest_categorical("local", local) if len(local) > 1 else local[0]}
    return asked | {
        "gamma_low": trial.suggest_float(
            "gamma_low", 3, 10, step=0.5
        ),  # below 3 nothing is recognised, says section 4.2,
        "gamma_span": trial.suggest_float("gamma_span", 0, 5, step=0.5),  # and above 10 hardly anything changes
        "alpha": trial.suggest_float("alpha", 0.05, 1, log=True),
        "p": trial.suggest_float("p", 0.2, 1, step=0.1),
    }


def _asked(setting: dict[str, Any], local: Sequence[str]) -> dict[str, Any]:
    """As parameters of a trial: where there is one transform, there is nothing to choose."""
    return {name: value for name, value in setting.items() if name != "local" or len(local) > 1}


def _config(config: Config, setting: dict[str, Any]) -> Config:
    low = setting["gamma_low"]
    changed = {
        "local": setting["local"],
        "gamma": (low, low + setting["gamma_span"]),
        "alpha": (0.0, float(f"{setting['alpha']:.3g}")),
        "p": round(setting["p"], 3),
    }
    return Config.read(_watched(config) | changed)


def _finished(trial: FrozenTrial) -> bool:
    return trial.state in (TrialState.COMPLETE, TrialState.PRUNED) or "error" in trial.user_attrs


def _go_on_with_what_was_begun(study: optuna.Study) -> None:
    """Ask again for trials that failed without a fault of theirs: their runs are taken up where they were."""
    trials = study.get_trials(deepcopy=False)
    taken_up = {trial.user_attrs.get("after") for trial in trials}
    for trial in trials:
        lost = (
            trial.state == TrialState.FAIL and "error" not in trial.user_attrs and {"alpha", "p"} <= set(trial.params)
        )
        if lost and trial.number not in taken_up:
            begun = {key: value for key, value in trial.user_attrs.items() if key == "paper"}
            begun |= {"after": trial.number, "goes_on": trial.user_attrs.get("goes_on", trial.number)}
            study.enqueue_trial(trial.params, user_attrs=begun)


def _write_trials(study: optuna.Study, out: Path) -> None:
    lines = [
        {"trial": trial.number, "state": trial.state.name.lower(), "score": trial.value, "setting": trial.params}
        | {key: trial.user_attrs[key] for key in ("error",) if key in trial.user_attrs}
        for trial in study.get_trials(deepcopy=False)
        if _finished(trial)
    ]
    write_whole(out / "trials.jsonl", "".join(json.dumps(line) + "\n" for line in lines))


def _told(study: optuna.Study, config: Config, out: Path) -> dict[str, Any]:
    complete = [t for t in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)) if t.value is not None]
    if not complete:
        errors = {t.user_attrs["error"] for t in study.get_trials(deepcopy=False) if "error" in t.user_attrs}
        raise StudyError(f"no trial came to an end: {'; '.join(sorted(errors)) or 'all were stopped early'}")
    best = max(complete, key=lambda trial: trial.value or 0.0)
    local = study.user_attrs["settings"]["local"]
    chosen = _config(config, {"local": local[0]} | best.params)
    chosen = Config.read(chosen.plain() | {"knn_every": config.knn_every})
    write_whole(out / "best.json", json.dumps(chosen.plain(), indent=1) + "\n")
    paper = [trial.value for trial in complete if trial.user_attrs.get("paper")]
    return {
        "config": str(out / "best.json"),
        "setting": {key: chosen.plain()[key] for key in ("local", "gamma", "alpha", "p")},
        "score": best.value,
        "baseline": study.user_attrs["baseline"],
        "paper": paper[0] if paper else None,
        "trials": len([t for t in study.get_trials(deepcopy=False) if _finished(t)]),
        "pruned": len(study.get_trials(deepcopy=False, states=(TrialState.PRUNED,))),
        "importances": _importances(study, len(complete)),
    }


def _importances(study: optuna.Study, complete: int) -> dict[str, float] | None:
    if complete < 4:  # of fewer anything can be said
        return None
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return {name: round(share, 3) for name, share in found.items()}

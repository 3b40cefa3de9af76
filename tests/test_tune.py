"""The tuner: what it proposes, stops, leaves behind and goes on with."""

import json

import optuna
import pytest
from optuna.trial import TrialState

from randfield.learn.config import Config
from randfield.learn.data import Data, DataError
from randfield.learn.train import RunError, pretrain
from randfield.paper.study import StudyError, opened
from randfield.paper.tune import tune

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:lightning"),  # theirs, and so are those of the libraries
    pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorboard"),  # it imports
    pytest.mark.filterwarnings("ignore::FutureWarning:lightning"),
]


def small(**changed):
    tiny = {"size": 16, "epochs": 2, "warmup_epochs": 0.5, "batch_size": 40, "hidden_dim": 32, "output_dim": 16}
    return Config.of("demo", **(tiny | {"precision": "fp32"} | changed))


@pytest.fixture
def scores(monkeypatch):
    """Runs that are not made: the score is a function of the setting, and weak ones are behind in every epoch."""
    begun = []

    def scored(config, out, *, stop=None, **options):
        begun.append((out.name, config))
        value = 0.5 - abs(config.alpha[1] - 0.2) + 0.1 * (config.local == "shear")
        for epoch in range(1, config.epochs + 1):
            made = type("Made", (), {"epoch": epoch, "knn_top1": value})()
            if stop and epoch < config.epochs and stop(made):
                return {"epochs": epoch, "knn_top1": value}
        return {"epochs": config.epochs, "knn_top1": value}

    monkeypatch.setattr("randfield.paper.tune.pretrain", scored)
    return begun


def test_real_runs_lead_to_a_config_that_pretrain_takes(few, tmp_path):
    found = tune(small(), tmp_path, trials=3, local=["translate", "shear"], score="fast")
    assert found["trials"] == 3
    assert found["importances"] is None  # of three trials nothing can be said
    best = Config.load(tmp_path / "best.json")
    assert (best.local, list(best.gamma), list(best.alpha), best.p) == tuple(found["setting"].values())
    assert best.knn_every == small().knn_every
    assert pretrain(best, tmp_path / "best")["epochs"] == 2
    assert 0 < found["baseline"] <= 1
    lines = [json.loads(line) for line in (tmp_path / "trials.jsonl").read_text().splitlines()]
    assert max(line["score"] for line in lines if line["score"]) == found["score"]
    assert lines[0]["setting"] == {"local": "translate", "gamma_low": 7, "gamma_span": 3, "alpha": 1 / 3, "p": 0.8}


def test_it_finds_what_is_good_stops_what_is_not_and_says_what_mattered(few, scores, tmp_path):
    found = tune(small(epochs=8), tmp_path, trials=40, local=["translate", "shear", "rotate"])
    assert found["trials"] == 40
    assert found["setting"]["local"] == "shear"
    assert abs(found["setting"]["alpha"][1] - 0.2) < 0.05
    assert found["paper"] == pytest.approx(0.5 - (1 / 3 - 0.2), abs=1e-3)
    assert found["score"] > found["paper"]
    assert found["pruned"] >= 5
    assert sum(found["importances"].values()) == pytest.approx(1, abs=0.01)
    assert max(found["importances"], key=found["importances"].get) == "alpha"
    assert scores[0][0] == "baseline"
    assert scores[0][1].local == "none"
    assert {name for name, _ in scores[1:]} == {f"trial-{number}" for number in range(40)}


def test_one_transform_is_not_chosen_among(few, scores, tmp_path):
    found = tune(small(), tmp_path, trials=5, local=["rotate"])
    assert found["setting"]["local"] == "rotate"
    assert found["paper"] is None
    assert "local" not in found["importances"]


def test_stopped_it_goes_on_with_the_trial_that_was_begun(few, scores, tmp_path, monkeypatch):
    tune(small(), tmp_path, trials=2, local=["translate"])

    def interrupted(config, out, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("randfield.paper.tune.pretrain", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tune(small(), tmp_path, trials=4, local=["translate"])
    with opened(None, tmp_path) as database:
        study = optuna.load_study(study_name="tune-demo", storage=database)
        lost = study.get_trials()[2]
        assert lost.state == TrialState.FAIL
        tune(small(), tmp_path, trials=4, local=["translate"])
        again = study.get_trials()[3]
        assert again.state == TrialState.COMPLETE
        assert again.params == lost.params
        assert scores[3][0] == "trial-2"
        assert len(study.get_trials()) == 5


def test_a_trial_that_fails_counts_and_is_told(few, tmp_path, monkeypatch):
    def failing(config, out, **options):
        if config.local != "none":
            raise RunError("the loss is nan")
        return {"epochs": config.epochs, "knn_top1": 0.1}

    monkeypatch.setattr("randfield.paper.tune.pretrain", failing)
    with pytest.raises(StudyError, match="no trial came to an end: the loss is nan"):
        tune(small(), tmp_path, trials=2, local=["translate"])
    assert [json.loads(line)["error"] for line in (tmp_path / "trials.jsonl").read_text().splitlines()] == [
        "the loss is nan"
    ] * 2


def test_another_search_in_the_same_folder(few, scores, tmp_path):
    tune(small(), tmp_path, trials=1)
    with pytest.raises(StudyError, match="tune-demo was begun with other settings: epochs was 2 and is now 3"):
        tune(small(epochs=3), tmp_path, trials=1)


def test_what_cannot_be_searched(few, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="unknown transform 'turn'"):
        tune(small(), tmp_path, local=["turn"])
    with pytest.raises(ValueError, match="trials must be at least 1"):
        tune(small(), tmp_path, trials=0)
    monkeypatch.setattr("randfield.learn.data.load", lambda name, root="data": Data(name, few.train, None))
    with pytest.raises(DataError, match="demo has no labels to score by"):
        tune(small(), tmp_path)

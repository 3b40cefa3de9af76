"""The engine: every row and seed once, whoever is stopped, and when; errors that say what to do."""

import json
import os
import signal
import subprocess
import sys
import time

import optuna
import pytest
from optuna.trial import TrialState

from randfield.learn import data
from randfield.learn.data import Data, load
from randfield.learn.train import RunError, pretrain
from randfield.paper import study
from randfield.paper.study import Setup, StudyError, estimate, open_study, opened, planned, reproduce, trials_of
from tests.postgres import server
from tests.test_train import environment

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:lightning"),  # theirs, and so are those of the libraries
    pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorboard"),  # it imports
    pytest.mark.filterwarnings("ignore::FutureWarning:lightning"),
]
SMALL = {
    "size": 16, "epochs": 1, "warmup_epochs": 0.5, "batch_size": 40, "hidden_dim": 32, "output_dim": 16,
    "precision": "fp32",
}  # fmt: skip


def small(table="table1", **changed):
    return Setup.of(table, "demo", **(SMALL | changed))


def untimed(results):
    """What does not depend on when and how often a trial was stopped."""
    told = [json.loads(json.dumps(line)) for line in results]
    for line in told:
        line["metrics"].pop("images_per_second")
    return {(line["row"], line["seed"]): (line["config"], line["metrics"]) for line in told}


@pytest.fixture
def counted(monkeypatch):
    """The runs that were begun in this process, by local transform and seed."""
    begun = []

    def counting(config, out, **options):
        begun.append((config.local, config.seed))
        return pretrain(config, out, **options)

    monkeypatch.setattr("randfield.paper.study.pretrain", counting)
    return begun


# -------------------------------------------------------------------------------------------------------------- a table


def test_a_table_is_worked_off_once(few, counted, tmp_path):
    told = []
    hooks = study.Hooks(counted=lambda done, of: told.append((done, of)))
    first = reproduce(small(), tmp_path, rows=["shear", "baseline"], hooks=hooks)
    assert counted == [("none", 0), ("shear", 0)]
    assert told == [(0, 2), (1, 2), (2, 2)]
    assert not first["errors"]
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert lines == first["results"]
    for line in lines:
        assert line["config"]["local"] == {"shear": "shear", "baseline": "none"}[line["row"]]
        assert set(line["metrics"]) == {"in", "ood", "loss", "knn_top1", "images_per_second"}
        assert 0 < line["metrics"]["in"]["top1"] <= line["metrics"]["in"]["top5"] <= 1
        assert {"torch", "lightning", "randfield", "python"} <= set(line["versions"])
        assert line["seconds"] > 0
        assert line["device"]
        assert line["commit"] is None or len(line["commit"]) == 40
    again = reproduce(small(), tmp_path, rows=["shear", "baseline"])
    assert again == first
    assert len(counted) == 2
    reproduce(small(), tmp_path, rows=["baseline"], seeds=2)
    assert counted[2:] == [("none", 1)]
    assert {(trial.row, trial.seed): trial.state for trial in planned(small(), tmp_path, seeds=2)} == {
        (row.name, seed): "done" if (row.name, seed) in {("baseline", 0), ("baseline", 1), ("shear", 0)} else "to do"
        for row in small().table.rows
        for seed in (0, 1)
    }


def test_what_another_table_has_done_is_not_done_again(few, counted, tmp_path):
    done = reproduce(small(), tmp_path, rows=["baseline", "translate"])
    assert len(counted) == 2
    shared = reproduce(small("table3"), tmp_path, rows=["p0.0", "p0.8"])
    assert len(counted) == 2
    assert [line["metrics"] for line in shared["results"]] == [line["metrics"] for line in done["results"]]
    reproduce(small("table2"), tmp_path, rows=["gamma3-7-alpha0.33"])
    assert len(counted) == 3
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert [(line["table"], line["row"]) for line in lines] == [
        ("table1", "baseline"), ("table1", "translate"), ("table3", "p0.0"), ("table3", "p0.8"),
        ("table2", "gamma3-7-alpha0.33"),
    ]  # fmt: skip


def test_one_row_that_fails_is_told_and_the_others_are_done(few, tmp_path, monkeypatch):
    def failing(config, out, **options):
        if config.local == "scale":
            raise RunError("the loss is nan")
        return pretrain(config, out, **options)

    monkeypatch.setattr("randfield.paper.study.pretrain", failing)
    made = reproduce(small(), tmp_path, rows=["baseline", "scale", "shear"])
    assert made["errors"] == {"scale, seed 0": "the loss is nan"}
    assert [line["row"] for line in made["results"]] == ["baseline", "shear"]
    monkeypatch.setattr("randfield.paper.study.pretrain", pretrain)
    made = reproduce(small(), tmp_path, rows=["baseline", "scale", "shear"])
    assert not made["errors"]
    assert [line["row"] for line in made["results"]] == ["baseline", "scale", "shear"]


def test_ctrl_c_leaves_the_row_to_the_next(few, tmp_path, monkeypatch):
    def interrupted(config, out, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("randfield.paper.study.pretrain", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reproduce(small(), tmp_path, rows=["baseline"])
    monkeypatch.setattr("randfield.paper.study.pretrain", pretrain)
    assert len(reproduce(small(), tmp_path, rows=["baseline"])["results"]) == 1


def test_only_what_was_asked_for_counts(few, counted, tmp_path):
    """Two workers may ask for the same row at once; and one may take a trial that nobody asked for."""
    with opened(None, tmp_path) as database:
        twice = open_study(database, "table1-demo", small().plain(), advice="", direction="maximize")
        for _ in range(2):
            twice.enqueue_trial({}, user_attrs={"row": "baseline", "seed": 0})
        twice.enqueue_trial({})
        made = reproduce(small(), tmp_path, rows=["baseline", "shear"])
        states = [trial.state for trial in twice.get_trials()]
    assert counted == [("none", 0), ("shear", 0)]
    assert [(line["row"], line["trial"]) for line in made["results"]] == [("baseline", 0), ("shear", 3)]
    assert states == [TrialState.COMPLETE, TrialState.PRUNED, TrialState.PRUNED, TrialState.COMPLETE]


def test_the_settings_of_a_study_stay(few, tmp_path):
    reproduce(small(), tmp_path, rows=["baseline"])
    with pytest.raises(StudyError, match=r"epochs was 1 and is now 2; .*protocol was 'fast' and is now 'knn'"):
        reproduce(small(epochs=2, protocol="knn"), tmp_path, rows=["baseline"])
    reproduce(small(root="elsewhere"), tmp_path, rows=["baseline"])  # where files are differs between machines


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Setup.of("table1", "small"), "small has no data of its own: .* --data .* --ood"),
        (lambda: reproduce(small(), None, rows=["sheer"]), "table1 has no row 'sheer'; its rows are baseline, color"),
        (lambda: small(encoder="resnet18_small_w16", epochs=0), "epochs must be at least 1"),
    ],
)
def test_wrong_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://joe:secret@127.0.0.1:1/none", r"postgresql://joe:\*\*\*@127.0.0.1:1/none does not answer: "),
        ("joe:secret@host", r"joe:\*\*\*@host is not the address of a database; expected one such as postgresql"),
        ("nosuch://joe:secret@host/name", r"no driver for the storage nosuch://joe:\*\*\*@host/name"),
    ],
)
def test_a_storage_that_does_not_answer_is_named_without_its_password(url, message, tmp_path):
    with pytest.raises(StudyError, match=message) as raised, opened(url, tmp_path):
        pass
    assert "secret" not in str(raised.value)


def test_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StudyError, match=r"cannot write to .*file/out: Not a directory; choose another --out"):
        reproduce(small(), tmp_path / "file" / "out", rows=["baseline"])


def test_presets_have_data_of_their_own():
    assert Setup.of("table1", "demo").tasks() == {"in": "demo", "ood": "demo-ood"}
    paper = Setup.of("table1", "paper")
    assert (paper.tasks(), paper.protocol) == ({"in": "imagenet", "ood": "inat2018"}, "sgd")
    assert Setup.of("table1", "small", data="photos").tasks() == {"in": "photos"}


# ------------------------------------------------------------------------------------------------------------- the dead


@pytest.fixture
def running(tmp_path):
    """A study with a trial that somebody has."""
    with opened(None, tmp_path, heartbeat=1) as database:
        made = open_study(database, "table1-demo", small().plain(), advice="", direction="maximize")
        made.enqueue_trial({}, user_attrs={"row": "baseline", "seed": 0})
        with pytest.warns(UserWarning, match="Heartbeat"):  # which we let beat by hand
            trial = made.ask()
        yield made, trial


def state(trial):
    return trial[0].get_trials()[0].state


def test_a_trial_of_a_process_that_is_gone_is_free_at_once(running):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    study.sign(running[1])
    study.bury(running[0], heartbeat=1)
    assert state(running) == TrialState.RUNNING  # we are alive
    running[1].set_user_attr("worker", running[1].user_attrs["worker"] | {"process": gone.pid})
    study.bury(running[0], heartbeat=1)
    assert state(running) == TrialState.FAIL
    assert not trials_of(running[0])


def test_a_trial_of_another_machine_is_free_when_its_heart_is_still(running):
    running[1].set_user_attr("worker", {"machine": "elsewhere", "process": os.getpid()})
    running[0]._storage.record_heartbeat(running[1]._trial_id)
    study.bury(running[0], heartbeat=1)
    assert state(running) == TrialState.RUNNING
    time.sleep(6.5)
    study.bury(running[0], heartbeat=1)
    assert state(running) == TrialState.FAIL


def test_a_trial_whose_worker_never_said_who_it_was_is_free_after_a_while(running):
    study.bury(running[0], heartbeat=1)
    assert state(running) == TrialState.RUNNING
    time.sleep(5.5)
    study.bury(running[0], heartbeat=1)
    assert state(running) == TrialState.FAIL


# --------------------------------------------------------------------------------------------------- in other processes


def command(out, fruits, *options):
    return [
        sys.executable, "-m", "randfield", "reproduce", "table1", "--preset", "small", "--data", fruits, "--size", "16",
        "--epochs", "4", "--batch-size", "40", "--out", str(out), "--json", *options,
    ]  # fmt: skip


def started(*arguments):
    return subprocess.Popen(
        command(*arguments), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(process, status=0):
    told, error = process.communicate(timeout=300)
    assert process.returncode == status, error[-3000:]
    return json.loads(told.splitlines()[-1])


def wait_for(condition, process):
    for _ in range(2400):
        if condition():
            return
        assert process.poll() is None, process.communicate()[1][-3000:]
        time.sleep(0.05)
    raise AssertionError("waited for too long")


def results(out):
    return [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]


def test_killed_twice_it_ends_at_the_same_numbers(tmp_path, fruits):
    rows = ["--rows", "baseline", "rotate"]
    whole = ended(started(tmp_path / "whole", fruits, *rows))
    assert whole["missing"] == []
    out = tmp_path / "killed"
    for run in ("baseline-seed0", "rotate-seed0"):
        process = started(out, fruits, *rows)
        log = out / "runs" / run / "log.jsonl"
        wait_for(lambda log=log: log.exists() and log.read_text().count("\n") >= 1, process)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    again = ended(started(out, fruits, *rows))
    assert again["trials"] == 2
    assert untimed(results(out)) == untimed(results(tmp_path / "whole"))


def test_several_workers_share_a_database_and_one_of_them_is_killed(tmp_path, fruits):
    """On PostgreSQL: every row once, nothing lost."""
    with server() as url:
        outs = [tmp_path / "one", tmp_path / "two"]
        workers = [started(out, fruits, "--storage", url) for out in outs]
        wait_for(lambda: any((outs[0] / "runs").glob("*/config.json")), workers[0])
        workers[0].send_signal(signal.SIGKILL)
        workers[0].communicate()
        told = ended(workers[1])
        assert told["trials"] == 6
        with opened(url, tmp_path) as database:
            trials = optuna.load_study(study_name="table1-small", storage=database).get_trials()
        complete = [trial.user_attrs["row"] for trial in trials if trial.state == TrialState.COMPLETE]
        assert sorted(complete) == sorted(row.name for row in small().table.rows)
        assert sum(trial.state == TrialState.FAIL for trial in trials) == 1  # the one that was killed
        assert not any(trial.state in (TrialState.RUNNING, TrialState.WAITING) for trial in trials)
        third = ended(started(tmp_path / "three", fruits, "--storage", url))  # a machine that comes late
        assert (third["trials"], third["missing"]) == (6, [])
        assert untimed(results(tmp_path / "three")) == untimed(results(outs[1]))
        assert not (tmp_path / "three" / "runs").exists()
        assert "let-me-in" not in (tmp_path / "three" / "table1.json").read_text()


@pytest.mark.slow
def test_a_trial_on_several_devices_has_a_command_of_its_own(tmp_path, fruits):
    made = ended(started(tmp_path / "both", fruits, "--rows", "baseline", "--devices", "2"))
    assert made["trials"] == 1
    alone = ended(started(tmp_path / "alone", fruits, "--rows", "baseline"))
    assert alone["trials"] == 1


# ------------------------------------------------------------------------------------------------------------ estimates


def test_the_estimate_grows_with_the_work(monkeypatch):
    whole = load("demo")
    less = Data("demo", whole.train.take(range(0, 1600, 20)), whole.test.take(range(0, 400, 10)))
    monkeypatch.setattr(data, "load", lambda name, root="data": less)
    few_epochs, many = estimate(small(epochs=2)), estimate(small(epochs=400))
    assert 0 < few_epochs < many / 10

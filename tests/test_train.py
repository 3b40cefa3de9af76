"""Runs: the same numbers however they are interrupted or shared, and errors before the work rather than after it."""

import errno
import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from randfield.learn import data, train
from randfield.learn.config import METHODS, PRESETS, Config
from randfield.learn.data import Data, load
from randfield.learn.probe import features, fingerprint
from randfield.learn.train import RunError, build, export, load_encoder, pretrain, untrained

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:lightning"),  # theirs, and so are those of the libraries
    pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorboard"),  # it imports
    pytest.mark.filterwarnings("ignore::FutureWarning:lightning"),
]
TINY = {
    "data": "demo", "encoder": "resnet18_small_w16", "size": 16, "crop_scale": (0.2, 1.0), "blur": False, "epochs": 3,
    "warmup_epochs": 1, "batch_size": 40, "optimizer": "adamw", "learning_rate": 1e-3, "hidden_dim": 32,
    "output_dim": 16, "precision": "fp32", "local": "translate",
}  # fmt: skip


def tiny(**changed):
    return Config.read(TINY | changed)


@pytest.fixture
def few(monkeypatch):
    """The demo with 80 images to learn from and 40 to judge by."""
    whole = load("demo")
    less = Data("demo", whole.train.take(range(0, 1600, 20)), whole.test.take(range(0, 400, 10)))
    monkeypatch.setattr(data, "load", lambda name, root="data": less)
    return less


def lines(run):
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def weights(run):
    return torch.load(run / "last.ckpt", weights_only=True)["state_dict"]


# -------------------------------------------------------------------------------------------------------------- configs


def test_a_config_is_plain_data_and_back():
    config = tiny(gamma=(3.0, 9.0))
    assert Config.read(json.loads(json.dumps(config.plain()))) == config
    for preset in PRESETS:
        assert Config.of(preset, local="rotate+shear").views().local is not None
    assert Config.of("paper").learning_rate == pytest.approx(0.3 * Config.of("paper").batch_size / 256)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"epoch": 3}, "unknown keys in the config: epoch"),
        ({"method": "moco"}, "method must be one of simclr"),
        ({"epochs": 0, "warmup_epochs": 0}, "epochs must be at least 1"),
        ({"temperature": 0.0}, "temperature must be a number above 0"),
        ({"warmup_epochs": 4}, r"warmup_epochs must be in \[0, epochs=3\]"),
        ({"accumulate": 3}, "accumulate must divide batch_size=40"),
        ({"local": "turn"}, "unknown transform 'turn'"),
        ({"gamma": (9.0, 7.0)}, "gamma"),
        ({"p": 2.0}, "p is a probability"),
    ],
)
def test_what_is_wrong_with_a_config_is_told(changed, message):
    with pytest.raises(ValueError, match=message):
        tiny(**changed)


def test_an_unknown_encoder_names_some_that_there_are():
    with pytest.raises(ValueError, match=r"got 'resnet19'; there are .*resnet"):
        build(tiny(encoder="resnet19"))


# ----------------------------------------------------------------------------------------------------------------- runs


def test_a_run_learns_leaves_its_files_and_is_done(few, tmp_path):
    heard: list[train.Progress] = []
    result = pretrain(tiny(epochs=6), tmp_path / "run", progress=heard.append)
    assert result["epochs"] == 6 and result["knn_top1"] > 0.1  # noqa: PT018  # chance is 1 in 40
    assert 0 < result["pipeline_efficiency"] < 3
    log = lines(tmp_path / "run")
    assert [line["epoch"] for line in log] == [1, 2, 3, 4, 5, 6]
    assert log[-1]["loss"] < log[0]["loss"]
    assert log[-1]["loss"] == result["loss"]
    assert heard[-1].epoch == 6
    assert list((tmp_path / "run" / "tensorboard").iterdir())
    assert Config.load(tmp_path / "run" / "config.json") == tiny(epochs=6)
    before = (tmp_path / "run" / "last.ckpt").stat().st_mtime_ns
    assert pretrain(tiny(epochs=6), tmp_path / "run") == result  # done is done
    assert (tmp_path / "run" / "last.ckpt").stat().st_mtime_ns == before
    assert not [file for file in (tmp_path / "run").iterdir() if file.name.endswith(".tmp")]


def test_a_saved_config_reruns_exactly(few, tmp_path):
    pretrain(tiny(epochs=1), tmp_path / "one")
    pretrain(Config.load(tmp_path / "one" / "config.json"), tmp_path / "two")
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    assert all(torch.equal(one[key], two[key]) for key in one)


def test_a_stopped_run_goes_on_to_the_same_end(few, tmp_path):
    whole = pretrain(tiny(), tmp_path / "whole")
    halfway = pretrain(tiny(), tmp_path / "parts", stop=lambda made: made.epoch == 1)
    assert halfway["epochs"] == 1
    with (tmp_path / "parts" / "log.jsonl").open("a") as log:
        log.write('{"epoch": 2, "half a li')  # killed while it wrote
    again = pretrain(tiny(), tmp_path / "parts")
    assert again["loss"] == whole["loss"] and again["knn_top1"] == whole["knn_top1"]  # noqa: PT018  # one claim
    a, b = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    assert all(torch.equal(a[key], b[key]) for key in a)
    assert [line["loss"] for line in lines(tmp_path / "whole")] == [line["loss"] for line in lines(tmp_path / "parts")]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns(few, tmp_path, method):
    config = tiny(method=method, epochs=2, local="none", learning_rate=3e-3)
    result = pretrain(config, tmp_path / "run")
    assert result["loss"] == result["loss"]
    assert fingerprint(load_encoder(tmp_path / "run")[0]) != fingerprint(untrained(config))


def test_steps_in_parts(few, tmp_path):
    pretrain(tiny(epochs=1, accumulate=2), tmp_path / "run")
    assert lines(tmp_path / "run")[0]["step"] == 2


def test_a_folder_of_photos_is_streamed(tmp_path):
    import PIL.Image

    for index in range(12):
        values = torch.randint(0, 256, (20 + index, 31, 3), dtype=torch.uint8)
        PIL.Image.fromarray(values.numpy()).save(tmp_path / f"{index}.png")
    (tmp_path / "bad.png").write_bytes(b"")
    result = pretrain(tiny(data=str(tmp_path), epochs=2, batch_size=6), tmp_path / "run", workers=1)
    assert result["knn_top1"] is None
    assert result["unreadable"] == 1


# --------------------------------------------------------------------------------------------------------------- errors


def test_another_config_in_the_same_folder(few, tmp_path):
    pretrain(tiny(epochs=1), tmp_path / "run")
    with pytest.raises(RunError, match=r"epochs 1 and not 2, seed 0 and not 1; choose another --out"):
        pretrain(tiny(epochs=2, seed=1), tmp_path / "run")


def test_a_folder_that_cannot_be(few, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"cannot write .*config.json: Not a directory; make room, or choose another"):
        pretrain(tiny(), tmp_path / "file" / "run")


def test_a_full_disk_at_the_start(few, tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(RunError, match=r"no room for a checkpoint of 1[0-9] MiB in .*No space left on device"):
        pretrain(tiny(), tmp_path / "run")


def test_a_disk_that_fills_leaves_the_checkpoint_before_it_whole(few, tmp_path, monkeypatch):
    pretrain(tiny(), tmp_path / "run", stop=lambda made: made.epoch == 1)
    before = (tmp_path / "run" / "last.ckpt").read_bytes()
    save = torch.save

    def full(checkpoint, file):
        file.write(b"half of it")
        raise RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed")

    monkeypatch.setattr(train.torch, "save", full)  # type: ignore[attr-defined]  # it is torch itself
    with pytest.raises(RunError, match="the same command goes on"):
        pretrain(tiny(), tmp_path / "run")
    assert (tmp_path / "run" / "last.ckpt").read_bytes() == before
    monkeypatch.setattr(train.torch, "save", save)  # type: ignore[attr-defined]  # as above
    assert pretrain(tiny(), tmp_path / "run")["epochs"] == 3


def test_a_loss_that_explodes_is_told(few, tmp_path):
    with pytest.raises(RunError, match="the loss is nan after epoch 1; try a lower learning rate"):
        pretrain(tiny(optimizer="sgd", learning_rate=1e30), tmp_path / "run")


def test_what_is_no_run(tmp_path):
    with pytest.raises(RunError, match=r"is not a run: it has no config.json"):
        load_encoder(tmp_path)


# --------------------------------------------------------------------------------------------------------------- export


def test_timm_loads_what_is_exported(few, tmp_path):
    timm = pytest.importorskip("timm", reason="the extra `learn` brings it")
    pretrain(tiny(epochs=1), tmp_path / "run")
    told = export(tmp_path / "run", tmp_path / "encoder.safetensors")
    loaded = timm.create_model(told["encoder"], num_classes=0, checkpoint_path=str(tmp_path / "encoder.safetensors"))
    encoder, config = load_encoder(tmp_path / "run")
    assert fingerprint(loaded) == fingerprint(encoder)
    assert torch.equal(*(features(e, few.test, size=config.size) for e in (loaded, encoder)))


# ------------------------------------------------------------------------------------------------- in other processes

COMMAND = [sys.executable, "-m", "randfield", "pretrain", "--json", "--config"]


@pytest.fixture
def fruits(tmp_path):
    """A folder with 80 of the demo's images to learn from and 40 to judge by, for processes of their own."""
    for split, images in (("train", load("demo").train), ("val", load("demo").test)):
        assert images is not None
        assert images.labels is not None
        for index in range(0, len(images), 20 if split == "train" else 10):
            kind = tmp_path / "fruits" / split / f"{images.labels[index]:02}"
            kind.mkdir(parents=True, exist_ok=True)
            images[index][0].save(kind / f"{index}.png")
    return str(tmp_path / "fruits")


def command(tmp_path, name, config, *options):
    (tmp_path / f"{name}.json").write_text(json.dumps(config.plain()))
    return [*COMMAND, str(tmp_path / f"{name}.json"), "--out", str(tmp_path / name), *options]


def environment():
    return os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def done(arguments):
    run = subprocess.run(arguments, env=environment(), capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads(run.stdout.splitlines()[-1])


def until(file, lines, process):
    for _ in range(1200):
        if file.exists() and len(file.read_text().splitlines()) >= lines:
            return
        assert process.poll() is None, process.stderr.read()[-3000:]
        time.sleep(0.05)
    raise AssertionError(f"{file} did not come to {lines} lines")


def test_killed_at_any_moment_it_ends_at_the_same_numbers(tmp_path, fruits):
    config = tiny(epochs=6, data=fruits)
    whole = done(command(tmp_path, "whole", config))
    for epochs in (1, 3):
        process = subprocess.Popen(
            command(tmp_path, "killed", config), env=environment(), stderr=subprocess.PIPE, text=True
        )
        until(tmp_path / "killed" / "log.jsonl", epochs, process)
        time.sleep(0.05 * epochs)  # somewhere in the next epoch, or in the checkpoint
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert not (tmp_path / "killed" / "result.json").exists()
    again = done(command(tmp_path, "killed", config))
    for key in ("loss", "knn_top1", "epochs"):
        assert again[key] == whole[key]
    a, b = weights(tmp_path / "whole"), weights(tmp_path / "killed")
    assert all(torch.equal(a[key], b[key]) for key in a)


def test_interrupted_it_says_how_to_go_on(tmp_path, fruits):
    config = tiny(epochs=500, data=fruits)
    process = subprocess.Popen(
        command(tmp_path, "run", config), env=environment(), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    until(tmp_path / "run" / "log.jsonl", 1, process)
    process.send_signal(signal.SIGINT)
    told, error = process.communicate(timeout=60)
    assert process.returncode == 130, error[-3000:]
    assert not told
    assert "can be taken up again by the same command" in error
    assert "Traceback" not in error


def test_two_processes_are_one(tmp_path, fruits):
    """The same global batch: the same loss, and the same weights after five steps. Negatives come with gradient."""
    config = tiny(
        encoder="test_convnext", head_batch_norm=False, size=32, epochs=1, batch_size=16, optimizer="sgd",
        learning_rate=0.03, data=fruits,
    )  # fmt: skip
    alone = done(command(tmp_path, "alone", config))
    shared = done(command(tmp_path, "shared", config, "--devices", "2"))
    assert lines(tmp_path / "alone")[0]["step"] == lines(tmp_path / "shared")[0]["step"] == 5
    assert shared["loss"] == pytest.approx(alone["loss"], abs=1e-4)
    a, b = weights(tmp_path / "alone"), weights(tmp_path / "shared")
    start = build(config).state_dict()
    moved = max(float((a[f"method.{key}"] - value).abs().max()) for key, value in start.items())
    apart = max(float((a[key] - b[key]).abs().max()) for key in a)
    assert moved > 1e-2
    assert apart < 1e-4

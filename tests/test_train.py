"""Runs: the same numbers however they are interrupted or shared, and errors before the work rather than after it."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
import torch

from randfield.learn import train
from randfield.learn.config import METHODS, PRESETS, Config
from randfield.learn.data import DataError
from randfield.learn.feed import Feed
from randfield.learn.probe import features, fingerprint
from randfield.learn.train import RunError, build, export, load_encoder, pretrain, untrained
from randfield.views import SimCLRViews
from tests.test_cli import run

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
    assert Config.of("paper", epochs=100).warmup_epochs == 10
    assert Config.of("demo", epochs=1).warmup_epochs == 0.1  # a preset's warm-up gives way, a user's does not
    with pytest.raises(ValueError, match="warmup_epochs"):
        Config.of("demo", epochs=1, warmup_epochs=2)
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


@pytest.mark.slow
def test_making_views_leaves_the_encoder_its_speed(tmp_path):
    """At least 85 % of the bare training step on two cores, bf16, 32²; on a machine that does nothing else."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        config = Config.of("small", local="translate", epochs=4)
        shares = [pretrain(config, tmp_path / str(run))["pipeline_efficiency"] for run in range(3)]
    finally:
        torch.set_num_threads(threads)
    assert sorted(shares)[1] >= 0.85, shares


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns(few, tmp_path, method):
    config = tiny(method=method, epochs=2, local="none", learning_rate=3e-3)
    result = pretrain(config, tmp_path / "run")
    assert result["loss"] == result["loss"]
    assert fingerprint(load_encoder(tmp_path / "run")[0]) != fingerprint(untrained(config))


def test_the_log_has_neighbours_only_where_they_were_asked(few, tmp_path):
    pretrain(tiny(knn_every=2, warmup_epochs=0), tmp_path / "run")
    assert ["knn_top1" in line for line in lines(tmp_path / "run")] == [False, True, True]


def test_steps_in_parts(few, tmp_path):
    pretrain(tiny(epochs=1, accumulate=2), tmp_path / "run")
    assert lines(tmp_path / "run")[0]["step"] == 2


def test_a_run_that_was_killed_when_all_was_done_but_the_result(few, tmp_path):
    whole = pretrain(tiny(), tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    again = pretrain(tiny(), tmp_path / "run")
    assert {key for key in whole if whole[key] != again[key]} == {"pipeline_efficiency"}  # no step was left to time
    assert again["pipeline_efficiency"] is None


def test_a_folder_of_photos_is_streamed(tmp_path, caplog):
    import PIL.Image

    for index in range(12):
        values = torch.randint(0, 256, (20 + index, 31, 3), dtype=torch.uint8)
        PIL.Image.fromarray(values.numpy()).save(tmp_path / f"{index}.png")
    (tmp_path / "bad.png").write_bytes(b"")
    result = pretrain(tiny(data=str(tmp_path), epochs=2, batch_size=6), tmp_path / "run", workers=1)
    assert result["knn_top1"] is None
    assert result["unreadable"] == 1
    assert [record.getMessage() for record in caplog.records if "bad.png" in record.getMessage()] == [
        f"{tmp_path.name}: cannot read {tmp_path}/bad.png: not an image that Pillow can read; the next takes its place"
    ]


def test_workers_crop_and_the_rest_is_made_where_the_encoder_is(tmp_path, monkeypatch):
    """As on an accelerator."""
    import PIL.Image

    for index in range(12):
        values = torch.randint(0, 256, (20 + index, 31, 3), dtype=torch.uint8)
        PIL.Image.fromarray(values.numpy()).save(tmp_path / f"{index}.png")
    config = tiny(data=str(tmp_path), epochs=1, batch_size=6, warmup_epochs=0)
    seen, transform = [], SimCLRViews.transform

    def watched(self, *given):
        seen.append(given)
        return transform(self, *given)

    monkeypatch.setattr(SimCLRViews, "transform", watched)
    monkeypatch.setattr(train, "Feed", lambda *given, crops, **options: Feed(*given, crops=True, **options))
    cropped = pretrain(config, tmp_path / "cropped", workers=1)
    assert len(seen) == 4  # two views of two batches
    for images, params in seen:
        assert images.shape == (6, 3, 16, 16)
        assert images.dtype == torch.uint8
        crops = torch.as_tensor(params["views"][0]["crop"])
        assert (crops == torch.tensor([0, 0, 16, 16])).all()  # the whole of what was cropped
    assert len({int(images.sum()) for images, _ in seen}) == 4
    assert cropped["loss"] == pretrain(config, tmp_path / "again", workers=2)["loss"]


def test_photos_none_of_which_can_be_read(tmp_path):
    for index in range(4):
        (tmp_path / f"{index}.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"none of 100 images from .*0.png on can be read"):
        pretrain(tiny(data=str(tmp_path), batch_size=2), tmp_path / "run")
    sentence = "mine: none of 100 images can be read"
    wrapped = DataError(
        f"Caught DataError in worker 0.\nOriginal Traceback …\nrandfield.learn.data.DataError: {sentence}\n"
    )
    assert str(wrapped) == str(DataError(sentence)) == sentence


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
    with pytest.raises(RunError, match=r"no room for 2[0-9] MiB of checkpoints in .*No space left on device"):
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


def test_a_disk_that_fills_while_the_log_is_written(few, tmp_path, monkeypatch):
    def full(self, trainer, module):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(train._Watch, "on_train_epoch_end", full)
    with pytest.raises(RunError, match=r"No space left on device\. What was finished before is whole"):
        pretrain(tiny(), tmp_path / "run")


def test_more_devices_than_there_are(few, tmp_path, monkeypatch):
    with pytest.raises(RunError, match="devices=0 on 1 machines cannot be had"):
        pretrain(tiny(), tmp_path / "run", devices=0)


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


def test_an_export_that_cannot_be_written(few, tmp_path):
    pretrain(tiny(epochs=1), tmp_path / "run")
    with pytest.raises(RunError, match=r"cannot write .*encoder.safetensors: File exists; make room"):
        export(tmp_path / "run", tmp_path / "run" / "config.json" / "encoder.safetensors")
    assert not list((tmp_path / "run").glob(".*"))


# ------------------------------------------------------------------------------------------------------------- commands


def asked(capsys, *arguments):
    """The exit status of a command, its last line as JSON if it has one, and what it says on standard error."""
    status = run(*arguments)
    told = capsys.readouterr()
    return status, json.loads(told.out.splitlines()[-1]) if told.out else None, told.err


def test_commands_end_with_json_and_show_progress_elsewhere(few, tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps(tiny(epochs=2).plain()))
    options = ("--config", tmp_path / "config.json", "--out", tmp_path / "run", "--json")
    status, result, error = asked(capsys, "pretrain", *options)
    assert status == 0
    assert {"out", "epochs", "loss", "knn_top1", "images_per_second", "pipeline_efficiency"} <= set(result)
    assert result["out"] == str(tmp_path / "run")
    assert "epoch 2 of 2 · loss" in error
    assert "images/s" in error

    for protocol in ("fast", "knn"):
        status, result, error = asked(capsys, "probe", tmp_path / "run", "--protocol", protocol, "--json")
        assert status == 0
        assert {"top1", "top5", "n", "protocol", "data", "run"} <= set(result)
        assert (result["n"], result["protocol"]) == (40, protocol)
        assert "Images to judge by" in error
    status, untrained, _ = asked(capsys, "probe", tmp_path / "run", "--protocol", "knn", "--untrained", "--json")
    assert untrained["untrained"]
    assert untrained["top1"] != result["top1"]

    status, result, _ = asked(capsys, "export", tmp_path / "run", tmp_path / "e.safetensors", "--json")
    assert (status, result["out"]) == (0, str(tmp_path / "e.safetensors"))


def test_commands_say_what_they_did(few, tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps(tiny(epochs=1).plain()))
    assert run("pretrain", "--config", tmp_path / "config.json", "--out", tmp_path / "run") == 0
    told = capsys.readouterr().out
    assert "Pretrained 1 epochs" in told
    assert f"Judge it: randfield probe {tmp_path / 'run'}" in told
    assert run("probe", tmp_path / "run", "--protocol", "knn") == 0
    told = capsys.readouterr().out
    assert "of 40 images in 40 classes" in told
    assert "flatters every encoder" in told
    assert run("export", tmp_path / "run", tmp_path / "e.safetensors") == 0
    assert "timm.create_model('resnet18_small_w16'" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("pretrain", "--out", "{}/new", "--local", "turn"), 2, "unknown transform 'turn'; expected one of rotate"),
        (("pretrain", "--out", "{}/new", "--batch-size", "9999"), 2, "demo has 80 images; choose a smaller batch"),
        (("pretrain", "--out", "{}/new", "--encoder", "resnet19", "--batch-size", "8"), 2, "got 'resnet19'"),
        (("pretrain", "--out", "{}/new", "--config", "{}/none.json"), 2, "none.json is not a config: "),
        (("pretrain", "--out", "{}/new", "--config", "c.json", "--preset", "demo"), 2, "exclude each other"),
        (("pretrain", "--out", "{}/file/new"), 1, "cannot write"),
        (("pretrain",), 2, "--out"),
        (("probe", "{}/none"), 1, "is not a run: it has no config.json; name the folder that pretrain wrote"),
        (("export", "{}/none", "{}/e.safetensors"), 1, "is not a run"),
    ],
)
def test_what_a_command_cannot_do_is_a_sentence(few, tmp_path, capsys, arguments, status, message):
    (tmp_path / "file").write_text("")
    ended = run(*(argument.format(tmp_path) for argument in arguments))
    told = capsys.readouterr()
    assert ended == status
    assert not told.out
    assert "Traceback" not in told.err
    assert message in re.sub(r"[\s│]+", " ", told.err)


# ------------------------------------------------------------------------------------------------- in other processes

COMMAND = [sys.executable, "-m", "randfield", "pretrain", "--json", "--config"]


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
    for _ in range(6000):
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


def test_killed_while_a_checkpoint_is_written(tmp_path, fruits):
    """The one before stays, and what was half written is in nobody's way."""
    config = tiny(data=fruits)
    whole = done(command(tmp_path, "whole", config))
    arguments = command(tmp_path, "killed", config)
    dies = """
import os, signal, sys
from randfield.learn import train
from randfield.__main__ import main
save, saved = train.torch.save, []
def half(checkpoint, file):
    saved.append(file)
    if len(saved) == 2:
        file.write(b"half of it")
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    save(checkpoint, file)
train.torch.save = half
sys.argv = ["randfield", *sys.argv[1:]]
main()
"""
    killed = subprocess.run(
        [sys.executable, "-c", dies, *arguments[3:]], env=environment(), capture_output=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert (tmp_path / "killed" / ".last.ckpt.tmp").read_bytes() == b"half of it"
    assert torch.load(tmp_path / "killed" / "last.ckpt", weights_only=True)["epoch"] == 0
    again = done(arguments)
    assert [again[key] for key in ("loss", "knn_top1")] == [whole[key] for key in ("loss", "knn_top1")]
    a, b = weights(tmp_path / "whole"), weights(tmp_path / "killed")
    assert all(torch.equal(a[key], b[key]) for key in a)
    assert not list((tmp_path / "killed").glob(".*"))


def test_killed_while_it_streams_it_ends_at_the_same_numbers(tmp_path, fruits):
    """Images of several sizes, decoded by workers, of which there may be more the next time."""
    from PIL import Image

    for number, kind in enumerate(("00", "01")):
        Image.new("RGB", (20 + number, 30), "red").save(tmp_path / "fruits" / "train" / kind / "odd.png")
    (tmp_path / "fruits" / "train" / "02" / "broken.png").write_bytes(b"")
    config = tiny(data=fruits, epochs=4)
    whole = done(command(tmp_path, "whole", config, "--workers", "1"))
    process = subprocess.Popen(
        command(tmp_path, "killed", config, "--workers", "1"), env=environment(), stderr=subprocess.PIPE, text=True
    )
    until(tmp_path / "killed" / "log.jsonl", 1, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    again = done(command(tmp_path, "killed", config, "--workers", "3"))
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
    told, error = process.communicate(timeout=300)
    assert process.returncode == 130, error[-3000:]
    assert not told
    assert "can be taken up again by the same command" in error
    assert "Traceback" not in error


def test_ended_with_its_workers_it_says_how_to_go_on(tmp_path, fruits):
    """As a scheduler ends a job: every process at once."""
    from PIL import Image

    Image.new("RGB", (20, 30)).save(tmp_path / "fruits" / "train" / "00" / "0.png")  # of another size: workers read
    config = tiny(epochs=500, data=fruits)
    process = subprocess.Popen(
        command(tmp_path, "run", config, "--workers", "2"),
        env=environment(), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    until(tmp_path / "run" / "log.jsonl", 1, process)
    os.killpg(process.pid, signal.SIGTERM)
    told, error = process.communicate(timeout=300)
    assert process.returncode not in (0, None)
    assert not told
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

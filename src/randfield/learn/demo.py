"""The demo: does a local field help? Two encoders learn from forty kinds of fruit, one without and one with it.

Both are judged on the kinds they learned from and on twenty others that they never saw, beside the encoder as it was
before it learned anything; the report shows what the fields do, how learning went, and what the encoders take for alike.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn
from torchvision.transforms.v2 import functional as tvf

from randfield import drawing, page, pictures
from randfield.learn import data
from randfield.learn.config import Config
from randfield.learn.data import Images
from randfield.learn.probe import features, probe
from randfield.learn.train import Progress, load_encoder, pretrain, untrained
from randfield.names import parse_local
from randfield.seeds import seed_of
from randfield.transforms import LocalTransform

__all__ = ["demo"]

_RUNS = {"baseline": "none", "translate": "translate"}
_TITLES = {"untrained": "untrained", "baseline": "SimCLR", "translate": "SimCLR with local translation"}
_SHOWN = ("rotate", "scale", "shear", "translate", "translate+shear", "color")


def demo(
    out: Path,
    *,
    epochs: int | None = None,
    seed: int = 0,
    photo: Path | None = None,
    progress: Callable[[str, Progress], None] | None = None,
) -> dict[str, Any]:
    """Run the demo in `out`, or go on with it, and write report.html there: {"report", and a probe by run and data}."""
    given = {"epochs": epochs, "seed": seed, "warmup_epochs": None if epochs is None else min(2, epochs)}
    runs = {}
    for name, local in _RUNS.items():
        config = Config.of("demo", local=local, **given)

        def told(made: Progress, name: str = name) -> None:
            if progress:
                progress(_TITLES[name], made)

        pretrain(config, out / name, progress=told)
        runs[name] = load_encoder(out / name)[0]
    encoders = {"untrained": untrained(Config.of("demo", **given)), **runs}
    judged = {
        name: {task: probe(encoder, data.load(task), size=config.size, seed=seed) for task in ("demo", "demo-ood")}
        for name, encoder in encoders.items()
    }
    report = out / "report.html"
    report.write_text(_report(out, config, encoders, judged, photo), encoding="utf-8")
    return {"report": str(report), "top1": {n: {t: r["top1"] for t, r in tasks.items()} for n, tasks in judged.items()}}


def _report(
    out: Path,
    config: Config,
    encoders: dict[str, nn.Module],
    judged: dict[str, dict[str, dict[str, Any]]],
    photo: Path | None,
) -> str:
    logs = {
        _TITLES[name]: [json.loads(line) for line in (out / name / "log.jsonl").read_text("utf-8").splitlines()]
        for name in _RUNS
    }
    n = {task: judged["baseline"][task]["n"] for task in ("demo", "demo-ood")}
    rows = [
        [_TITLES[name], *(f"{tasks[t][k]:.1%}" for t in ("demo", "demo-ood") for k in ("top1", "top5"))]
        for name, tasks in judged.items()
    ]
    speed = ", ".join(
        f"{_TITLES[name]}: {result['images_per_second']:.0f} images/s, {result['pipeline_efficiency']:.0%} of the bare step"
        for name in _RUNS
        if (result := json.loads((out / name / "result.json").read_text("utf-8")))["pipeline_efficiency"]
    )
    known, others = data.load("demo"), data.load("demo-ood")
    assert others.test is not None
    return page.document(
        "randfield demo: learning with random fields",
        page.text(
            f"Two encoders ({config.encoder}) learned without labels from {len(known.train)} pictures of 40 kinds of fruit "
            f"for {config.epochs} epochs, by {config.method}: the one from SimCLR's views, the other from the same views with "
            "a local translation in them (gamma 7 to 10, alpha up to 1/3, p 0.8: the paper's best)."
        ),
        page.heading("What a local transform does"),
        page.picture(_transforms(photo, config.seed), "Left: the fields of a draw, blue where negative and red where positive. Then the photo as it was, and four draws at alpha 0.2."),
        page.picture(_views(known.train, config), "Pictures to learn from, four views of each as SimCLR makes them (left), and with local translation (right)."),
        page.heading("What the encoders know"),
        page.table(["encoder", "40 kinds learned from: top-1", "top-5", "20 other kinds: top-1", "top-5"], rows),
        page.text(
            f"A linear classifier on the frozen encoder, trained on pictures apart from those judged: {n['demo']} of the 40 "
            f"kinds and {n['demo-ood']} of the others. The fruits turn on a white ground and neighbouring frames are much "
            "alike, which flatters every encoder, and the untrained one most of all; one run of each, so a difference of a few "
            "per cent says nothing. The tables of the paper, with several seeds, are `randfield reproduce`.",
            pale=True,
        ),
        page.heading("How learning went"),
        page.curves(
            {name: [(line["epoch"], line["loss"]) for line in log] for name, log in logs.items()},
            x="epoch", y="loss", caption="The contrastive loss of the batches. Harder views leave a higher loss; it does not compare encoders.",
        ),
        page.curves(
            {name: [(line["epoch"], line["knn_top1"]) for line in log if "knn_top1" in line] for name, log in logs.items()},
            x="epoch", y="kNN top-1", caption="Share of the pictures that their twenty nearest neighbours name rightly.",
        ),
        page.text(f"Speed on this machine: {speed}.", pale=True) if speed else "",
        page.heading("What they take for alike"),
        page.picture(_neighbours(encoders, known.train, others.test, config.size), "Fruits that no encoder has seen (left), and the six nearest of what they learned from: untrained, SimCLR, with local translation."),
    )  # fmt: skip


def _transforms(photo: Path | None, seed: int) -> Image.Image:
    """A row for each transform: a field, the photo, draws."""
    source = photo or resources.files("randfield") / "chelsea.jpg"
    with source.open("rb") as file:
        image = pictures.as_rgb(pictures.read(file)[0])
    image.thumbnail((160, 160))
    rows = []
    generator = torch.Generator()
    for name in _SHOWN:
        local = parse_local(name, alpha=0.2, generator=generator)
        drawn = []
        for index in range(4):
            generator.manual_seed(seed_of(seed, name, index))
            drawn.append(local.make_params([image]))
        start = image if name == "color" else drawing.gridded(image)
        rows.append([_field(local, drawn[0], image), start, *(local.transform(start, its) for its in drawn)])
    return _tiled(rows)


def _field(local: LocalTransform, params: dict[str, Any], image: Image.Image) -> Image.Image:
    return drawing.heat_map(local.fields(params, (image.height, image.width))[0])


def _views(images: Images, config: Config) -> Image.Image:
    rows = []
    for index in range(0, len(images), len(images) // 6)[:6]:
        image, _ = images[index]
        row = [_large(image)]
        for local in _RUNS.values():
            views = Config.read(config.plain() | {"local": local}).views()
            views.n_views, views.normalize = 4, False
            views.generator = torch.Generator().manual_seed(seed_of(config.seed, "shown", index))
            row += [_large(tvf.to_pil_image(view)) for view in views(image)]
        rows.append(row)
    return _tiled(rows)


def _neighbours(encoders: dict[str, nn.Module], known: Images, asked: Images, size: int) -> Image.Image:
    chosen = asked.take(range(0, len(asked), len(asked) // 6)[:6])
    rows = [[_large(chosen[i][0])] for i in range(len(chosen))]
    for encoder in encoders.values():
        bank, queries = (F.normalize(features(encoder, images, size=size)) for images in (known, chosen))
        for row, nearest in zip(rows, (queries @ bank.T).topk(6).indices.tolist(), strict=True):
            row += [Image.new("RGB", (16, 64), "white"), *(_large(known[i][0]) for i in nearest)]
    return _tiled(rows)


def _large(image: Image.Image) -> Image.Image:
    return image.resize((64, 64), Image.Resampling.NEAREST)


def _tiled(rows: Sequence[Sequence[Image.Image]], gap: int = 4) -> Image.Image:
    width = max(sum(image.width + gap for image in row) for row in rows) - gap
    height = sum(max(image.height for image in row) + gap for row in rows) - gap
    whole = Image.new("RGB", (width, height), "white")
    y = 0
    for row in rows:
        x = 0
        for image in row:
            whole.paste(image, (x, y))
            x += image.width + gap
        y += max(image.height for image in row) + gap
    return whole

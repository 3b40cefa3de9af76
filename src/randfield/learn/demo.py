"""The demo: does a local field help? Two encoders learn from forty kinds of fruit, one without and one with it.

Both are judged on the kinds they learned from and on twenty others that they never saw, beside the encoder as it was
before it learned anything; the report shows what the fields do, how learning went, and what the encoders take for
alike.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
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
from randfield.learn.data import DataError, Images
from randfield.learn.probe import features, knn, probe
from randfield.learn.train import Progress, load_encoder, pretrain, untrained, write_whole
from randfield.names import parse_local
from randfield.seeds import seed_of

__all__ = ["demo"]

_RUNS = {"baseline": "none", "translate": "translate"}
_TASKS = ("demo", "demo-ood")
_TITLES = {"untrained": "untrained", "baseline": "SimCLR", "translate": "SimCLR with local translation"}
_SHOWN = ("rotate", "scale", "shear", "translate", "translate+shear", "color")


def demo(
    out: Path,
    *,
    epochs: int | None = None,
    seed: int = 0,
    photo: Path | None = None,
    progress: Callable[[str, Progress | None], None] | None = None,
) -> dict[str, Any]:
    """Run the demo in `out`, or go on with it, and write report.html there: {"report", and top-1 by run and data}.

    `progress` is told what is being done, with how far it is where that is known.
    """
    told = progress or (lambda what, made: None)
    shown = _transforms(photo, seed)  # first: a photo that cannot be read is told now, not after the runs
    configs = {name: Config.of("demo", local=local, epochs=epochs, seed=seed) for name, local in _RUNS.items()}
    for name, config in configs.items():
        # One process: Lightning would start this very command once for each GPU.
        pretrain(config, out / name, devices=1, progress=partial(told, _TITLES[name]))
    told("Probes", None)
    config = configs["translate"]
    encoders = {"untrained": untrained(config), **{name: load_encoder(out / name)[0] for name in configs}}
    judged = {
        name: {task: probe(encoder, data.load(task), size=config.size, seed=seed) for task in _TASKS}
        for name, encoder in encoders.items()
    }
    report = out / "report.html"
    write_whole(report, _report(out, config, encoders, judged, shown))
    return {
        "report": str(report),
        "top1": {name: {task: result["top1"] for task, result in of.items()} for name, of in judged.items()},
    }


def _report(
    out: Path,
    config: Config,
    encoders: dict[str, nn.Module],
    judged: dict[str, dict[str, dict[str, Any]]],
    shown: list[str],
) -> str:
    logs = {
        _TITLES[name]: [json.loads(line) for line in (out / name / "log.jsonl").read_text("utf-8").splitlines()]
        for name in _RUNS
    }
    results = {_TITLES[name]: json.loads((out / name / "result.json").read_text("utf-8")) for name in _RUNS}
    speeds = [
        f"{title}: {result['images_per_second']:.0f} images/s"
        + (f", {result['pipeline_efficiency']:.0%} of the bare training step" if result["pipeline_efficiency"] else "")
        for title, result in results.items()
    ]
    rows = [
        [_TITLES[name], *(f"{of[task][top]:.1%}" for task in _TASKS for top in ("top1", "top5"))]
        for name, of in judged.items()
    ]
    n = {task: judged["baseline"][task]["n"] for task in _TASKS}
    known, asked, others = data.load("demo").train, data.load("demo").test, data.load("demo-ood").test
    assert asked is not None
    assert others is not None
    start = knn(encoders["untrained"], known, asked, size=config.size)
    return page.document(
        "randfield demo: learning with random fields",
        page.text(
            f"Two encoders ({config.encoder}) learned without labels from {len(known)} pictures of 40 kinds of "
            f"fruit in {config.epochs} epochs: one from SimCLR's views, the other from the same views with a local "
            "translation in them (gamma 7 to 10, alpha up to 1/3, p 0.8: the paper's best)."
        ),
        page.heading("What a local transform does"),
        page.text(
            "Left a field of the first draw, blue where it is negative and red where it is positive; then the photo "
            "as it was, and four draws, all at alpha 0.2."
        ),
        *shown,
        page.picture(
            _views(known, config),
            "Pictures to learn from; four views of each as SimCLR makes them, and four with local translation.",
        ),
        page.heading("What the encoders know"),
        page.table(["encoder", "40 kinds learned from: top-1", "top-5", "20 other kinds: top-1", "top-5"], rows),
        page.text(
            "A linear classifier on the frozen encoder, trained on some pictures of these kinds and judged on "
            f"others: {n['demo']} of the 40 kinds, {n['demo-ood']} of the 20. Read the numbers with care. Fruits that "
            "turn on a white ground are easy, and their frames are much alike, which flatters every encoder and the "
            "untrained one most of all; with one run of each, a difference of a few per cent says nothing."
        ),
        page.heading("How learning went"),
        page.curves(
            {title: [(line["epoch"], line["loss"]) for line in log] for title, log in logs.items()},
            x="epoch",
            y="loss",
            caption="The contrastive loss. Harder views leave a higher one, so it does not compare the encoders.",
        ),
        page.curves(
            {
                title: [(0, start), *((line["epoch"], line["knn_top1"]) for line in log if "knn_top1" in line)]
                for title, log in logs.items()
            },
            x="epoch",
            y="kNN top-1",
            caption="The share of pictures whose kind their twenty nearest neighbours tell; at 0 before all learning.",
        ),
        page.text(f"Speed on this machine: {'; '.join(speeds)}.", pale=True),
        page.heading("What they take for alike"),
        page.text(
            "Left, fruits of kinds that no encoder has learned from; right, the six that it takes for most like "
            "them among those learned from."
        ),
        *(
            page.picture(_neighbours(encoder, known, others, config.size), _TITLES[name])
            for name, encoder in encoders.items()
        ),
    )


def _transforms(photo: Path | None, seed: int) -> list[str]:
    """For each transform a field, the photo, and draws."""
    source = photo or resources.files("randfield") / "chelsea.jpg"
    try:
        with source.open("rb") as file:
            image = pictures.as_rgb(pictures.read(file)[0])
    except Exception as error:  # Pillow raises what it likes
        raise DataError(f"cannot show {photo}: {pictures.reason(error)}; name a photo, or leave --photo out") from error
    image.thumbnail((148, 148))
    made = []
    generator = torch.Generator()
    for name in _SHOWN:
        local = parse_local(name, alpha=0.2, generator=generator)
        drawn = []
        for index in range(4):
            generator.manual_seed(seed_of(seed, name, index))
            drawn.append(local.make_params([image]))
        field = drawing.heat_map(local.fields(drawn[0], (image.height, image.width))[0])
        start = image if name == "color" else drawing.gridded(image)
        row = [field, start, *(local.transform(start, params) for params in drawn)]
        made.append(page.pictures(row, name))
    return made


def _views(images: Images, config: Config) -> Image.Image:
    rows = []
    for index in _some(images):
        image, _ = images[index]
        row = [_large(image)]
        for local in _RUNS.values():
            views = Config.read(config.plain() | {"local": local}).views()
            views.n_views, views.normalize = 4, False
            views.generator = torch.Generator().manual_seed(seed_of(config.seed, "shown", index))
            row += [_GAP, *(_large(tvf.to_pil_image(view)) for view in views(image))]
        rows.append(row)
    return _tiled(rows)


def _neighbours(encoder: nn.Module, known: Images, asked: Images, size: int) -> Image.Image:
    """A few pictures, and the six nearest to each."""
    chosen = asked.take(_some(asked))
    bank, queries = (F.normalize(features(encoder, images, size=size)) for images in (known, chosen))
    nearest = (queries @ bank.T).topk(6).indices.tolist()
    return _tiled(
        [[_large(chosen[i][0]), _GAP, *(_large(known[j][0]) for j in those)] for i, those in enumerate(nearest)]
    )


def _some(images: Images) -> range:
    return range(0, len(images), len(images) // 6)[:6]


_GAP = Image.new("RGBA", (16, 64))


def _large(image: Image.Image) -> Image.Image:
    return image.resize((64, 64), Image.Resampling.NEAREST)


def _tiled(rows: Sequence[Sequence[Image.Image]], gap: int = 4) -> Image.Image:
    width = max(sum(image.width + gap for image in row) for row in rows) - gap
    height = sum(max(image.height for image in row) + gap for row in rows) - gap
    whole = Image.new("RGBA", (width, height))  # nothing between the tiles, on a dark page too
    y = 0
    for row in rows:
        x = 0
        for image in row:
            whole.paste(image, (x, y))
            x += image.width + gap
        y += max(image.height for image in row) + gap
    return whole

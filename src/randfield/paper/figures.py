"""Figures 1 and 2 of the paper, as PNG and SVG.

Figure 1 shows fields of several gamma: the same random numbers through each spectrum, so that what differs is the
smoothness alone. Figure 2 shows what the transforms do to a photo: in the upper row rotation, scale, shear and
translation, in the lower the original, hue, saturation and brightness.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import matplotlib as mpl
import torch
from matplotlib.figure import Figure
from PIL import Image
from torchvision.transforms.v2 import functional as tvf

from randfield import pictures
from randfield.fields import sample_field
from randfield.names import parse_local
from randfield.seeds import seed_of

__all__ = ["GAMMAS", "figure1", "figure2"]

GAMMAS = tuple(range(2, 11))

_PANELS = (
    ("rotate", "rotation"),
    ("scale", "scale"),
    ("shear", "shear"),
    ("translate", "translation"),
    (None, "original"),
    ("hue", "hue"),
    ("saturation", "saturation"),
    ("value", "brightness"),
)


def figure1(out: Path, *, gammas: Sequence[float] = GAMMAS, size: int = 224, seed: int = 0) -> list[Path]:
    """Fields for each gamma, all of the same random numbers; the files are `out`/fig1.png and fig1.svg."""
    figure = Figure(figsize=(1.8 * len(gammas), 2.2), layout="constrained")
    panels = figure.subplots(1, len(gammas), squeeze=False)[0]
    for panel, gamma in zip(panels, gammas, strict=True):
        generator = torch.Generator().manual_seed(seed_of(seed, "fig1"))
        g = sample_field((size, size), gamma=gamma, generator=generator)
        shown = panel.imshow(g.numpy(), cmap="RdBu_r", vmin=-1, vmax=1, interpolation="nearest")
        panel.set_title(f"γ = {gamma:g}")
        panel.set_axis_off()
    bar = figure.colorbar(shown, ax=panels, fraction=0.02, pad=0.01, ticks=[-1, 0, 1])
    bar.ax.set_yticklabels(["−α", "0", "α"])
    return _saved(figure, out, "fig1")


def figure2(
    out: Path,
    *,
    photo: Path | None = None,
    gamma: float | tuple[float, float] = (7, 10),
    alpha: float | tuple[float, float] = 0.25,
    seed: int = 0,
) -> list[Path]:
    """Every transform on a photo, by default a cat's; the files are `out`/fig2.png and fig2.svg."""
    source = photo or resources.files("randfield") / "chelsea.jpg"
    with source.open("rb") as file:
        image = pictures.as_rgb(pictures.read(file)[0])
    image.thumbnail((448, 448))
    figure = Figure(figsize=(4 * 2.6, 2 * (2.6 * image.height / image.width + 0.35)), layout="constrained")
    panels = figure.subplots(2, 4).flatten()
    for panel, (name, title) in zip(panels, _PANELS, strict=True):
        panel.imshow(_transformed(image, name, gamma, alpha, seed), interpolation="nearest")
        panel.set_title(title)
        panel.set_axis_off()
    return _saved(figure, out, "fig2")


def _transformed(image: Image.Image, name: str | None, gamma: Any, alpha: Any, seed: int) -> Any:
    if name is not None:
        generator = torch.Generator().manual_seed(seed_of(seed, "fig2", name))
        image = parse_local(name, gamma=gamma, alpha=alpha, generator=generator)(image)
    return tvf.pil_to_tensor(image).movedim(0, -1).numpy()


def _saved(figure: Figure, out: Path, name: str) -> list[Path]:
    out.mkdir(parents=True, exist_ok=True)
    files = [out / f"{name}.{kind}" for kind in ("png", "svg")]
    with mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):  # the same file from the same seed
        for file in files:
            figure.savefig(file, dpi=150, metadata={"Date": None} if file.suffix == ".svg" else None)
    return files

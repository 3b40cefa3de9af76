"""The figures: what is in them, as PNG and SVG, the same from the same seed."""

import pytest
import torch
from PIL import Image

from randfield import sample_field
from randfield.paper.figures import GAMMAS, figure1, figure2
from randfield.seeds import seed_of


def test_figure_1_shows_every_gamma(tmp_path):
    assert list(GAMMAS) == list(range(2, 11))
    png, svg = figure1(tmp_path, size=48)
    text = svg.read_text()
    assert all(f"γ = {gamma}<" in text for gamma in GAMMAS)
    with Image.open(png) as drawn:
        assert drawn.width > 6 * drawn.height


def test_figure_1_differs_in_smoothness_alone():
    fields = [
        sample_field((48, 48), gamma=gamma, generator=torch.Generator().manual_seed(seed_of(0, "fig1"))).flatten()
        for gamma in (6, 8)
    ]
    assert torch.corrcoef(torch.stack(fields))[0, 1] > 0.9


def test_figure_2_shows_every_transform_of_the_papers(tmp_path):
    _, svg = figure2(tmp_path)
    text = svg.read_text()
    titles = ("rotation", "scale", "shear", "translation", "original", "hue", "saturation", "brightness")
    places = [text.index(f">{title}<") for title in titles]
    assert places == sorted(places)  # in the paper's order
    assert text.count("<image") == 8


@pytest.mark.parametrize("size", [(53, 37), (20, 90)])
def test_figure_2_of_a_photo_of_ones_own_by_its_seed(size, tmp_path):
    Image.effect_noise(size, 80).convert("RGB").save(tmp_path / "photo.png")
    drawn = [
        [file.read_bytes() for file in figure2(tmp_path / name, photo=tmp_path / "photo.png", seed=seed)]
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    ]
    assert drawn[0] == drawn[1]
    assert drawn[0][0] != drawn[2][0]

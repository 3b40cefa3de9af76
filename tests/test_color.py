"""Colours: Python's `colorsys` is the reference; hue wraps, saturation and value stop at 0 and 1."""

import colorsys
import itertools
import math

import pytest
import torch

from randfield.color import hsv_to_rgb, rgb_to_hsv, shift

pytestmark = pytest.mark.usefixtures("either_way")

# Every eighth-bit level in steps of 17, so that corners and greys are among them, and the near-greys beside these.
LEVELS = torch.arange(0, 256, 17) / 255
CUBE = torch.cartesian_prod(LEVELS, LEVELS, LEVELS)
NEAR_GREYS = LEVELS[:-1].reshape(-1, 1, 1) + torch.cartesian_prod(*[torch.tensor([0.0, 1 / 255])] * 3)
COLOURS = torch.cat([CUBE, NEAR_GREYS.flatten(0, 1), torch.rand(500, 3, generator=torch.Generator().manual_seed(0))])


def planes(colours):
    """[n, 3] as an image of one row."""
    return colours.T.unsqueeze(1)


def by_colorsys(convert, colours):
    return torch.tensor([convert(*colour) for colour in colours.tolist()])


def hue_distance(a, b):
    """Around the wheel: 0 and 1 are the same hue."""
    return ((a - b + 0.5) % 1 - 0.5).abs()


def test_rgb_to_hsv_is_colorsys():
    hue, saturation, value = rgb_to_hsv(planes(COLOURS)).squeeze(1)
    expected = by_colorsys(colorsys.rgb_to_hsv, COLOURS).T
    assert hue_distance(hue, expected[0]).max() < 1e-5
    assert (saturation - expected[1]).abs().max() < 1e-5
    assert (value - expected[2]).abs().max() < 1e-5
    assert ((hue >= 0) & (hue <= 1)).all()


def test_hsv_to_rgb_is_colorsys():
    hsv = torch.cat(
        [COLOURS, torch.cartesian_prod(torch.arange(13) / 12, torch.tensor([0, 0.5, 1]), torch.tensor([0, 0.5, 1]))]
    )
    rgb = hsv_to_rgb(planes(hsv)).squeeze(1)
    assert (rgb - by_colorsys(colorsys.hsv_to_rgb, hsv).T).abs().max() < 1e-5


def test_there_and_back():
    torch.testing.assert_close(hsv_to_rgb(rgb_to_hsv(planes(COLOURS))), planes(COLOURS), atol=1e-5, rtol=0)


def test_greys_have_hue_0_and_no_saturation():
    hsv = rgb_to_hsv(planes(LEVELS.unsqueeze(-1).expand(-1, 3)))
    assert not hsv[:2].any()


@pytest.mark.parametrize("turns", [0, 1, -1, 3, -7])
def test_whole_turns_of_the_hue_change_nothing(turns):
    """Seven turns off, a float32 knows the hue to seven roundings, and a channel goes up six times as fast."""
    turned = shift(planes(COLOURS), hue=torch.full((1, 1), float(turns)))
    torch.testing.assert_close(turned, planes(COLOURS), atol=1e-5, rtol=0)


@pytest.mark.parametrize("thirds", [1, 2, -1, 4])
def test_thirds_of_a_turn_permute_the_channels(thirds):
    """Red becomes green becomes blue."""
    turned = shift(planes(COLOURS), hue=torch.full((1, 1), thirds / 3))
    torch.testing.assert_close(turned, planes(COLOURS).roll(thirds, -3), atol=1e-5, rtol=0)


def test_saturation_and_value_stop_at_0_and_1():
    rgb, one = planes(COLOURS), torch.ones(1, 1)
    value = rgb.amax(-3)
    torch.testing.assert_close(shift(rgb, saturation=-one), value.expand(3, 1, -1), atol=1e-6, rtol=0)
    torch.testing.assert_close(shift(rgb, saturation=one).amin(-3), torch.zeros_like(value), atol=1e-6, rtol=0)
    torch.testing.assert_close(shift(rgb, saturation=one).amax(-3), value, atol=1e-6, rtol=0)
    torch.testing.assert_close(shift(rgb, value=one).amax(-3), torch.ones_like(value), atol=1e-6, rtol=0)
    assert not shift(rgb, value=-one).any()


def test_shifts_are_those_of_colorsys():
    """All three together, a different one for each colour."""
    g = (torch.rand(3, 1, len(COLOURS)) * 2 - 1) * 0.4
    expected = []
    for colour, (dh, ds, dv) in zip(COLOURS.tolist(), g.squeeze(1).T.tolist(), strict=True):
        h, s, v = colorsys.rgb_to_hsv(*colour)
        expected.append(colorsys.hsv_to_rgb((h + dh) % 1, min(max(s + ds, 0), 1), min(max(v + dv, 0), 1)))
    torch.testing.assert_close(shift(planes(COLOURS), *g), planes(torch.tensor(expected)), atol=2e-5, rtol=0)


@pytest.mark.parametrize(
    "channels", [c for n in range(4) for c in itertools.combinations(("hue", "saturation", "value"), n)]
)
def test_fields_of_zero_change_nothing(channels):
    shifted = shift(planes(COLOURS), **{channel: torch.zeros(1, 1) for channel in channels})
    torch.testing.assert_close(shifted, planes(COLOURS), atol=1e-6, rtol=0)


def test_batches_and_broadcast():
    rgb, g = torch.rand(4, 2, 3, 5, 6), torch.rand(4, 1, 5, 6)
    shifted = shift(rgb, hue=g, value=g[0, 0])
    assert shifted.shape == rgb.shape
    torch.testing.assert_close(shifted[3, 1], shift(rgb[3, 1], hue=g[3, 0], value=g[0, 0]))


def test_input_is_left_alone():
    rgb, g = torch.rand(3, 5, 6), torch.rand(3, 5, 6)
    before, fields = rgb.clone(), g.clone()
    shift(rgb, *g)
    rgb_to_hsv(rgb)
    hsv_to_rgb(rgb)
    assert torch.equal(rgb, before)
    assert torch.equal(g, fields)


def test_nan_colours_stay_local():
    rgb = torch.rand(3, 5, 6)
    rgb[1, 2, 3] = math.nan
    nan = shift(rgb, *torch.full((3, 5, 6), 0.1)).isnan().any(0)
    assert nan.nonzero().tolist() == [[2, 3]]


def test_gradients_of_colours_and_fields():
    """Against finite differences, with the channels far enough apart to keep their order."""
    rgb = (
        torch.tensor([0.2, 0.5, 0.8], dtype=torch.float64).reshape(3, 1, 1) + 0.05 * torch.rand(3, 2, 3)
    ).requires_grad_()
    g = (0.1 * torch.rand(3, 2, 3, dtype=torch.float64)).requires_grad_()
    assert torch.autograd.gradcheck(lambda rgb, g: shift(rgb, *g), (rgb, g))


def test_gradients_are_finite_at_greys_and_corners():
    rgb = planes(COLOURS).clone().requires_grad_()
    g = torch.full((3, 1, len(COLOURS)), 0.1, requires_grad=True)
    by_rgb, by_g = torch.autograd.grad(shift(rgb, *g).sum(), (rgb, g))
    assert by_rgb.isfinite().all()
    assert by_g.isfinite().all()

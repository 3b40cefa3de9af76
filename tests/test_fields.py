"""Fields: the law they follow, measured, and the ways to evaluate one draw, against each other.

Statistics are held to four standard errors, and each test first makes sure that these are narrower than what is
promised. Over draws, the power of a wave (a cosine and a sine) is exponential: its standard deviation is its mean.
"""

import itertools
import math
from typing import Any

import pytest
import torch

from randfield import matern, power_law, sample_field, squared_exponential
from randfield.fields import cutoff, draw, evaluate, evaluate_at


def wave_power(phi):
    """Power of each wave of fields on the torus of the image, by an FFT in double precision."""
    return torch.fft.fft2(phi.double(), norm="forward").abs().square()


def wave_number(size):
    """k of each FFT coefficient in cycles per unit of length, the shorter side being two units long."""
    along = [torch.fft.fftfreq(n, d=2 / min(size), dtype=torch.float64) for n in size]
    return torch.stack(torch.meshgrid(*along, indexing="ij")).norm(dim=0)


def pixel_points(size):
    """(x, y) of the pixel centres, written without the library."""
    y, x = ((2 * torch.arange(n) + 1 - n) / min(size) for n in size)
    return torch.stack(torch.meshgrid(x, y, indexing="xy"), -1).reshape(-1, 2)


# ------------------------------------------------------------------------------------------------------------ the law


@pytest.mark.parametrize("size", [(64, 64), (37, 53)])
@pytest.mark.parametrize("gamma", [3, 5, 7, 8.5, 10])
def test_log_power_falls_with_slope_minus_gamma(gamma, size):
    draws, waves = 256, 10
    power = wave_power(sample_field(size, gamma=gamma, bound=None, batch=(draws,))).mean(0)
    k = wave_number(size)
    seen = (k > 0) & (k <= waves / 2)
    seen[:, size[1] // 2 + 1 :] = False  # the other half of the plane repeats this one
    x, y = k[seen].log(), power[seen].log()
    x = x - x.mean()
    slope = (x * y).sum() / x.square().sum()
    error = 1 / (draws * x.square().sum()).sqrt()  # the log of a mean of `draws` exponentials varies by 1/sqrt(draws)
    assert 4 * error < 0.1
    assert abs(slope + gamma) < 4 * error + 0.001  # the kx = 0 column holds each wave twice


@pytest.mark.parametrize("tolerance", [1e-2, 1e-4])
def test_tolerance_leaves_out_the_shortest_waves_alone(tolerance):
    """Below the cut the power is what it was, above it there is none, and that is less than was allowed."""
    size, gamma = (37, 53), 7.0
    power = wave_power(sample_field(size, gamma=gamma, bound=None, tolerance=tolerance, batch=(2000,))).mean(0)
    whole = wave_number(size).pow(-gamma)
    whole[0, 0] = 0
    whole = whole / whole.sum()
    kept = power > 1e-15  # what rounding adds is a hundredth of that
    assert 0 < kept.sum() < kept.numel() - 1
    assert whole[~kept].sum().sqrt() <= tolerance
    assert wave_number(size)[~kept][1:].min() > wave_number(size)[kept].max() / 1.5  # a square's corners reach farther
    assert abs(power.sum() - 1) < 0.1  # unit variance all the same
    ratio = power[kept] / whole[kept]
    assert abs(ratio.log().mean()) < 0.05


def test_tolerance_with_gammas_of_a_batch():
    """The roughest field decides."""
    gamma = torch.tensor([3.0, 9.0])
    g = sample_field((32, 32), gamma=gamma, batch=(2,), tolerance=1e-3, generator=torch.Generator().manual_seed(1))
    rough = sample_field((32, 32), gamma=gamma, batch=(2,), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(g, rough)  # at gamma 3 a thousandth takes every wave of 32²
    assert sample_field((8, 8), gamma=torch.ones(0), batch=(0,), tolerance=1e-3).shape == (0, 8, 8)


@pytest.mark.parametrize("size", [(32, 32), (37, 53)])
@pytest.mark.parametrize("gamma", [3.0, 8.0])
def test_power_is_isotropic_in_pixels(gamma, size):
    """Half-spectrum noise halves the power of the kx = 0 waves: compare these to the ky = 0 ones and to the oblique."""
    draws, waves = 1500, 10
    k = wave_number(size)
    power = wave_power(sample_field(size, gamma=gamma, bound=None, batch=(draws,))).mean(0) * k.pow(gamma)
    n = torch.arange(1, waves + 1)
    along_x, along_y, oblique = power[0, n].mean(), power[n, 0].mean(), power[n, n].mean()
    error = math.sqrt(2 / (waves * draws))  # of the ratio of two means of waves * draws exponentials
    assert 4 * error < 0.05
    assert abs(along_x / along_y - 1) < 4 * error
    assert abs(along_x / oblique - 1) < 4 * error


@pytest.mark.parametrize("size", [(16, 16), (37, 53), (224, 224), (512, 64)])
@pytest.mark.parametrize("period", [1.0, 1.5, 2.0, 4.0])
@pytest.mark.parametrize("gamma", [4.0, 8.0])
def test_unit_variance_everywhere_whatever_size_period_and_truncation(size, period, gamma):
    draws = 16_000
    law = power_law(gamma)
    waves = cutoff(size, law, period=period, tolerance=0.1)
    modes = draw(size, law, batch=(draws,), period=period, waves=waves)
    across, down = (n / min(size) for n in reversed(size))
    points = torch.tensor([[0, 0], [-across, -down], [across, 0.3 * down], [0.5 * across, -0.7 * down]])
    variance = evaluate_at(modes, points, size, period=period).square().mean(0)
    error = math.sqrt(2 / draws)  # of the variance of one Gaussian
    assert 4 * error < 0.05
    assert (variance - 1).abs().max() < 4 * error


@pytest.mark.parametrize(
    ("size", "period", "draws"), [((16, 16), 4.0, 4000), ((37, 53), 1.0, 2000), ((224, 224), 1.0, 60)]
)
def test_unit_variance_of_whole_fields(size, period, draws):
    """At gamma 2, many waves share the variance and few draws will do."""
    power = sample_field(size, gamma=2.0, bound=None, period=period, batch=(draws,)).square().mean((-2, -1))
    error = power.std() / math.sqrt(draws)
    assert 4 * error < 0.05
    assert abs(power.mean() - 1) < 4 * error


def test_no_field_has_a_mean():
    phi = sample_field((37, 53), gamma=3.0, bound=None, batch=(8,))
    torch.testing.assert_close(phi.mean((-2, -1)), torch.zeros(8), atol=1e-5, rtol=0)


# Spectrum in d axes, its covariance at distance r, and the integral of that: what the k = 0 wave would hold.
SPECTRA: dict[str, tuple[Any, Any, Any]] = {
    "squared_exponential": (
        lambda axes, length: squared_exponential(length),
        lambda r, length: (-0.5 * (r / length).square()).exp(),
        lambda axes, length: (2 * math.pi) ** (axes / 2) * length**axes,
    ),
    "matern": (
        lambda axes, length: matern(1.5, length, axes),
        lambda r, length: (1 + math.sqrt(3) * r / length) * (-math.sqrt(3) * r / length).exp(),
        lambda axes, length: {1: 4, 2: 6 * math.pi}[axes] * (length / math.sqrt(3)) ** axes,
    ),
}


@pytest.mark.parametrize(
    ("kind", "axes"), [(kind, axes) for kind in SPECTRA for axes in (1, 2)] + [("squared_exponential", 3)]
)
def test_covariance_of_the_other_spectra(kind, axes):
    draws, length, size, period = 4000, 0.2, (40,) * axes, 2.0
    make, covariance, integral = SPECTRA[kind]
    spectrum = make(axes, length)
    waves = cutoff(size, spectrum, period=period, tolerance=0.05)
    modes = draw(size, spectrum, batch=(draws,), period=period, waves=waves)
    direction = torch.nn.functional.normalize(torch.randn(6, axes), dim=-1)
    r = torch.tensor([0.1, 0.2, 0.3, 0.5, 0.8, 1.0])
    product = evaluate_at(modes, torch.cat([torch.zeros(1, axes), r.unsqueeze(-1) * direction]), size, period=period)
    product = product[:, :1] * product[:, 1:]
    mean = integral(axes, length) / (2 * period) ** axes  # all fields have lost their mean
    expected = (covariance(r, length) - mean) / (1 - mean)
    error = product.std(0) / math.sqrt(draws)
    assert error.max() < 0.03
    assert ((product.mean(0) - expected).abs() < 4 * error).all()


@pytest.mark.parametrize(("period", "low", "high"), [(1.0, 0.99, 1.0), (2.0, -0.5, 0.5)])
def test_opposite_edges_move_together_on_the_image_torus_only(period, low, high):
    phi = sample_field((64, 64), gamma=8.0, bound=None, period=period, batch=(400,))
    left_right = torch.corrcoef(torch.stack([phi[..., 0].flatten(), phi[..., -1].flatten()]))[0, 1]
    top_bottom = torch.corrcoef(torch.stack([phi[..., 0, :].flatten(), phi[..., -1, :].flatten()]))[0, 1]
    assert low < left_right < high
    assert low < top_bottom < high


# ------------------------------------------------------------------------------------------------------------- bounds


@pytest.mark.parametrize("size", [(1,), (100,), (1, 1), (1, 7), (37, 53), (8, 9, 10)])
@pytest.mark.parametrize("alpha", [1 / 3, 0.1, 1.0, 2.7])
def test_peak_reaches_alpha_exactly_and_never_beyond(size, alpha):
    g = sample_field(size, gamma=7.3, alpha=alpha, batch=(50,))
    assert torch.equal(g.abs().flatten(1).amax(1), torch.full((50,), alpha))


def test_the_three_bounds_scale_the_same_field():
    phi, peak, clip = (
        sample_field((37, 53), alpha=0.3, bound=bound, batch=(20,), generator=torch.Generator().manual_seed(1))
        for bound in (None, "peak", "clip")
    )
    phi = phi / 0.3
    torch.testing.assert_close(peak, 0.3 * phi / phi.abs().amax((-2, -1), keepdim=True))
    torch.testing.assert_close(clip, 0.3 * (phi / 3).clamp(-1, 1))
    assert clip.abs().max() <= 0.3


@pytest.mark.parametrize("bound", ["peak", "clip", None])
def test_alpha_of_zero_is_a_field_of_zeros(bound):
    assert not sample_field((37, 53), alpha=0.0, bound=bound).any()


# ------------------------------------------------------------------------------------------------------- evaluation


def summed_waves(modes, size, period):
    """phi as the module's docstring writes it: one wave after the other, in double precision."""
    phi = torch.zeros(size, dtype=torch.float64)
    along = [(torch.arange(n, dtype=torch.float64) + 0.5) / n - 0.5 for n in size]
    for index in itertools.product(*(range(n) for n in modes.shape)):
        wave = torch.ones(())
        for s, n, count in zip(along, index, modes.shape, strict=True):
            waves = (count - 1) // 2
            if n == 0:
                u = torch.ones_like(s)
            elif n <= waves:
                u = math.sqrt(2) * (2 * math.pi * n * s / period).cos()
            else:
                u = math.sqrt(2) * (2 * math.pi * (n - waves) * s / period).sin()
            wave = wave.unsqueeze(-1) * u
        phi += float(modes[index]) * wave
    return phi


@pytest.mark.parametrize(
    ("size", "period"),
    [
        ((7,), 1.0),
        ((200,), 1.0),  # more than 64 waves go through an FFT
        ((200,), 1.5),
        ((53,), 3.7),
        ((13, 17), 1.0),
        ((12, 18), 2.0),
        ((70, 9), 1.0),
        ((9, 70), 1.5),
        ((11, 61), 1.3),  # many waves, but the torus is no whole number of pixels
        ((1, 1), 1.0),
        ((1, 8), 4.0),
        ((4, 5, 7), 1.0),
        ((3, 4, 90), 1.0),
        ((90, 3, 4), 1.0),
    ],
)
def test_products_ffts_and_points_are_the_sum_of_waves(size, period):
    """White noise, so that every wave counts alike."""
    modes = draw(size, power_law(0.0), period=period)
    expected = summed_waves(modes, size, period)
    # Sums of some thousand float32 of unit variance.
    torch.testing.assert_close(evaluate(modes, size, period=period).double(), expected, atol=1e-5, rtol=0)
    along = [(2 * torch.arange(n) + 1 - n) / min(size) for n in size]
    points = torch.stack(torch.meshgrid(*along, indexing="ij"), -1).flatten(0, -2).flip(-1)  # z, y, x -> x, y, z
    # Angles reach pi times the number of waves and are rounded to float32.
    rounding = 1e-5 + 2 * torch.finfo(torch.float32).eps * math.pi * max(modes.shape) / 2
    at_points = evaluate_at(modes, points, size, period=period).double()
    torch.testing.assert_close(at_points, expected.flatten(), atol=rounding, rtol=0)


@pytest.mark.parametrize("size", [(64, 64), (37, 53)])
def test_one_draw_is_the_same_field_at_any_size(size):
    modes = draw(size, power_law(4.0), batch=(3,))
    large = tuple(8 * n for n in size)
    some = slice(None, None, 17)
    torch.testing.assert_close(
        evaluate(modes, large).flatten(1)[:, some],
        evaluate_at(modes, pixel_points(large)[some], size),
        atol=2e-5,
        rtol=0,
    )
    # Three times the size has the old pixel centres among the new.
    thrice = evaluate(modes, tuple(3 * n for n in size))[..., 1::3, 1::3]
    torch.testing.assert_close(thrice, evaluate(modes, size), atol=2e-5, rtol=0)


def test_points_may_have_a_batch_of_their_own():
    modes = draw((37, 53), power_law(4.0), batch=(3,))
    points = torch.rand(3, 11, 2) * 2 - 1
    together = evaluate_at(modes, points, (37, 53))
    for i in range(3):
        torch.testing.assert_close(together[i], evaluate_at(modes[i], points[i], (37, 53)), atol=1e-5, rtol=0)


@pytest.mark.parametrize("size", [(37, 53), (224, 224), (512, 64)])
@pytest.mark.parametrize("spectrum", [power_law(3.0), power_law(8.0), matern(1.5, 0.3)])
def test_cutoff_neglects_no_more_than_it_says(size, spectrum):
    """The neglected variance, added up from the power spectrum itself."""
    tolerance = 0.03
    k = wave_number(size)
    power = torch.where(k > 0, spectrum(k.clamp_min(1e-9)), 0)
    for n, dim in zip(size, (0, 1), strict=True):
        if n % 2 == 0:
            power.select(dim, n // 2).zero_()  # the wave that changes sign at every pixel has no sine and is left out

    def neglected(waves):
        kept = power
        for dim, (n, size_along) in enumerate(zip(waves, size, strict=True)):
            inside = torch.fft.fftfreq(size_along, 1 / size_along).abs() <= n + 0.5
            kept = kept * inside.reshape((-1, 1) if dim == 0 else (1, -1))
        return math.sqrt(max(0.0, 1 - float(kept.sum() / power.sum())))

    waves = cutoff(size, spectrum, tolerance=tolerance)
    assert neglected(waves) <= tolerance
    one_less = tuple(n - along // min(size) for n, along in zip(waves, size, strict=True))
    assert neglected(one_less) > tolerance  # and keeps no more than it must, counted in waves of the shorter axis


# -------------------------------------------------------------------------------------------------- batches and types


@pytest.mark.parametrize(("size", "shape"), [(9, (9,)), ((9,), (9,)), ([8, 9], (8, 9)), ((7, 8, 9), (7, 8, 9))])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3), (0,)])
def test_shape_and_dtype(size, shape, batch):
    g = sample_field(size, batch=batch)
    assert g.shape == (*batch, *shape)
    assert g.dtype == torch.float32


def test_gamma_and_alpha_per_sample():
    def seeded():
        return torch.Generator().manual_seed(1)

    gamma, alpha = torch.tensor([3.0, 8.0, 5.5]), torch.tensor([0.1, 0.0, 2.0], dtype=torch.float64)
    mixed = sample_field((37, 53), gamma=gamma, alpha=alpha, batch=(3,), generator=seeded())
    for i in range(3):
        alike = sample_field((37, 53), gamma=float(gamma[i]), alpha=float(alpha[i]), batch=(3,), generator=seeded())
        torch.testing.assert_close(mixed[i], alike[i])


def test_samples_of_a_batch_are_independent():
    """Correlations of 500 independent pairs vary by 1/sqrt(500)."""
    phi = sample_field((16, 16), bound=None, batch=(500, 2))[..., 3, 4]
    assert abs(torch.corrcoef(phi.T)[0, 1]) < 4 / math.sqrt(500)


def test_generator_is_the_only_source_of_randomness():
    before = torch.get_rng_state()
    once, again = (sample_field((37, 53), generator=torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(once, again)
    generator = torch.Generator().manual_seed(7)
    assert torch.equal(sample_field((37, 53), generator=generator), once)
    assert not torch.equal(sample_field((37, 53), generator=generator), once)


def test_without_a_generator_the_global_seed_rules():
    torch.manual_seed(3)
    once, other = sample_field((37, 53)), sample_field((37, 53))
    torch.manual_seed(3)
    assert torch.equal(once, sample_field((37, 53)))
    assert not torch.equal(once, other)


def test_any_callable_is_a_spectrum():
    class Ring:
        """Equal to all others and therefore without a hash, as a plain dataclass is."""

        def __eq__(self, other):
            return isinstance(other, Ring)

        def __call__(self, k):
            return ((k - 2).abs() < 0.3).to(k)

    power = wave_power(sample_field((32, 32), spectrum=Ring(), bound=None)).flatten()
    inside = ((wave_number((32, 32)) - 2).abs() < 0.3).flatten()
    assert power[~inside].max() < 1e-10 < power[inside].min()
    assert cutoff((32, 32), Ring()) == (4, 4)  # two cycles per unit, on a side of two units


@pytest.mark.parametrize(
    ("size", "gamma", "period"),
    [((32, 32), 100.0, 1.0), ((32, 32), 200.0, 4.0), ((1, 6000), 10.0, 1.0), ((32, 32), -3.0, 1.0)],
)
def test_extreme_powers_do_not_overflow(size, gamma, period):
    """k^-gamma leaves the range of float32 long before the field does."""
    g = sample_field(size, gamma=gamma, period=period)
    assert g.isfinite().all()
    assert g.abs().max() == 1


# -------------------------------------------------------------------------------------------------- the state of torch


def test_autocast_changes_nothing():
    modes = draw((37, 53), power_law(3.0))
    points = torch.rand(9, 2)
    plain = evaluate(modes, (37, 53)), evaluate_at(modes, points, (37, 53))
    with torch.autocast("cpu", torch.bfloat16):
        cast = evaluate(modes, (37, 53)), evaluate_at(modes, points, (37, 53))
        assert sample_field((37, 53)).dtype == torch.float32
    assert torch.equal(plain[0], cast[0])
    assert torch.equal(plain[1], cast[1])


@pytest.mark.parametrize("size", [(21, 23), (121, 123)])  # sizes of their own, so that caches are filled here
def test_caches_first_filled_under_inference_mode_can_be_differentiated(size):
    with torch.inference_mode():
        sample_field(size, gamma=3.0)
        evaluate_at(draw(size, power_law(3.0)), torch.rand(3, 2), size)
    modes = draw(size, power_law(3.0)).requires_grad_()
    (evaluate(modes, size).sum() + evaluate_at(modes, torch.rand(3, 2), size).sum()).backward()
    assert modes.grad is not None
    assert modes.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_float32_whatever_the_default_dtype(dtype):
    size = {torch.float64: (25, 27), torch.bfloat16: (29, 31)}[dtype]  # their own, for the caches again
    large = tuple(5 * n for n in size)  # through the FFT
    torch.set_default_dtype(dtype)
    try:
        made = [sample_field(s, gamma=3.0, generator=torch.Generator().manual_seed(1)) for s in (size, large)]
    finally:
        torch.set_default_dtype(torch.float32)
    for s, g in zip((size, large), made, strict=True):
        assert g.dtype == torch.float32
        torch.testing.assert_close(g, sample_field(s, gamma=3.0, generator=torch.Generator().manual_seed(1)))
        # The caches filled above must be as precise as any: three times the size holds the same pixel centres.
    modes = draw(size, power_law(0.0))
    torch.testing.assert_close(evaluate(modes, size).double(), summed_waves(modes, size, 1.0), atol=2e-5, rtol=0)


# ------------------------------------------------------------------------------------------------------- bad arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": (0, 4)}, r"size .* at least one pixel, got \(0, 4\)"),
        ({"size": ()}, r"size must have 1, 2 or 3 axes"),
        ({"size": (2, 2, 2, 2)}, r"size must have 1, 2 or 3 axes .* got \(2, 2, 2, 2\)"),
        ({"gamma": math.nan}, r"gamma must be finite, got nan"),
        ({"gamma": math.inf}, r"gamma must be finite, got inf"),
        ({"alpha": -0.1}, r"alpha must be at least 0, got -0.1"),
        ({"alpha": math.nan}, r"alpha must be finite, got nan"),
        ({"gamma": torch.ones(3), "batch": (2,)}, r"gamma .* shape batch=\(2,\), got \(3,\)"),
        ({"alpha": torch.ones(3)}, r"alpha .* shape batch=\(\), got \(3,\)"),
        ({"period": 0.5}, r"period .* at least 1 .*, got 0.5"),
        ({"period": math.nan}, r"period .* got nan"),
        ({"period": math.inf}, r"period .* got inf"),
        ({"tolerance": -0.1}, r"tolerance .* in \[0, 1\), got -0.1"),
        ({"tolerance": 1}, r"tolerance .* got 1"),
        ({"bound": "max"}, r"bound must be 'peak', 'clip' or None, got 'max'"),
        ({"spectrum": 8.0}, r"spectrum.*8\.0"),
        ({"spectrum": lambda k: -k}, r"spectrum"),
        ({"spectrum": lambda k: k * math.nan}, r"spectrum"),
        ({"spectrum": lambda k: 0 * k}, r"spectrum"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        sample_field(**({"size": (8, 8)} | arguments))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: matern(0.0, 0.3), "matern: nu must be a finite number above 0, got 0.0"),
        (lambda: matern(1.5, -1.0), "matern: length must be a finite number above 0, got -1.0"),
        (lambda: squared_exponential(math.nan), "squared_exponential: length must be a finite number above 0, got nan"),
        (lambda: power_law(math.inf), "power_law: gamma must be .*finite.*, got inf"),
    ],
)
def test_bad_spectra(make, message):
    with pytest.raises(ValueError, match=message):
        make()

"""Gaussian random fields: spectra, draws, evaluation on a grid and at points.

A homogeneous, isotropic Gaussian field is white noise coloured by a power spectrum P(k). We keep it as what it is, a
short sum of waves, and make it a picture only when someone asks for pixels. On a torus, with the orthonormal real
Fourier basis along each axis

    u_0 = 1,   u_n = √2 cos(2π n s / period),   u_{K+n} = √2 sin(2π n s / period),   n = 1 … K,

where s in [-1/2, 1/2] runs along the image, a field is (here with two axes)

    phi(y, x) = Σ_ab  modes[a, b] · u_a(y) u_b(x),
    modes[a, b] ~ N(0, P(k_ab)),   modes[0, 0] = 0.

The coefficients are independent real numbers. There is no half spectrum and no Hermitian symmetry to get wrong (the
classic mistake halves the power of the k_x = 0 waves). Since u_n² + u_{K+n}² = 2 everywhere, the variance is
Σ P(k_ab) at every point, so dividing P by that sum gives unit variance whatever the size, period or truncation.

Units: the shorter side of the image spans two units of length, [-1, 1]; k is in cycles per unit of length, also on
non-square images, so a field is isotropic in pixels. `period` is the size of the torus in images.

Shapes: `modes[*batch, 2K_0+1, …, 2K_d+1]`, one axis of modes per axis of the image; everything is float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, cast

import torch
from torch import Tensor

from randfield import kernels

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = [
    "Bound",
    "Spectrum",
    "cutoff",
    "draw",
    "evaluate",
    "evaluate_at",
    "matern",
    "power_law",
    "sample_field",
    "squared_exponential",
]

P = ParamSpec("P")
T = TypeVar("T")

Spectrum = Callable[[Tensor], Tensor]
"""Any callable from wave numbers k > 0 (cycles per unit length) to power P(k) >= 0, element by element."""

Bound = Literal["peak", "clip"] | None

# Above this many waves an inverse FFT beats the matrix product (measured at 224², two fields, one core: 33 waves
# 75 against 165 µs, 65 waves 180 against 190 µs, 223 waves 1000 against 280 µs).
_FFT_FROM = 64


def cached(function: Callable[P, T]) -> Callable[P, T]:
    """Remember the last few hundred results; for functions of plain values whose results nobody writes to.

    What is remembered are ordinary tensors, even when first made under `torch.inference_mode` or another default
    device. A graph that is being compiled gets the result as a constant.
    """

    @lru_cache(maxsize=256)
    def remembered(*args: Any) -> tuple[T]:
        with torch.inference_mode(mode=False), torch.device("cpu"):
            return (function(*args),)  # type: ignore[call-arg]  # mypy wants P.kwargs named too

    @torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]  # torch's own
    def constant(*args: Any) -> tuple[T]:  # in a tuple: to PyTorch 2.11 bare tensors from here are one and the same
        return remembered(*args)

    @wraps(function)
    def unpacked(*args: Any) -> T:
        return constant(*args)[0]

    return cast("Callable[P, T]", unpacked)


# ---------------------------------------------------------------------------------------------------------- spectra


@dataclass(frozen=True)
class power_law:
    """P(k) = k^-gamma, the paper's spectrum: the larger gamma, the smoother the field.

    `gamma` may be a tensor of any shape; the result then has that shape in front of k's.

    >>> power_law(2.0)(torch.tensor([1.0, 2.0]))
    tensor([1.0000, 0.2500])
    """

    gamma: float | Tensor

    def __post_init__(self) -> None:
        if not isinstance(self.gamma, Tensor) and not math.isfinite(self.gamma):
            raise ValueError(f"power_law: gamma must be a finite number, got {self.gamma!r}")

    def __call__(self, k: Tensor) -> Tensor:
        gamma = self.gamma
        if isinstance(gamma, Tensor):
            gamma = gamma.to(k).reshape(*gamma.shape, *(1,) * k.ndim)
        return (k.log() * -gamma).exp_()  # a third of the time of `pow`


@dataclass(frozen=True)
class matern:
    """The Matérn spectrum: `nu` sets how many derivatives the field has, `length` its correlation length.

    P(k) ∝ (1 + (2π k length)² / 2nu)^-(nu + axes/2), with `length` in the units of the image (shorter side = 2).

    >>> matern(nu=1.5, length=0.3)(torch.tensor([0.0]))
    tensor([1.])
    """

    nu: float
    length: float
    axes: int = 2

    def __post_init__(self) -> None:
        _require_positive("matern", nu=self.nu, length=self.length, axes=self.axes)

    def __call__(self, k: Tensor) -> Tensor:
        return (1 + (2 * math.pi * self.length * k).square() / (2 * self.nu)).pow(-(self.nu + self.axes / 2))


@dataclass(frozen=True)
class squared_exponential:
    """The spectrum of the covariance exp(-r² / 2 length²): infinitely smooth beyond its one length scale.

    P(k) ∝ exp(-(2π k length)² / 2), with `length` in the units of the image (shorter side = 2).

    >>> squared_exponential(length=0.3)(torch.tensor([0.0]))
    tensor([1.])
    """

    length: float

    def __post_init__(self) -> None:
        _require_positive("squared_exponential", length=self.length)

    def __call__(self, k: Tensor) -> Tensor:
        return (-0.5 * (2 * math.pi * self.length * k).square()).exp()


def _require_positive(name: str, **values: float) -> None:
    for argument, value in values.items():
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name}: {argument} must be a finite number above 0, got {value!r}")


# ------------------------------------------------------------------------------------------------------------ draws


def draw(
    size: tuple[int, ...],
    spectrum: Spectrum,
    *,
    batch: tuple[int, ...] = (),
    period: float = 1.0,
    waves: tuple[int, ...] | None = None,
    generator: torch.Generator | None = None,
    device: torch.device | str | None = None,
) -> Float[Tensor, "..."]:
    """Draw the modes of unit-variance fields: `modes[*batch, 2K_0+1, …]`.

    `waves` holds K for each axis; by default every wave the grid of `size` can carry (see `nyquist`), or fewer as
    `cutoff` finds them. A `generator` on another device draws there, and its numbers are moved.

    >>> draw((37, 53), power_law(8.0), batch=(2,), waves=(5, 7)).shape
    torch.Size([2, 11, 15])
    """
    waves = nyquist(size, period) if waves is None else waves
    device = torch.device("cpu") if device is None else torch.device(device)
    k, weight = _lattice(waves, tuple(_torus(size, period)), device)
    deviation = (_power(spectrum, k) * weight).sqrt_()
    deviation = deviation / torch.linalg.vector_norm(deviation, dim=tuple(range(-k.ndim, 0)), keepdim=True)
    at = device if generator is None else generator.device
    noise = torch.randn((*batch, *k.shape), generator=generator, device=at, dtype=torch.float32)
    return noise.to(device).mul_(deviation)


def nyquist(size: tuple[int, ...], period: float = 1.0) -> tuple[int, ...]:
    """The most waves per axis that a grid of `size` pixels tells apart, at least one: a 1×1 image has a field too."""
    return tuple(max(1, (math.ceil(n * period) - 1) // 2) for n in size)


def cutoff(
    size: tuple[int, ...], spectrum: Spectrum, *, period: float = 1.0, tolerance: float = 0.0
) -> tuple[int, ...]:
    """The fewest waves per axis for which the standard deviation of all neglected ones is at most `tolerance`.

    `tolerance` is in units of the whole field's standard deviation. The cut is a rectangle in mode space, a square in
    k. Works on the CPU in double precision; cached, since every image of one size asks the same.

    >>> cutoff((224, 224), power_law(8.0), tolerance=1e-3)
    (7, 7)
    """
    try:
        return _cutoff(size, spectrum, period, tolerance)
    except TypeError:  # a callable that cannot be hashed
        return _cutoff.__wrapped__(size, spectrum, period, tolerance)  # type: ignore[attr-defined]


@cached
def _cutoff(size: tuple[int, ...], spectrum: Spectrum, period: float, tolerance: float) -> tuple[int, ...]:
    waves, torus = nyquist(size, period), _torus(size, period)
    k, weight = _lattice(waves, tuple(torus), torch.device("cpu"))
    power = _power(spectrum, k).double() * weight
    # Each mode belongs to the smallest rectangle that holds it, numbered by the waves of the shortest axis.
    shortest, rings = min(torus), torch.zeros((), dtype=torch.float32)
    for n, length in zip(waves, torus, strict=True):
        rings = torch.maximum(rings.unsqueeze(-1), torch.ceil(_wave_numbers(n) * (shortest / length) - 1e-6))
    if not power.sum() > 0:
        raise ValueError(f"{spectrum!r} has no power at any wave of an image of {size} pixels; use one that has")
    inside = torch.bincount(rings.flatten().long(), weights=power.flatten()).cumsum(0)
    neglected = (1 - inside / inside[-1]).clamp_min(0).sqrt()
    enough = int((neglected <= max(tolerance, 1e-7)).nonzero()[0])
    return tuple(
        min(n, max(1, math.floor(enough * length / shortest + 1e-6))) for n, length in zip(waves, torus, strict=True)
    )


def _torus(size: tuple[int, ...], period: float) -> list[float]:
    """Lengths of the torus in units: the shorter side of the image is two units long."""
    return [2 * period * n / min(size) for n in size]


def _power(spectrum: Spectrum, k: Tensor) -> Tensor:
    # A power law has no scale: measured from about the longest wave, its powers stay in the range of float32.
    if isinstance(spectrum, power_law):
        return spectrum.__call__(k / k.flatten()[1])  # spelt out: PyTorch 2.11 compiles it only so
    return spectrum(k)


@cached
def _lattice(waves: tuple[int, ...], torus: tuple[float, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """The wave number k of every mode, and its weight: one, but for the mean, which has none (and any k > 0)."""
    square = torch.zeros((), dtype=torch.float32)
    for n, length in zip(waves, torus, strict=True):
        square = square.unsqueeze(-1) + (_wave_numbers(n) / length).square()
    weight = (square > 0).to(torch.float32)
    return torch.where(square > 0, square, 1.0).sqrt().to(device), weight.to(device)


def _wave_numbers(waves: int) -> Tensor:
    """How often each function of the basis along one axis goes round the torus: 0, 1 … K, 1 … K."""
    n = torch.arange(waves + 1, dtype=torch.float32)
    return torch.cat([n, n[1:]])


# ------------------------------------------------------------------------------------------------------- evaluation


def evaluate(modes: Float[Tensor, "..."], size: tuple[int, ...], *, period: float = 1.0) -> Float[Tensor, "..."]:
    """The field of `modes` at the pixel centres of a grid of any `size`: `phi[*batch, *size]`.

    >>> modes = draw((32, 32), power_law(8.0))
    >>> evaluate(modes, (32, 32)).shape, evaluate(modes, (512, 512)).shape
    (torch.Size([32, 32]), torch.Size([512, 512]))
    """
    with full_precision(modes.device):
        for dim, n in zip(range(-1, -len(size) - 1, -1), reversed(size), strict=True):
            modes = _synthesise(modes, dim, n, period)
    return modes


def evaluate_at(
    modes: Float[Tensor, "..."],
    points: Float[Tensor, "... n axes"],
    size: tuple[int, ...],
    *,
    period: float = 1.0,
) -> Float[Tensor, "... n"]:
    """The field of `modes` at any points (x, y[, z]) of an image whose aspect is that of `size`: `phi[*batch, n]`.

    Coordinates are those of the image: origin at its centre, the shorter side spans [-1, 1].

    >>> modes = draw((37, 53), power_law(8.0), batch=(2,))
    >>> evaluate_at(modes, torch.tensor([[0.0, 0.0], [1.0, -0.5], [0.2, 0.9]]), (37, 53)).shape
    torch.Size([2, 3])
    """
    bases = [
        _basis(points[..., axis] / length, (modes.shape[-axis - 1] - 1) // 2)
        for axis, length in enumerate(reversed(_torus(size, period)))
    ]
    with full_precision(modes.device):
        values = modes.flatten(-len(size), -2) if len(size) > 1 else modes.unsqueeze(-2)
        values = bases[0] @ values.mT  # [*batch, n, all modes of the other axes]
        for axis, basis in enumerate(bases[1:], start=1):
            values = values.unflatten(-1, (-1, modes.shape[-axis - 1]))
            values = (values * basis.unsqueeze(-2)).sum(-1)
    return values.squeeze(-1)


def _basis(turns: Tensor, waves: int) -> Tensor:
    """u_0 … u_2K at positions given in turns of the torus: [..., 2K+1]."""
    angle = (2 * math.pi) * turns.unsqueeze(-1) * torch.arange(1, waves + 1, device=turns.device)
    root = math.sqrt(2)
    return torch.cat([torch.ones_like(turns).unsqueeze(-1), angle.cos() * root, angle.sin() * root], -1)


@cached
def _grid_basis(n: int, waves: int, period: float, device: torch.device, transposed: bool) -> Tensor:
    turns = ((torch.arange(n, dtype=torch.float64) + 0.5) / n - 0.5) / period
    basis = _basis(turns, waves).float()
    return (basis.T if transposed else basis).contiguous().to(device)


@cached
def _half_pixel_shift(n: int, torus: int, waves: int, device: torch.device) -> Tensor:
    """Phases that move an inverse FFT's first sample to the first pixel centre, with the basis' factor √2 / 2."""
    turns = torch.arange(waves + 1, dtype=torch.float64) * (0.5 - n / 2) / torus
    shift = torch.polar(torch.full_like(turns, math.sqrt(0.5)), 2 * math.pi * turns)
    shift[0] = 1.0
    return shift.to(torch.complex64).to(device)


def _synthesise(modes: Tensor, dim: int, n: int, period: float) -> Tensor:
    """Sum the waves along one axis: a matrix product when they are few, an inverse FFT when they are many."""
    count = modes.shape[dim]
    waves, torus = (count - 1) // 2, round(n * period)
    if count > _FFT_FROM and torus == n * period and count <= torus:
        even, odd = modes.split([waves + 1, waves], dim)
        odd = torch.cat([torch.zeros_like(odd.narrow(dim, 0, 1)), odd], dim).neg_()
        shift = _half_pixel_shift(n, torus, waves, modes.device).reshape(-1, *(1,) * (-dim - 1))
        spectrum = torch.complex(even, odd).mul_(shift)
        return torch.fft.irfft(spectrum, n=torus, dim=dim, norm="forward").narrow(dim, 0, n)
    if dim == -1:
        return modes @ _grid_basis(n, waves, period, modes.device, True)
    basis = _grid_basis(n, waves, period, modes.device, False)
    if dim == -2:
        return basis @ modes
    return (basis @ modes.flatten(dim + 1)).unflatten(-1, modes.shape[dim + 1 :])


def full_precision(device: torch.device) -> torch.autocast | nullcontext[None]:
    """Leave autocast for a while: a matrix product in bfloat16 would move pixels by tenths of a pixel."""
    # "meta", where only shapes are worked out, has none to ask about.
    if torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


# ----------------------------------------------------------------------------------------------------------- bounds


def peak_of(phi: Float[Tensor, "..."], axes: int) -> Float[Tensor, "..."]:
    """The largest magnitude of each field, with its axes kept as ones."""
    if axes == 2 and phi.dtype == torch.float32 and kernels.fit(phi):
        return kernels.peak(phi)
    return phi.abs().amax(tuple(range(-axes, 0)), keepdim=True)


def sample_field(
    size: int | Sequence[int],
    *,
    gamma: float | Tensor = 8.0,
    alpha: float | Tensor = 1.0,
    batch: Sequence[int] = (),
    spectrum: Spectrum | None = None,
    period: float = 1.0,
    bound: Bound = "peak",
    tolerance: float = 0.0,
    generator: torch.Generator | None = None,
    device: torch.device | str | None = None,
) -> Float[Tensor, "..."]:
    """Sample Gaussian random fields `g[*batch, *size]`, float32, with every wave that the grid can carry.

    Args:
        size: pixels along each of one, two or three axes; an int is one axis.
        gamma: exponent of the power law P(k) ∝ k^-gamma, a number or a tensor of shape `batch`.
        alpha: bound of the field, a number or a tensor of shape `batch`.
        batch: shape of the batch; every field in it is drawn independently.
        spectrum: another power spectrum, any callable k -> P(k), in place of the power law.
        period: size of the torus in images. At 1, opposite edges meet and move alike; at 2 or more they do not meet.
        bound: "peak" divides each field by its largest magnitude, times alpha; "clip" is alpha·clamp(phi/3, -1, 1);
            None is alpha·phi, a Gaussian of standard deviation alpha, not bounded.
        tolerance: leave out the shortest waves, as many as together have at most this share of the field's standard
            deviation. At 1e-4 nobody sees a difference, and a field of 224² with gamma 8 costs a fifth.
        generator: source of the randomness; PyTorch's own by default.
        device: where the field is made.

    >>> sample_field((224, 224), gamma=8.0, alpha=0.3).abs().max()
    tensor(0.3000)
    >>> sample_field((37, 53), batch=(4, 2), gamma=torch.full((4, 2), 7.5)).shape
    torch.Size([4, 2, 37, 53])
    >>> sample_field(100, spectrum=squared_exponential(length=0.2), period=2.0).shape
    torch.Size([100])
    """
    size = (size,) if isinstance(size, int) else tuple(size)
    if not 1 <= len(size) <= 3 or min(size) < 1:
        raise ValueError(f"sample_field: size must have 1, 2 or 3 axes of at least one pixel, got {size}")
    batch = tuple(batch)
    for name, value in (("gamma", gamma), ("alpha", alpha)):
        if isinstance(value, Tensor) and value.shape != batch:
            raise ValueError(
                f"sample_field: {name} must be a number or a tensor of shape batch={batch}, got {tuple(value.shape)}"
            )
        if not isinstance(value, Tensor) and not math.isfinite(value):
            raise ValueError(f"sample_field: {name} must be finite, got {value!r}")
    if not isinstance(alpha, Tensor) and alpha < 0:
        raise ValueError(f"sample_field: alpha must be at least 0, got {alpha!r}; it bounds the field's magnitude")
    check_period("sample_field", period)
    check_bound("sample_field", bound)
    if not (isinstance(tolerance, int | float) and 0 <= tolerance < 1):
        raise ValueError(
            f"sample_field: tolerance is a share of the field's standard deviation, in [0, 1), got {tolerance!r}"
        )
    if spectrum is not None:
        check_spectrum("sample_field", spectrum)
    waves = None
    if tolerance > 0 and 0 not in batch:
        roughest = spectrum or power_law(float(gamma.min()) if isinstance(gamma, Tensor) else gamma)
        waves = cutoff(size, roughest, period=period, tolerance=tolerance)
    modes = draw(
        size,
        spectrum or power_law(gamma),
        batch=batch,
        period=period,
        waves=waves,
        generator=generator,
        device=device,
    )
    phi = evaluate(modes, size, period=period)
    if bound == "peak":
        phi = phi / peak_of(phi, len(size))
    elif bound == "clip":
        phi = (phi / 3).clamp(-1, 1)
    return phi * (alpha.to(phi).reshape(*batch, *(1,) * len(size)) if isinstance(alpha, Tensor) else alpha)


def check_spectrum(name: str, spectrum: object) -> None:
    expected = f"{name}: spectrum must be a callable from wave numbers k > 0 to power P(k) >= 0, such as power_law(8)"
    if not callable(spectrum):
        raise ValueError(f"{expected}, got {spectrum!r}")
    k = torch.logspace(-1, 3, 33, dtype=torch.float32, device="cpu")
    power = spectrum(k)
    if not isinstance(power, Tensor) or power.shape != k.shape or not power.isfinite().all() or (power < 0).any():
        raise ValueError(f"{expected}, got {spectrum!r}, which is not so for every k in [0.1, 1000]")
    if not (power > 0).any():
        raise ValueError(f"{expected}, got {spectrum!r}, which has no power for k in [0.1, 1000]")


def check_period(name: str, period: float) -> None:
    if not (isinstance(period, int | float) and math.isfinite(period) and period >= 1):
        raise ValueError(f"{name}: period must be a number of images, at least 1 (the torus holds one), got {period!r}")


def check_bound(name: str, bound: object) -> None:
    if bound not in ("peak", "clip", None):
        raise ValueError(f"{name}: bound must be 'peak', 'clip' or None, got {bound!r}")

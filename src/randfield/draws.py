"""Draws: from which randomness, by which law, and what is kept of one.

What is kept are the params: a dict of the modes of the fields (see `fields`), their alpha and gamma, and the size they
were drawn for; of a composite, those of its atoms. They are plain numbers, or tensors of them for each sample of a
batch, and lists where they come back from JSON.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch import Tensor

from randfield import fields
from randfield.fields import Bound, Spectrum, power_law

__all__ = ["FieldLaw", "Params", "Source", "batch_of", "numbers_of", "size_of", "taken", "weaker"]

Params = dict[str, Any]


@dataclasses.dataclass
class Source:
    """Where the random numbers of one draw come from, and for whom: one draw for all, or one for each of a batch.

    Numbers for all are Python floats, for which nothing runs on a device. Those of a batch, or of a generator that
    lives on a device, are tensors there, whose values the host never asks for.
    """

    device: torch.device
    batch: tuple[int, ...] = ()
    generator: torch.Generator | None = None

    @property
    def on_host(self) -> bool:
        return not self.batch and (self.generator is None or self.generator.device.type == "cpu")

    def uniform(self, n: int) -> list[Any]:
        """n numbers in [0, 1): floats, or tensors of the batch's shape."""
        home = torch.device("cpu") if self.on_host else self.device
        at = home if self.generator is None else self.generator.device
        numbers = torch.rand((*self.batch, n), generator=self.generator, device=at, dtype=torch.float32)
        return numbers.tolist() if self.on_host else list(numbers.to(home).unbind(-1))

    def together(self, numbers: list[Any]) -> Any:
        """Such numbers as an entry of the params: a list, or a tensor [*batch, n]."""
        return numbers if self.on_host else torch.stack(numbers, -1)


def _by_value(generator: torch.Generator) -> tuple[Callable[..., torch.Generator], tuple[str, bytes]]:
    return _continued, (str(generator.device), bytes(generator.get_state().tolist()))


def _continued(device: str, state: bytes) -> torch.Generator:
    generator = torch.Generator(device)
    generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
    return generator


# To a worker that is spawned PyTorch sends the state of a generator as shared memory that is gone before it is read,
# and the worker dies: https://github.com/pytorch/pytorch/issues/31571. Its five kilobytes may as well be sent.
ForkingPickler.register(torch.Generator, _by_value)


class FieldLaw:
    """How a transform draws its fields: the ranges of gamma and alpha, the spectrum, the torus and the bound.

    `gamma` and `alpha` are lists of (low, high), of one entry that all fields share or of one for each of `count`.
    """

    def __init__(
        self,
        count: int,
        gamma: list[tuple[float, float]],
        alpha: list[tuple[float, float]],
        spectrum: Spectrum | None,
        period: float,
        bound: Bound,
    ) -> None:
        self.count = count
        self.gamma = gamma
        self.alpha = alpha
        self.spectrum = spectrum
        self.period = period
        self.bound = bound
        self.strongest = max(high for _, high in alpha)
        self._roughest = spectrum or power_law(min(low for low, _ in gamma))
        self._ranges = [*gamma, *alpha]

    def draw(
        self, size: tuple[int, int], source: Source, *, unseen: float, p: float = 1.0, share: float = 1.0
    ) -> Params:
        """Fields for images of `size`, or {} for none; `share` scales alpha.

        `unseen` is the field strength that nobody sees: waves are left out as long as together they stay below it.
        """
        if self.strongest == 0:
            return {}
        coin, *uniform = source.uniform(1 + len(self._ranges))
        drawn = [low + (high - low) * u for (low, high), u in zip(self._ranges, uniform, strict=True)]
        gamma, alpha = drawn[: len(self.gamma)], [a * share for a in drawn[len(self.gamma) :]]
        if not source.on_host:  # never ask the device: what is passed over has zero strength
            alpha = [a * (coin < p) for a in alpha]
        elif coin >= p:
            return {}
        params = {"size": list(size), "alpha": source.together(alpha)}
        spectrum = self.spectrum
        if spectrum is None:
            params["gamma"] = source.together(gamma)
            one = source.on_host and len(gamma) == 1
            spectrum = power_law(
                gamma[0] if one else torch.as_tensor(params["gamma"], dtype=torch.float32, device=source.device)
            )
        params["modes"] = fields.draw(
            size,
            spectrum,
            batch=(*source.batch, self.count),
            period=self.period,
            waves=self._waves(size, unseen, gamma, alpha, share, source.on_host),
            generator=source.generator,
            device=source.device,
        )
        return params

    def _waves(
        self, size: tuple[int, int], unseen: float, gamma: list[Any], alpha: list[Any], share: float, known: bool
    ) -> tuple[int, ...]:
        """As many waves as the drawn gamma and alpha need; where these are on a device, as any could need."""
        if not known:
            return self._waves_at_most(size, unseen, self.strongest * share)
        # By steps of a half, so that `cutoff` is asked few different questions.
        roughest = self.spectrum or power_law(math.floor(2 * min(gamma)) / 2)
        return fields.cutoff(size, roughest, period=self.period, tolerance=_tolerance(unseen, max(alpha)))

    @torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]  # torch's own
    def _waves_at_most(self, size: tuple[int, int], unseen: float, strongest: float) -> tuple[int, ...]:
        # A method because a graph that is being compiled takes no spectrum, which is an object, as an argument.
        return fields.cutoff(size, self._roughest, period=self.period, tolerance=_tolerance(unseen, strongest))

    def evaluate(
        self, params: Params, size: tuple[int, int], device: torch.device
    ) -> tuple[Tensor, float | Tensor, Tensor | None]:
        """The drawn fields phi[*batch, fields, H, W] on a grid of any size, alpha, and the peak to divide by if any.

        g = phi / peak · alpha. They are handed over apart for callers who make the product a pass of their own; phi is
        theirs to keep.
        """
        modes = torch.as_tensor(params["modes"], dtype=torch.float32, device=device)
        alpha = params["alpha"]
        if isinstance(alpha, list) and len(alpha) == 1 and isinstance(alpha[0], float):
            alpha = alpha[0]  # the usual case, and the cheapest
        else:
            alpha = torch.as_tensor(alpha, dtype=torch.float32, device=device)[..., None, None]
        phi = fields.evaluate(modes, size, period=self.period)
        if self.bound == "clip":
            return (phi / 3).clamp_(-1, 1), alpha, None
        if self.bound is None:
            return phi, alpha, None
        drawn_for = size_of(params)
        if size == drawn_for:
            return phi, alpha, fields.peak_of(phi, 2)
        # The same deformation at another size: measure the peak where it was drawn, cut what rises above it in between.
        peak = fields.peak_of(fields.evaluate(modes, drawn_for, period=self.period), 2)
        return (phi / peak).clamp_(-1, 1), alpha, None


def _tolerance(unseen: float, strongest: float) -> float:
    """The share of a field that nobody sees, rounded down to one of few numbers: `cutoff` remembers its answers."""
    tolerance = min(unseen / max(strongest, 1e-9), 1.0)
    return 2.0 ** (math.floor(2 * math.log2(tolerance)) / 2)


# ----------------------------------------------------------------------------------------------------------- params


def batch_of(params: Params) -> tuple[int, ...]:
    """The leading dimensions that a draw was made for."""
    alphas = [its["alpha"] for its in params.get("atoms", [params]) if its]
    return tuple(_as_tensor(alphas[0]).shape[:-1]) if alphas else ()


def size_of(params: Params) -> tuple[int, int]:
    if "atoms" in params:
        return next((size_of(atom) for atom in params["atoms"] if atom), (1, 1))
    return int(params["size"][0]), int(params["size"][1])


def numbers_of(params: Params) -> list[Any]:
    """All that a draw consists of."""
    atoms = params.get("atoms", [params])
    return [value for atom in atoms for value in atom.values()]


def taken(params: Params, samples: slice) -> Params:
    """What a draw for each sample of a batch has for some of them."""

    def part(name: str, value: Any) -> Any:
        if name == "size":
            return value
        if name == "atoms":
            return [taken(atom, samples) for atom in value]
        drawn = _as_tensor(value)
        return value if name == "order" and drawn.ndim == 1 else drawn[samples]  # a given order is everyone's

    return {name: part(name, value) for name, value in params.items()}


def weaker(params: Params, factor: Tensor) -> Params:
    """The same draw with alpha multiplied, by one factor for each sample of the batch."""
    if "atoms" in params:
        return params | {"atoms": [weaker(atom, factor) for atom in params["atoms"]]}
    if not params:
        return params
    alpha = torch.as_tensor(params["alpha"], dtype=torch.float32, device=factor.device)
    return params | {"alpha": alpha * factor.unsqueeze(-1)}


def _as_tensor(value: Any) -> Tensor:
    """Numbers of a draw, which may come from JSON. A tensor stays where it is, whatever the default device."""
    return value if isinstance(value, Tensor) else torch.as_tensor(value, device="cpu")

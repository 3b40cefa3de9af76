"""The transforms: the only file that holds hyper-parameters.

Every class is a `torchvision.transforms.v2.Transform`. `make_params` draws, `transform(inpt, params)` applies purely,
so any sample can be replayed, on another type or at another resolution:

>>> import torch
>>> from randfield import LocalTranslate
>>> t, image = LocalTranslate(), torch.rand(3, 37, 53)
>>> params = t.make_params([image])
>>> torch.equal(t.transform(image, params), t.transform(image, params))
True

`params` is a dict of a few hundred numbers: the modes of the fields (see `fields`), their alpha and gamma, and the size
they were drawn for; an empty dict is the identity, where the coin of `p` said no. `torch.save` takes it as it is,
`json.dumps(params, default=torch.Tensor.tolist)` writes it, and `transform` takes what JSON reads back.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import numbers
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import PIL.Image
import torch
from torch import Tensor, nn
from torch.autograd.forward_ad import unpack_dual
from torch.utils.data import get_worker_info
from torchvision import tv_tensors
from torchvision.transforms import v2
from torchvision.transforms.v2.functional import is_pure_tensor

from randfield import affine, fields, functional, kernels
from randfield.draws import FieldLaw, Params, Source, batch_of, numbers_of, size_of, taken, weaker
from randfield.fields import Bound, Spectrum, matern, power_law, squared_exponential
from randfield.threads import in_threads
from randfield.warp import Interpolation, Padding

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = [
    "LocalAffine",
    "LocalColorJitter",
    "LocalHue",
    "LocalRotate",
    "LocalSaturation",
    "LocalScale",
    "LocalShear",
    "LocalTransform",
    "LocalTranslate",
    "LocalValue",
    "LocalWarp",
    "from_config",
]

Range = float | Sequence[float]
Ranges = Range | Sequence[Range]
Fill = functional.Fill | Mapping[type | str, functional.Fill]


# ----------------------------------------------------------------------------------------------- what all of them share


class Drawn(v2.Transform):
    """A transform that draws for a call or for each sample, and whose settings are plain data."""

    def __init__(self, *, per_sample: bool, generator: torch.Generator | None) -> None:
        super().__init__()
        if generator is not None and not isinstance(generator, torch.Generator):
            raise ValueError(f"{self._name}: generator must be a torch.Generator or None, got {generator!r}")
        _require_one_of(self._name, "per_sample", per_sample, (True, False))
        self.per_sample = bool(per_sample)
        self.generator = generator
        self._seeded_for: int | None = None

    @property
    def _name(self) -> str:
        return type(self).__name__

    def _generator(self) -> torch.Generator | None:
        worker = get_worker_info() if self.generator is not None else None
        if self.generator is not None and worker is not None and self._seeded_for != worker.seed:
            # Every worker holds a copy of the generator; left alone, all of them would draw the same numbers.
            self.generator.manual_seed((self.generator.initial_seed() + worker.seed) % 2**63)
            self._seeded_for = worker.seed
        return self.generator

    @property
    def config(self) -> dict[str, Any]:
        """The settings as a plain dict that survives JSON: `type(t)(**t.config)` is the same transform.

        The generator, a source of randomness and not a setting, is left out.
        """
        return {key: _plain(f"{self._name}: {key}", value) for key, value in self._settings().items()}

    def _settings(self) -> dict[str, Any]:
        # Every argument of the constructor is an attribute of the same name.
        names = inspect.signature(type(self)).parameters
        return {name: getattr(self, name) for name in names if name != "generator"}

    def extra_repr(self) -> str:
        return ", ".join(f"{key}={value!r}" for key, value in self._settings().items())

    def __repr__(self) -> str:  # nn.Module would put nested transforms on lines that do not evaluate
        return f"{self._name}({self.extra_repr()})"


class LocalTransform(Drawn):
    """What all local transforms share: drawing once and applying purely, per call or per sample; a config.

    Args:
        p: probability of being applied.
        per_sample: draw for each sample of the leading dimensions (with `p` for each) rather than once for all of them.
            The frames of a video always move together.
        generator: source of the randomness, PyTorch's own by default, which a `DataLoader` seeds for every worker
            and epoch. In a worker, a generator of your own goes on from its seed and the worker's.
    """

    law: FieldLaw

    def __init__(self, *, p: float = 1.0, per_sample: bool = False, generator: torch.Generator | None = None) -> None:
        super().__init__(per_sample=per_sample, generator=generator)
        if not (_is_number(p) and 0 <= p <= 1):
            raise ValueError(f"{self._name}: p is a probability in [0, 1], got {p!r}")
        self.p = float(p)

    def make_params(self, flat_inputs: list[Any]) -> Params:
        """Draw for these inputs, of which only size, device and leading dimensions matter."""
        if not flat_inputs:
            return {}
        size, device, batch = _layout(self._name, flat_inputs)
        if min(size) < 1:
            return {}
        return self.draw(size, Source(device, batch if self.per_sample else (), self._generator()))

    def draw(self, size: tuple[int, int], source: Source) -> Params:
        """Params for images of a size, from the given randomness."""
        raise NotImplementedError

    def transform(self, inpt: Any, params: Params) -> Any:
        if not params:
            return inpt
        size, device, _ = _layout(self._name, [inpt])
        if min(size) < 1:
            return inpt
        at_once = max(1, _PIXELS // (size[0] * size[1]))
        if not _in_parts(inpt, params, at_once):
            return self._done_to(inpt, params, size, device)
        batch = batch_of(params)  # the parts would not see that the whole does not fit
        functional.check_batch(self._name, inpt.shape[:-2], batch, inpt.shape)

        def like(values: Tensor) -> Tensor:
            return tv_tensors.wrap(values, like=inpt) if isinstance(inpt, tv_tensors.TVTensor) else values

        params = taken(params, slice(None))  # tensors, if they were lists
        out = torch.empty_like(inpt)

        def fill(start: int) -> None:
            some = slice(start, start + at_once)
            out[some] = self._done_to(like(inpt[some]), taken(params, some), size, device)

        starts = range(0, len(inpt), at_once)
        if _differentiated(inpt, *numbers_of(params)):  # a graph grows in one thread
            for start in starts:
                fill(start)
        else:
            in_threads(fill, starts)
        return like(out)

    def _done_to(self, inpt: Any, params: Params, size: tuple[int, int], device: torch.device) -> Any:
        """Do what was drawn to an input of at least one pixel."""
        raise NotImplementedError

    def fields(
        self, params: Params, size: tuple[int, int], device: torch.device | str = "cpu"
    ) -> Float[Tensor, "*batch count h w"]:
        """The fields g of a draw at the pixels of an image of any size."""
        phi, alpha, peak = self.law.evaluate(params, size, torch.device(device))
        phi = phi if peak is None else phi.div_(peak)
        return phi.mul_(alpha)  # in this order, no rounding takes g beyond alpha


# ---------------------------------------------------------------------------------------------------------- geometry


class _Warp(LocalTransform):
    """A transform that moves pixels: one grid for every part of a sample."""

    _transformed_types = (
        is_pure_tensor,
        PIL.Image.Image,
        tv_tensors.Image,
        tv_tensors.Video,
        tv_tensors.Mask,
        tv_tensors.KeyPoints,
        tv_tensors.BoundingBoxes,
    )

    def __init__(
        self,
        *,
        interpolation: Interpolation,
        padding: Padding,
        fill: Fill,
        fold_free: bool,
        p: float,
        per_sample: bool,
        generator: torch.Generator | None,
    ) -> None:
        super().__init__(p=p, per_sample=per_sample, generator=generator)
        _require_one_of(self._name, "interpolation", interpolation, ("bilinear", "bicubic", "nearest"))
        _require_one_of(self._name, "padding", padding, ("reflection", "border", "zeros"))
        self.interpolation = interpolation
        self.padding = padding
        self._fills = _fill_by_type(self._name, fill)
        self.fill = self._fills if isinstance(fill, Mapping) else fill
        _require_one_of(self._name, "fold_free", fold_free, (True, False))
        self.fold_free = bool(fold_free)

    def draw(self, size: tuple[int, int], source: Source) -> Params:
        params = self._draw(size, source)
        return self._without_folds(params, source.device) if self.fold_free and params else params

    def _draw(self, size: tuple[int, int], source: Source) -> Params:
        raise NotImplementedError

    def _without_folds(self, params: Params, device: torch.device) -> Params:
        """Shrink alpha by the largest factor, to a thousandth, at which the grid the draw is made for does not fold."""

        def least(factor: Tensor) -> Tensor:
            return functional.folding(self.grid(weaker(params, factor), size_of(params), device))[1]

        # Bisection by a fixed number of steps on all samples at once: no result is looked at on the host. What has to
        # shrink is not left a hair's breadth from folding, where float32 has no inverse.
        smooth = least(torch.ones((), device=device)) > 0
        good, bad = torch.zeros_like(smooth, dtype=torch.float32), torch.ones_like(smooth, dtype=torch.float32)
        for _ in range(10):
            middle = (good + bad) / 2
            holds = least(middle) > 0.01
            good, bad = torch.where(holds, middle, good), torch.where(holds, bad, middle)
        return weaker(params, torch.where(smooth, 1.0, good))

    def _moved(
        self, params: Params, x: Tensor, y: Tensor, size: tuple[int, int], device: torch.device
    ) -> Float[Tensor, "*batch 2 h w"]:
        """The planes of x and y where the points x, y of the target come from."""
        raise NotImplementedError

    def _farthest(self, params: Params, size: tuple[int, int]) -> float:
        """No source point is farther from the centre, in units; infinity where that is not known."""
        raise NotImplementedError

    def grid(
        self, params: Params, size: tuple[int, int], device: torch.device | str = "cpu"
    ) -> Float[Tensor, "*batch h w 2"]:
        """The sampling grid of a draw for an image of any size, for `functional.warp` and `functional.folding`.

        >>> t = LocalTranslate()
        >>> params = t.make_params([torch.rand(3, 37, 53)])
        >>> t.grid(params, (37, 53)).shape, t.grid(params, (74, 106)).shape
        (torch.Size([37, 53, 2]), torch.Size([74, 106, 2]))
        """
        device = torch.device(device)
        if not params:
            return affine.identity_grid(size, device)
        # Stored as two planes, seen as pairs: quicker to write, and grid_sample reads it as gladly.
        return self._moved(params, *affine.pixel_centres(size, device), size, device).movedim(-3, -1)

    def _done_to(self, inpt: Any, params: Params, size: tuple[int, int], device: torch.device) -> Any:
        # What Pillow has just opened is a JpegImageFile or the like.
        kind = "Image" if isinstance(inpt, PIL.Image.Image) else type(inpt).__name__
        return functional.warp(
            inpt,
            self.grid(params, size, device),
            interpolation=self.interpolation,
            padding=self.padding,
            fill=self._fills.get(kind, self._fills.get("others", 0)),
            near=self._farthest(params, size) <= 3,
        )


class LocalWarp(_Warp):
    """A geometric transform of one draw of fields. Derive from it to write your own:

    >>> class LocalZoom(LocalWarp):
    ...     '''Scale both axes alike.'''
    ...     field_count = 1
    ...
    ...     def move(self, x, y, g):
    ...         return x + g * x, y + g * y
    >>> LocalZoom(alpha=0.2)(torch.rand(3, 37, 53)).shape
    torch.Size([3, 37, 53])

    Args:
        gamma: exponent of the power spectrum k^-gamma, that is smoothness: a number; a (low, high) range to draw from
            uniformly; or a pair of either, for the x and the y field to have their own.
        alpha: bound of the fields, that is strength, in the same forms.
        p: probability of being applied.
        spectrum: a power spectrum in place of the power law, any callable k -> P(k); gamma is then unused.
        period: size of the torus the fields live on, in images; at 1 opposite edges move alike.
        bound: how alpha bounds the fields, see `sample_field`.
        interpolation: "bilinear", "bicubic" or "nearest"; masks are always "nearest".
        padding: what comes in from outside: the image's "reflection", its "border", or `fill` ("zeros").
        fill: a number, one for each channel, or a dict from type to either, as {tv_tensors.Mask: 255, "others": 0}.
        fold_free: shrink the alpha of a draw until the grid is one to one.
        per_sample: draw for each sample of the leading dimensions, see `LocalTransform`.
        generator: source of the randomness, see `LocalTransform`.
    """

    field_count: ClassVar[int] = 2
    _move: ClassVar[Callable[..., tuple[Tensor, Tensor]] | None] = None  # our own atoms': can write to given memory

    def __init__(
        self,
        *,
        gamma: Ranges = (7, 10),
        alpha: Ranges = (0, 1 / 3),
        p: float = 1.0,
        spectrum: Spectrum | None = None,
        period: float = 1.0,
        bound: Bound = "peak",
        interpolation: Interpolation = "bilinear",
        padding: Padding = "reflection",
        fill: Fill = 0,
        fold_free: bool = False,
        per_sample: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(
            interpolation=interpolation,
            padding=padding,
            fill=fill,
            fold_free=fold_free,
            p=p,
            per_sample=per_sample,
            generator=generator,
        )
        self.gamma, gammas = _ranges(self._name, "gamma", gamma, self.field_count)
        self.alpha, alphas = _ranges(self._name, "alpha", alpha, self.field_count, at_least_zero=True)
        self.spectrum, self.period, self.bound = _checked_law(self._name, spectrum, period, bound)
        self.law = FieldLaw(self.field_count, gammas, alphas, self.spectrum, self.period, self.bound)

    def move(self, x: Tensor, y: Tensor, *g: Tensor) -> tuple[Tensor, Tensor]:
        """Where the target points x, y come from, given `field_count` fields g[*batch, H, W]; must not write in place.

        Coordinates have their origin at the centre of the image, whose shorter side spans [-1, 1].
        """
        if self._move is None:
            raise NotImplementedError(f"{self._name} has to say how it moves points: define move(x, y, *g)")
        return self._move(x, y, *g)

    def reach(self, width: float, height: float) -> float:
        """How far, in units, a field of one moves a point of an image that spans ±width, ±height; decides how many
        waves are worth having."""
        return max(width, height)

    def _draw(self, size: tuple[int, int], source: Source, share: float = 1.0) -> Params:
        height, width = size
        shorter = min(size)
        # A twentieth of a pixel, one standard deviation, at the largest alpha.
        unseen = 0.05 * (2 / shorter) / self.reach(width / shorter, height / shorter)
        return self.law.draw(size, source, unseen=unseen, p=self.p, share=share)

    def _moved(self, params: Params, x: Tensor, y: Tensor, size: tuple[int, int], device: torch.device) -> Tensor:
        phi, alpha, peak = self.law.evaluate(params, size, device)
        factor = alpha if peak is None else alpha / peak
        if self._is_ours and kernels.fit(x, y, phi, factor if isinstance(factor, Tensor) else None):
            assert self._move is not None
            return kernels.move(self._move, x, y, phi, factor)
        if torch.compiler.is_compiling() or not self._is_ours or _differentiated(x, y, phi, factor):
            return torch.stack(torch.broadcast_tensors(*self.move(x, y, *(phi * factor).unbind(-3))), -3)
        # The fields are ours: write over them rather than into new memory, which costs more than the arithmetic.
        g = phi.mul_(factor)
        planes = g if self.field_count == 2 else g.new_empty((*g.shape[:-3], 2, *size))
        assert self._move is not None
        self._move(x, y, *g.unbind(-3), out=planes.unbind(-3))
        return planes

    @property
    def _is_ours(self) -> bool:
        return self._move is not None and type(self).move is LocalWarp.move

    def _farthest(self, params: Params, size: tuple[int, int]) -> float:
        alpha = params["alpha"]
        known = self._is_ours and self.bound is not None and isinstance(alpha, list)
        if not known or not all(isinstance(a, float) for a in alpha):
            return math.inf
        corner = size[1] / min(size), size[0] / min(size)
        return math.hypot(*corner) + max(alpha) * self.reach(*corner)


class LocalRotate(LocalWarp):
    """Rotate every pixel's neighbourhood about the centre by its own angle, pi·g.

    theta = [[cos pi g, -sin pi g, 0], [sin pi g, cos pi g, 0]] (appendix A). Arguments are those of `LocalWarp`.

    >>> LocalRotate(alpha=(0, 0.1))(torch.rand(8, 3, 37, 53)).shape
    torch.Size([8, 3, 37, 53])
    """

    field_count = 1

    _move = staticmethod(affine.move_rotate)

    def reach(self, width: float, height: float) -> float:
        return math.pi * math.hypot(width, height)


class LocalScale(LocalWarp):
    """Scale x and y by 1 + gx and 1 + gy, about the centre: theta = [[1+gx, 0, 0], [0, 1+gy, 0]] (equation 2).

    Arguments are those of `LocalWarp`.

    >>> LocalScale(per_sample=True)(torch.rand(8, 3, 37, 53)).shape
    torch.Size([8, 3, 37, 53])
    """

    _move = staticmethod(affine.move_scale)


class LocalShear(LocalWarp):
    """Shear x by gx·y and y by gy·x: theta = [[1, gx, 0], [gy, 1, 0]] (appendix A).

    Arguments are those of `LocalWarp`.

    >>> LocalShear(gamma=((7, 8), (9, 10)))(torch.rand(3, 37, 53)).shape
    torch.Size([3, 37, 53])
    """

    _move = staticmethod(affine.move_shear)


class LocalTranslate(LocalWarp):
    """Translate every pixel by its own (gx, gy): theta = [[1, 0, gx], [0, 1, gy]] (appendix A).

    The best of the paper's atoms. Arguments are those of `LocalWarp`.

    >>> LocalTranslate(gamma=(7, 10), alpha=(0, 1 / 3), p=0.8)(torch.rand(3, 37, 53)).shape
    torch.Size([3, 37, 53])
    """

    _move = staticmethod(affine.move_translate)

    def reach(self, width: float, height: float) -> float:
        return 1.0


class LocalAffine(_Warp):
    """Several local transforms as one: the product of their matrices in random order, resampled once (section 4.3).

    Each atom's alpha is multiplied by 1/sqrt(N), which keeps the composite within the bounds of one of them.

    Args:
        transforms: the atoms, `LocalWarp`s such as `LocalRotate()`, or their configs as `from_config` takes them.
            Their own gamma, alpha, p, spectrum, period and bound count; how to resample and when is said here.
        p: probability of being applied.
        order: "random" multiplies the matrices in a random order, "given" in that of the list: the last one acts on
            the target point first.
        interpolation, padding, fill, fold_free, per_sample, generator: as for `LocalWarp`.

    >>> LocalAffine([LocalRotate(), LocalTranslate()], p=0.8)(torch.rand(3, 37, 53)).shape
    torch.Size([3, 37, 53])
    """

    def __init__(
        self,
        transforms: Sequence[LocalWarp | Mapping[str, Any]],
        *,
        p: float = 1.0,
        order: Literal["random", "given"] = "random",
        interpolation: Interpolation = "bilinear",
        padding: Padding = "reflection",
        fill: Fill = 0,
        fold_free: bool = False,
        per_sample: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(
            interpolation=interpolation,
            padding=padding,
            fill=fill,
            fold_free=fold_free,
            p=p,
            per_sample=per_sample,
            generator=generator,
        )
        listed = list(transforms) if isinstance(transforms, Sequence | nn.ModuleList) else []
        atoms = [from_config(t) if isinstance(t, Mapping) else t for t in listed]
        if not atoms or not all(isinstance(t, LocalWarp) for t in atoms):
            raise ValueError(
                f"LocalAffine: transforms must be a list of at least one of LocalRotate, LocalScale, LocalShear, "
                f"LocalTranslate or another LocalWarp, got {transforms!r}"
            )
        _require_one_of(self._name, "order", order, ("random", "given"))
        self.order = order
        self.transforms = nn.ModuleList(atoms)

    @property
    def _atoms(self) -> list[LocalWarp]:
        return list(self.transforms)  # type: ignore[arg-type]  # a ModuleList forgets what its modules are

    def _settings(self) -> dict[str, Any]:
        return super()._settings() | {"transforms": self._atoms}

    def _draw(self, size: tuple[int, int], source: Source) -> Params:
        n = len(self.transforms)
        coin, *turns = source.uniform(1 + n)
        if source.on_host and coin >= self.p:
            return {}
        atoms = [atom._draw(size, source, share=1 / math.sqrt(n)) for atom in self._atoms]
        if not any(atoms):
            return {}
        if not source.on_host:
            atoms = [weaker(atom, coin < self.p) for atom in atoms]
        if self.order == "given":
            order: Any = list(range(n))
        elif source.on_host:
            order = sorted(range(n), key=turns.__getitem__)
        else:
            order = torch.stack(turns, -1).argsort(-1)
        return {"atoms": atoms, "order": order}

    def _moved(self, params: Params, x: Tensor, y: Tensor, size: tuple[int, int], device: torch.device) -> Tensor:
        drawn, order = list(zip(self._atoms, params["atoms"], strict=True)), params["order"]
        planes = torch.stack(torch.broadcast_tensors(x, y), -3)
        if isinstance(order, list) and all(isinstance(turn, int) for turn in order):
            for turn in reversed(order):
                atom, its = drawn[turn]
                if its:
                    x, y = planes.unbind(-3)
                    planes = atom._moved(its, x, y, size, device)
            return planes
        # Every sample in its own order: at each step do all atoms and keep for each sample the one whose turn it is.
        turns = torch.as_tensor(order, device=device)[..., None, None, None]
        fields = [atom.fields(its, size, device).unbind(-3) if its else () for atom, its in drawn]
        for step in reversed(range(len(drawn))):
            x, y = planes.unbind(-3)
            for index, ((atom, its), g) in enumerate(zip(drawn, fields, strict=True)):
                if its:
                    moved = torch.stack(atom.move(x, y, *g), -3)
                    planes = torch.where(turns[..., step, :, :, :] == index, moved, planes)
        return planes

    def fields(
        self, params: Params, size: tuple[int, int], device: torch.device | str = "cpu"
    ) -> Float[Tensor, "*batch count h w"]:
        """The fields of the atoms that were drawn, in the order of the list."""
        drawn = zip(self._atoms, params["atoms"], strict=True)
        return torch.cat([atom.fields(its, size, device) for atom, its in drawn if its], -3)

    def _farthest(self, params: Params, size: tuple[int, int]) -> float:
        start = math.hypot(*size) / min(size)
        farthest = start
        for atom, its in zip(self._atoms, params["atoms"], strict=True):
            if its:
                farthest *= atom._farthest(its, size) / start
        return farthest


def _differentiated(*values: Any) -> bool:
    """Backwards, or forwards as `torch.func.jvp` does it: neither can follow what is written to given memory."""
    tensors = [v for v in values if isinstance(v, Tensor)]
    backwards = torch.is_grad_enabled() and any(v.requires_grad for v in tensors)
    return backwards or any(unpack_dual(v).tangent is not None for v in tensors)


# Of a batch on the CPU so many pixels are done at a time, whose temporaries fit the cache: an image of 224² takes half
# as long as when all 64 of a batch are done at once, and the temporaries do not grow with the batch. The fewer,
# the less often malloc gives them back to the system: LocalColorJitter by PyTorch alone, in batches of 16, was measured
# without page faults at 0.6 ms an image and with 600 at 1.6 ms.
_PIXELS = 2**17


def _in_parts(inpt: Any, params: Params, at_once: int) -> bool:
    """Whether a batch, each sample with its own draw, had better be done part by part."""
    if torch.compiler.is_compiling() or not isinstance(inpt, Tensor) or inpt.device.type != "cpu":
        return False
    if isinstance(inpt, tv_tensors.KeyPoints | tv_tensors.BoundingBoxes):
        return False
    return len(inpt) > at_once and bool(batch_of(params))


# ------------------------------------------------------------------------------------------------------------ colour


class _Color(LocalTransform):
    """A transform that adds fields to some of hue, saturation and value."""

    _transformed_types = (is_pure_tensor, PIL.Image.Image, tv_tensors.Image, tv_tensors.Video)

    def __init__(
        self,
        channels: Mapping[str, Ranges | None],
        *,
        gamma: Ranges,
        spectrum: Spectrum | None,
        period: float,
        bound: Bound,
        p: float,
        per_sample: bool,
        generator: torch.Generator | None,
    ) -> None:
        super().__init__(p=p, per_sample=per_sample, generator=generator)
        self._channels = [name for name, alpha in channels.items() if alpha is not None]
        alphas = [
            _range(self._name, name, alpha, at_least_zero=True) for name, alpha in channels.items() if alpha is not None
        ]
        if not alphas:
            raise ValueError(f"{self._name}: hue, saturation and value are all None; give at least one a range")
        self.gamma, gammas = _ranges(self._name, "gamma", gamma, len(alphas) if len(alphas) > 1 else 1)
        self.spectrum, self.period, self.bound = _checked_law(self._name, spectrum, period, bound)
        self.law = FieldLaw(len(alphas), gammas, alphas, self.spectrum, self.period, self.bound)

    def draw(self, size: tuple[int, int], source: Source) -> Params:
        # A quarter of a grey level, one standard deviation; a turn of the hue takes a channel up and down six times.
        unseen = 0.25 / 255 / (6 if "hue" in self._channels else 1)
        return self.law.draw(size, source, unseen=unseen, p=self.p)

    def _done_to(self, inpt: Any, params: Params, size: tuple[int, int], device: torch.device) -> Any:
        shifts = dict(zip(self._channels, self.fields(params, size, device).unbind(-3), strict=True))
        try:
            return functional.shift_hsv(inpt, **shifts)
        except ValueError as error:
            raise ValueError(str(error).replace("shift_hsv", self._name, 1)) from None


class _OneColor(_Color):
    channel: ClassVar[str]

    def __init__(
        self,
        *,
        gamma: Ranges = (7, 10),
        alpha: Ranges = (0, 1 / 3),
        p: float = 1.0,
        spectrum: Spectrum | None = None,
        period: float = 1.0,
        bound: Bound = "peak",
        per_sample: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        self_alpha = _range(type(self).__name__, "alpha", alpha, at_least_zero=True)
        super().__init__(
            {self.channel: self_alpha},
            gamma=gamma,
            spectrum=spectrum,
            period=period,
            bound=bound,
            p=p,
            per_sample=per_sample,
            generator=generator,
        )
        self.alpha = _as_given(self_alpha)


class LocalHue(_OneColor):
    """Add a field to the hue, in turns of the colour wheel, around which it wraps.

    RGB images only; arguments are those of `LocalWarp`, without the geometry.

    >>> LocalHue(alpha=(0, 1 / 3))(torch.rand(3, 37, 53)).shape
    torch.Size([3, 37, 53])
    """

    channel = "hue"


class LocalSaturation(_OneColor):
    """Add a field to the saturation, clamped to [0, 1]. In HSV a grey has hue 0, so a saturated grey turns red.

    RGB images only; arguments are those of `LocalWarp`, without the geometry.

    >>> LocalSaturation(alpha=0.2)(torch.rand(3, 37, 53)).shape
    torch.Size([3, 37, 53])
    """

    channel = "saturation"


class LocalValue(_OneColor):
    """Add a field to the value (brightness), clamped to [0, 1].

    RGB images, or images of one channel; arguments are those of `LocalWarp`, without the geometry.

    >>> LocalValue(alpha=0.2)(torch.rand(1, 37, 53)).shape
    torch.Size([1, 37, 53])
    """

    channel = "value"


class LocalColorJitter(_Color):
    """Add independent fields to hue (it wraps), saturation and value (clamped): section 3.2 of the paper.

    Args:
        hue: bound of the field added to the hue, in turns: a number, a (low, high) range, or None to leave hue alone.
        saturation: the same for saturation.
        value: the same for value; alone (hue=None, saturation=None) it takes images of one channel.
        gamma, p, spectrum, period, bound, per_sample, generator: as for `LocalWarp`.

    >>> LocalColorJitter(hue=(0, 0.1), value=None)(torch.rand(3, 37, 53)).shape
    torch.Size([3, 37, 53])
    """

    def __init__(
        self,
        *,
        hue: Range | None = (0, 1 / 3),
        saturation: Range | None = (0, 1 / 3),
        value: Range | None = (0, 1 / 3),
        gamma: Ranges = (7, 10),
        p: float = 1.0,
        spectrum: Spectrum | None = None,
        period: float = 1.0,
        bound: Bound = "peak",
        per_sample: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(
            {"hue": hue, "saturation": saturation, "value": value},
            gamma=gamma,
            spectrum=spectrum,
            period=period,
            bound=bound,
            p=p,
            per_sample=per_sample,
            generator=generator,
        )
        self.hue, self.saturation, self.value = (
            None if alpha is None else _as_given(_range(self._name, name, alpha, at_least_zero=True))
            for name, alpha in (("hue", hue), ("saturation", saturation), ("value", value))
        )


# ----------------------------------------------------------------------------------------------------------- configs


def from_config(config: Mapping[str, Any]) -> Any:
    """Build a transform from `{class name: its config}`.

    >>> from_config({"LocalTranslate": {"alpha": [0, 0.2], "p": 0.8}}).alpha
    (0.0, 0.2)
    """
    bare = {Drawn, LocalTransform, LocalWarp}  # these do nothing by themselves
    classes = {c.__name__: c for c in _subclasses(Drawn) - bare if not c.__name__.startswith("_")}
    if len(config) != 1 or not set(config) <= classes.keys():
        raise ValueError(
            f"from_config: expected one of {', '.join(sorted(classes))} with its settings, such as "
            f"{{'LocalTranslate': {{'alpha': 0.2}}}}, got {dict(config)!r}"
        )
    ((name, settings),) = config.items()
    return classes[name](**settings)


def _subclasses(cls: type[Drawn]) -> set[type[Drawn]]:
    return {cls}.union(*(_subclasses(c) for c in cls.__subclasses__()))


_SPECTRA = {c.__name__: c for c in (power_law, matern, squared_exponential)}


def _plain(what: str, value: Any) -> Any:
    if isinstance(value, Drawn):
        return {type(value).__name__: value.config}
    if isinstance(value, tuple | list):
        return [_plain(what, v) for v in value]
    if isinstance(value, Mapping):
        return {k if isinstance(k, str) else k.__name__: _plain(what, v) for k, v in value.items()}
    if type(value) in _SPECTRA.values():
        return {type(value).__name__: dataclasses.asdict(value)}
    if callable(value):
        raise ValueError(f"{what}={value!r} is a function of your own and cannot be written as plain data")
    return value


# ---------------------------------------------------------------------------------------------------------- settings


def _checked_law(name: str, spectrum: Any, period: float, bound: Bound) -> tuple[Spectrum | None, float, Bound]:
    fields.check_period(name, period)
    fields.check_bound(name, bound)
    if isinstance(spectrum, Mapping) and len(spectrum) == 1 and set(spectrum) <= _SPECTRA.keys():
        ((kind, settings),) = spectrum.items()
        spectrum = _SPECTRA[kind](**settings)
    if spectrum is not None:
        fields.check_spectrum(name, spectrum)
    return spectrum, float(period), bound


def _is_number(value: object) -> bool:
    """Of Python's or of NumPy's types."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _range(name: str, argument: str, value: Any, *, at_least_zero: bool = False) -> tuple[float, float]:
    """(low, high) from a number or a pair of them."""
    bounds = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value, value)
    expected = f"{name}: {argument} must be a finite number or a (low, high) pair of them"
    if len(bounds) != 2 or not all(map(_is_number, bounds)):
        raise ValueError(f"{expected}, got {value!r}")
    low, high = float(bounds[0]), float(bounds[1])
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError(f"{expected}, got {value!r}")
    if at_least_zero and low < 0:
        raise ValueError(
            f"{name}: {argument} must be at least 0, got {value!r}; it bounds the magnitude of a field of both signs"
        )
    if low > high:
        raise ValueError(f"{name}: {argument} is a (low, high) range, got low {low} > high {high}; swap them")
    return low, high


def _as_given(bounds: tuple[float, float]) -> float | tuple[float, float]:
    return bounds[0] if bounds[0] == bounds[1] else bounds


def _ranges(
    name: str, argument: str, value: Any, count: int, *, at_least_zero: bool = False
) -> tuple[Any, list[tuple[float, float]]]:
    """The setting in its shortest form, and as a list of one range for all fields or one for each."""
    if isinstance(value, Sequence) and any(isinstance(v, Sequence) and not isinstance(v, str) for v in value):
        if len(value) != count or count == 1:
            raise ValueError(
                f"{name}: {argument} has {len(value)} ranges, but the transform has {count} "
                f"field{'s' if count > 1 else ''}, got {value!r}"
            )
        each = [_range(name, argument, v, at_least_zero=at_least_zero) for v in value]
        return tuple(each), each
    shared = _range(name, argument, value, at_least_zero=at_least_zero)
    return _as_given(shared), [shared]


def _fill_by_type(name: str, fill: Fill) -> dict[str, functional.Fill]:
    by_type = fill if isinstance(fill, Mapping) else {"others": fill}
    named: dict[str, functional.Fill] = {}
    for kind, value in by_type.items():
        values = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        if not values or not all(isinstance(v, int | float) and math.isfinite(v) for v in values):
            raise ValueError(
                f"{name}: fill must be a finite number, one for each channel, or a dict from type (or 'others') to "
                f"these, got {fill!r}"
            )
        if not isinstance(kind, type) and kind not in _FILLED:
            raise ValueError(
                f"{name}: fill must be a dict from a type, or a name out of {', '.join(_FILLED)}, got {fill!r}"
            )
        named[kind if isinstance(kind, str) else kind.__name__] = value
    return named


_FILLED = ("Image", "Video", "Mask", "Tensor", "others")


def _require_one_of(name: str, argument: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name}: {argument} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


# ------------------------------------------------------------------------------------------------------------ inputs


def _layout(name: str, inputs: list[Any]) -> tuple[tuple[int, int], torch.device, tuple[int, ...]]:
    """Size, device and batch of a sample. The batch is what leads an image's [C, H, W] or a video's [T, C, H, W];
    without either, all that leads the planes of a mask, the points [n, 2] or the boxes [n, 4]."""
    sizes = {_size(name, inpt) for inpt in inputs}
    if len(sizes) > 1:
        raise ValueError(
            f"{name}: the parts of a sample must have one size, got (height, width) {sorted(sizes)}; resize them, "
            "or replay the same params on each"
        )
    ((height, width),) = sizes
    device, rank = torch.device("cpu"), -1
    batch: tuple[int, ...] = ()
    for inpt in inputs:
        if isinstance(inpt, PIL.Image.Image):
            mine, trailing = 2, 0
        elif isinstance(inpt, tv_tensors.Video):
            mine, trailing = 2, 4
        elif isinstance(inpt, tv_tensors.Mask | tv_tensors.KeyPoints | tv_tensors.BoundingBoxes):
            mine, trailing = 1, 2
        else:
            mine, trailing = 2, 3
        if mine > rank:
            rank = mine
            if isinstance(inpt, Tensor):
                device, batch = inpt.device, tuple(inpt.shape[:-trailing])
            else:
                device, batch = torch.device("cpu"), ()
    return (height, width), device, batch


def _size(name: str, inpt: Any) -> tuple[int, int]:
    if isinstance(inpt, tv_tensors.KeyPoints | tv_tensors.BoundingBoxes):
        height, width = inpt.canvas_size
    elif isinstance(inpt, Tensor):
        if inpt.ndim < 2:  # labels, say: with no Image beside them, torchvision takes the first tensor for one
            raise ValueError(
                f"{name}: expected an image [..., H, W], got a tensor of shape {tuple(inpt.shape)}; wrap what is one "
                "in tv_tensors.Image, and other tensors pass"
            )
        height, width = inpt.shape[-2:]
    else:
        width, height = inpt.size
    return operator.index(height), operator.index(width)  # a graph being compiled is for this size

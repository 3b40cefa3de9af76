"""The paper's augmentation pipeline: SimCLR's views with a local transform inside (section 4).

In order: random crop, resized to `size`; the local transform; horizontal flip (p 0.5); colour jitter (p 0.8); grey
(p 0.2); Gaussian blur (p 0.5); normalisation. Distributions are SimCLR's, as in the pretraining code of its authors and
of torchvision: every step equals torchvision's own functional with the same parameters, which the tests check.

Two ways in. An image (PIL, or uint8 or float [3, H, W]) becomes views in a `DataLoader` worker. A batch [B, 3, H, W],
uint8 or float, becomes views on the device that holds it, every sample with its own draws. Both draw by the same code.
What was drawn is applied sample by sample on the CPU, where a large image fits the cache and what is not to be done is
skipped. Small views, of which many fit, are made together, each step on those samples that have it. On an accelerator
all are made at once, without the host ever asking what was drawn: a step that a sample skips gets the parameters that
change nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import PIL.Image
import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision import tv_tensors
from torchvision.transforms.v2 import functional as tvf

from randfield import color, fields, kernels
from randfield.draws import Params, Source, taken
from randfield.fields import cached
from randfield.threads import in_threads
from randfield.transforms import Drawn, LocalTransform, from_config

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Shaped

__all__ = ["SimCLRViews"]

# https://github.com/pytorch/examples/blob/main/imagenet/main.py
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_GREY = (0.2989, 0.587, 0.114)  # ITU-R 601-2 luma, as torchvision has it
_RATIO = (3 / 4, 4 / 3)
_LOG_RATIO = (math.log(3 / 4), math.log(4 / 3))
_TRIES = 10
_NUMBERS = 2 * _TRIES + 15  # that a view takes
_AMOUNTS = ("factors", "hue", "grey", "sigma")
_STEPS = ("crop", "flip", "order", *_AMOUNTS)
_BRIGHTNESS, _CONTRAST, _SATURATION, _HUE = range(4)
_UNCHANGED = (1.0, 1.0, 1.0, 0.0)  # the amounts of these that change nothing

# On two cores a view of 32² takes 45 µs when a batch is done together and 260 µs alone, of 64² 140 and 310, of 96² the
# same 400, of 224² 4000 and 1100. Together means so many pixels at a time, whose temporaries fit the cache.
_SMALL, _PIXELS = 64, 2**18


class SimCLRViews(Drawn):
    """SimCLR's random views of an image or of a batch, with a local transform after the crop.

    Accepts PIL images (converted to RGB), uint8 or float tensors and `Image`s [3, H, W] (one channel is repeated), and
    batches of tensors [B, 3, H, W] on any device. Floats are colours in [0, 1]. Returns a list of `n_views` float32
    tensors [3, size, size] or [B, 3, size, size]. Inside a sample, labels and whatever else pass through:
    `views((image, 7))` is `([view, view], 7)`.

    Args:
        size: side of the views in pixels.
        local: a local transform such as `LocalTranslate(p=0.8)`, or its config; None for SimCLR as it was.
        n_views: how many views of each image.
        strength: of the colour jitter; SimCLR's s. Brightness, contrast and saturation vary by ±0.8 s, hue by ±0.2 s.
        blur: whether half of the views are blurred, with sigma from 0.1 to 2 pixels over a tenth of the image.
        crop_scale: range of the crop's share of the image's area.
        normalize: by the mean and deviation of ImageNet's colours; else views stay in [0, 1].
        per_sample: own draws for every sample of a batch, the rule in SimCLR; else one draw for each view.
        generator: source of the randomness, see `LocalTransform`; the local transform draws from it too.

    >>> from randfield import LocalTranslate
    >>> views = SimCLRViews(32, LocalTranslate(p=0.8))
    >>> [view.shape for view in views(torch.rand(3, 37, 53))]
    [torch.Size([3, 32, 32]), torch.Size([3, 32, 32])]
    >>> [view.shape for view in views(torch.rand(8, 3, 37, 53))]
    [torch.Size([8, 3, 32, 32]), torch.Size([8, 3, 32, 32])]
    """

    _transformed_types = (tvf.is_pure_tensor, PIL.Image.Image, tv_tensors.Image)

    def __init__(
        self,
        size: int = 224,
        local: LocalTransform | Mapping[str, Any] | None = None,
        *,
        n_views: int = 2,
        strength: float = 1.0,
        blur: bool = True,
        crop_scale: Sequence[float] = (0.08, 1.0),
        normalize: bool = True,
        per_sample: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(per_sample=per_sample, generator=generator)
        for name, number in (("size", size), ("n_views", n_views)):
            if not isinstance(number, int) or number < 1:
                raise ValueError(f"SimCLRViews: {name} must be a whole number of at least 1, got {number!r}")
        if not (isinstance(strength, int | float) and 0 <= strength <= 1.25):
            raise ValueError(
                f"SimCLRViews: strength must be in [0, 1.25], got {strength!r}; at 1.25 brightness reaches from 0 to 2"
            )
        scale = tuple(crop_scale) if isinstance(crop_scale, Sequence) else ()
        if len(scale) != 2 or not all(isinstance(s, int | float) for s in scale) or not 0 < scale[0] <= scale[1] <= 1:
            raise ValueError(f"SimCLRViews: crop_scale must be a (low, high) range in (0, 1], got {crop_scale!r}")
        for name, choice in (("blur", blur), ("normalize", normalize)):
            if choice not in (True, False):
                raise ValueError(f"SimCLRViews: {name} must be True or False, got {choice!r}")
        local = from_config(local) if isinstance(local, Mapping) else local
        if local is not None and not isinstance(local, LocalTransform):
            raise ValueError(
                f"SimCLRViews: local must be a local transform such as LocalTranslate(p=0.8), or None, got {local!r}; "
                "put other transforms before or after the views"
            )
        self.size = size
        self.local = local
        self.n_views = n_views
        self.strength = float(strength)
        self.blur = bool(blur)
        self.crop_scale = (float(scale[0]), float(scale[1]))
        self.normalize = bool(normalize)

    # -- drawing

    def make_params(self, flat_inputs: list[Any]) -> Params:
        """What each view does to each sample: {"views": [{step: one entry for each sample}, …]}.

        A step that is skipped has the entry that changes nothing: a factor of one, a sigma of zero.
        """
        if not flat_inputs:
            return {}
        shapes = {_batch_and_size(inpt) for inpt in flat_inputs}
        if len(shapes) > 1:
            raise ValueError(f"SimCLRViews: the images of a sample must have one shape, got {sorted(shapes)}")
        ((batch, height, width),) = shapes
        device = next((inpt.device for inpt in flat_inputs if isinstance(inpt, Tensor)), torch.device("cpu"))
        samples = batch if self.per_sample else None  # None: one draw for all
        n = 1 if samples is None else samples
        together = self._together(device, batch is not None)
        generator = self._generator()
        at = device if generator is None else generator.device
        u = torch.rand((self.n_views, n, _NUMBERS), generator=generator, device=at, dtype=torch.float32)
        views: list[Params]
        if together:
            views = [self._steps_of_all(its, height, width) for its in u.to(device)]
        else:
            drawn = [[self._steps(one, height, width) for one in its] for its in u.tolist()]
            views = [{step: [one[step] for one in its] for step in _STEPS} for its in drawn]
        if self.local is not None:
            source = Source(device, (n,) if together and samples is not None else (), generator)
            size, times = (self.size, self.size), 1 if together else n
            for view in views:
                local = [self.local.draw(size, source) for _ in range(times)]
                view["local"] = local[0] if together else local
        return {"views": views}

    def _together(self, device: torch.device, batched: bool) -> bool:
        """Whether samples are drawn and done all at once rather than one by one."""
        return device.type != "cpu" or (batched and self.size <= _SMALL)

    def _steps(self, u: list[float], height: int, width: int) -> Params:
        """What one view does, but for the local transform, from numbers in [0, 1)."""
        area, aspect, rest = u[:_TRIES], u[_TRIES : 2 * _TRIES], u[2 * _TRIES :]
        top, left, flip, jitter, brightness, contrast, saturation, hue, grey, blur, sigma, *order = rest
        crop = self._central_crop(height, width)
        for a, b in zip(area, aspect, strict=True):  # torchvision's RandomResizedCrop: the first of ten tries that fits
            pixels = (self.crop_scale[0] + (self.crop_scale[1] - self.crop_scale[0]) * a) * (height * width)
            ratio = math.exp(_LOG_RATIO[0] + (_LOG_RATIO[1] - _LOG_RATIO[0]) * b)
            w, h = round(math.sqrt(pixels * ratio)), round(math.sqrt(pixels / ratio))
            if 0 < w <= width and 0 < h <= height:
                crop = [int(top * (height - h + 1)), int(left * (width - w + 1)), h, w]
                break
        s = self.strength if jitter < 0.8 else 0.0
        return {
            "crop": crop,
            "flip": flip < 0.5,
            "order": sorted(range(4), key=order.__getitem__),
            "factors": [max(0.0, 1 + 0.8 * s * (2 * f - 1)) for f in (brightness, contrast, saturation)],
            "hue": 0.2 * s * (2 * hue - 1),
            "grey": float(grey < 0.2),
            "sigma": 0.1 + 1.9 * sigma if self.blur and blur < 0.5 else 0.0,
        }

    def _central_crop(self, height: int, width: int) -> list[int]:
        """The largest crop of an allowed aspect, for when none of the tries fits: top, left, height, width."""
        w, h = min(width, max(1, round(height * _RATIO[1]))), min(height, max(1, round(width / _RATIO[0])))
        return [(height - h) // 2, (width - w) // 2, h, w]

    def _steps_of_all(self, u: Float[Tensor, "b n"], height: int, width: int) -> dict[str, Tensor]:
        """The same for every row of u, on any device."""
        area, aspect, rest = u.split([_TRIES, _TRIES, _NUMBERS - 2 * _TRIES], -1)
        low, high = self.crop_scale
        top, left, flip, jitter, brightness, contrast, saturation, hue, grey, blur, sigma = rest[:, :11].unbind(-1)
        order = rest[:, 11:].argsort(-1)

        area = (low + (high - low) * area) * (height * width)
        aspect = torch.exp(_LOG_RATIO[0] + (_LOG_RATIO[1] - _LOG_RATIO[0]) * aspect)
        widths, heights = (area * aspect).sqrt().round(), (area / aspect).sqrt().round()
        fits = (widths > 0) & (widths <= width) & (heights > 0) & (heights <= height)
        first, any_fits = fits.float().argmax(-1, keepdim=True), fits.any(-1)
        central_top, central_left, central_h, central_w = self._central_crop(height, width)
        crop_w = torch.where(any_fits, widths.gather(-1, first).squeeze(-1), central_w)
        crop_h = torch.where(any_fits, heights.gather(-1, first).squeeze(-1), central_h)
        top = torch.where(any_fits, (top * (height - crop_h + 1)).floor(), central_top)
        left = torch.where(any_fits, (left * (width - crop_w + 1)).floor(), central_left)

        jittered, strength = jitter < 0.8, self.strength
        factors = torch.stack([brightness, contrast, saturation], -1) * 2 - 1
        factors = torch.where(jittered.unsqueeze(-1), (1 + 0.8 * strength * factors).clamp_min(0), 1.0)
        return {
            "crop": torch.stack([top, left, crop_h, crop_w], -1).long(),
            "flip": flip < 0.5,
            "order": order,
            "factors": factors,
            "hue": torch.where(jittered, 0.2 * strength * (hue * 2 - 1), 0.0),
            "grey": (grey < 0.2).float(),
            "sigma": torch.where((blur < 0.5) & self.blur, 0.1 + 1.9 * sigma, 0.0),
        }

    # -- applying

    def transform(self, inpt: Any, params: Params) -> list[Tensor]:
        image = _as_tensor(inpt)
        drawn, samples = len(params["views"][0]["crop"]), len(image) if image.ndim == 4 else 1
        if drawn not in (1, samples):
            raise ValueError(
                f"SimCLRViews: parameters were drawn for {drawn} samples, but the input has shape "
                f"{tuple(image.shape)}; draw for this batch, or take(params, samples) what is for its samples"
            )
        if image.ndim == 4:
            return [self._view(image, view, batched=True) for view in params["views"]]
        return [self._view(image.unsqueeze(0), view, batched=False).squeeze(0) for view in params["views"]]

    def _view(self, images: Tensor, view: Params, *, batched: bool) -> Tensor:
        if images.device.type != "cpu" or torch.compiler.is_compiling():
            return self._apply_to_all(images, view, look=False)
        if not batched and isinstance(view.get("local", []), list):
            return self._apply_to_one(images[0], {step: drawn[0] for step, drawn in view.items()}).unsqueeze(0)
        together = self._together(images.device, batched) or isinstance(view.get("local"), dict)

        at_once = max(1, _PIXELS // self.size**2) if together else 1
        out = images.new_empty((len(images), 3, self.size, self.size), dtype=torch.float32)

        def fill(start: int) -> None:
            some = slice(start, start + at_once)
            its = view if len(view["crop"]) == 1 else _taken(view, some)
            if together:
                out[some] = self._apply_to_all(images[some], its, look=True)
            else:
                out[start] = self._apply_to_one(images[start], {step: drawn[0] for step, drawn in its.items()})

        in_threads(fill, range(0, len(images), at_once))
        return out

    def take(self, params: Params, samples: slice) -> Params:
        """The params of some of a batch's samples, for a process that holds only these.

        >>> views, batch = SimCLRViews(8), torch.rand(6, 3, 9, 9)
        >>> params = views.make_params([batch])
        >>> share = slice(2, 4)
        >>> part = views.transform(batch[share], views.take(params, share))
        >>> torch.allclose(views.transform(batch, params)[0][share], part[0])
        True
        """
        return {"views": [_taken(view, samples) for view in params["views"]]}

    def _apply_to_one(self, image: Tensor, view: Params) -> Tensor:
        """One view of one image on the CPU: [3, size, size], written over itself from the crop on."""
        top, left, height, width = view["crop"]
        crop = image[:, top : top + height, left : left + width]
        x = tvf.resize(crop, [self.size, self.size], antialias=True)
        x = x.to(torch.float32, copy=True) if x.is_floating_point() else x.to(torch.float32).div_(255)
        x = x.expand(3, -1, -1).contiguous()
        if view.get("local"):
            assert self.local is not None
            x = self.local.transform(x, view["local"])
        if view["flip"]:
            x = x.flip(-1)
        amounts = (*view["factors"], view["hue"])
        for step in view["order"]:
            if amounts[step] != _UNCHANGED[step]:
                x = _jitter(x, step, amounts[step])
        if view["grey"]:
            x = _luma(x).expand(3, -1, -1).contiguous()
        if view["sigma"]:
            x = _blur(x, view["sigma"], self._blur_radius)
        return self._normalised(x)

    def _apply_to_all(self, images: Tensor, view: Params, *, look: bool) -> Tensor:
        """One view of every image at once: [B, 3, size, size].

        Where the host may look at what was drawn, a step is for the samples that have it; else it is dense arithmetic.
        """
        n, _, height, width = images.shape
        device = images.device
        local = view.get("local")
        view = {
            step: torch.as_tensor(drawn, dtype=torch.float32 if step in _AMOUNTS else None, device=device)
            for step, drawn in view.items()
            if step != "local"
        }
        view = {step: drawn.expand(n, *drawn.shape[1:]) for step, drawn in view.items()}
        top, left, crop_h, crop_w = view["crop"].unbind(-1)
        x = images.to(torch.float32, copy=True)
        if not images.is_floating_point():
            x.div_(255)
        rows = _resize_matrix(top, crop_h, height, self.size)
        columns = _resize_matrix(left, crop_w, width, self.size)
        with fields.full_precision(device):
            x = (rows.unsqueeze(1) @ x @ columns.unsqueeze(1).mT).expand(n, 3, -1, -1)
        if isinstance(local, list):  # drawn one by one
            assert self.local is not None
            each = local * n if len(local) == 1 else local
            x = torch.stack([self.local.transform(one, its) for one, its in zip(x, each, strict=True)]) if n else x
        elif local:
            assert self.local is not None
            x = self.local.transform(x, local)
        on = _on_those if look else _on_all
        x = on(view["flip"], lambda x: x.flip(-1), x)
        if look:
            amounts = torch.cat([view["factors"], view["hue"].unsqueeze(-1)], -1)
            changed = amounts != amounts.new_tensor(_UNCHANGED)
            for turn in range(4):
                for step in range(4):
                    those = (view["order"][:, turn] == step) & changed[:, step]
                    x = on(those, lambda x, amount, step=step: _jitter(x, step, amount), x, amounts[:, step])
        else:
            for turn in range(4):
                x = _jitter_any(x, view["order"][:, turn], view["factors"], view["hue"])
        x = on(view["grey"] > 0, lambda x: _luma(x).expand(-1, 3, -1, -1), x)
        if self.blur:
            x = on(view["sigma"] > 0, self._blurred, x, view["sigma"])
        return self._normalised(x)

    def _blurred(self, x: Tensor, sigma: Tensor) -> Tensor:
        matrix = _blur_matrix(sigma.flatten(), self._blur_radius, self.size).unsqueeze(1)
        with fields.full_precision(x.device):
            return matrix @ x @ matrix.mT

    @property
    def _blur_radius(self) -> int:
        # SimCLR's kernel is a tenth of the image; reflection reaches no farther than the image.
        return min(int(0.1 * self.size) // 2, self.size - 1)

    def _normalised(self, x: Tensor) -> Tensor:
        if not self.normalize:
            return x
        mean, deviation = _statistics(x.device)
        return x.sub_(mean).div_(deviation)


# --------------------------------------------------------------------------------------------------------------- steps


def _taken(view: Params, samples: slice) -> Params:
    """The part of a view's params that is about some of the samples."""
    return {step: taken(drawn, samples) if isinstance(drawn, dict) else drawn[samples] for step, drawn in view.items()}


def _on_all(
    those: Bool[Tensor, " b"], step: Callable[..., Tensor], x: Float[Tensor, "b c h w"], *numbers: Tensor
) -> Float[Tensor, "b c h w"]:
    return torch.where(_each(those), step(x, *map(_each, numbers)), x)


def _on_those(
    those: Bool[Tensor, " b"], step: Callable[..., Tensor], x: Float[Tensor, "b c h w"], *numbers: Tensor
) -> Float[Tensor, "b c h w"]:
    index = those.nonzero().squeeze(-1)
    if len(index):
        x[index] = step(x[index], *(_each(number[index]) for number in numbers))
    return x


def _each(numbers: Shaped[Tensor, " b"]) -> Shaped[Tensor, "b 1 1 1"]:
    return numbers[:, None, None, None]


def _jitter(x: Float[Tensor, "*batch 3 h w"], step: int, amount: Any) -> Float[Tensor, "*batch 3 h w"]:
    """Written over x. `amount` is a number or one for each sample, [b, 1, 1, 1]."""
    if step == _HUE:
        return color.shift(x, hue=amount[..., 0] if isinstance(amount, Tensor) else x.new_tensor(amount)).clamp_(0, 1)
    if step == _BRIGHTNESS:
        x.mul_(amount)
    elif step == _CONTRAST:
        mean = _luma(x.mean((-2, -1), keepdim=True))
        x.mul_(amount).add_(mean * (1 - amount))
    else:
        x.lerp_(_luma(x), 1 - amount)
    return x.clamp_(0, 1)


def _jitter_any(
    x: Float[Tensor, "b 3 h w"], step: Shaped[Tensor, " b"], factors: Float[Tensor, "b 3"], hue: Float[Tensor, " b"]
) -> Float[Tensor, "b 3 h w"]:
    """Each sample has a step of its own, which the host does not know: brightness, contrast and saturation as one."""
    grey = _luma(x)
    mean = grey.mean((-2, -1), keepdim=True)
    other = torch.where(_each(step == _SATURATION), grey, torch.where(_each(step == _CONTRAST), mean, 0.0))
    factor = factors.gather(-1, step.clamp_max(_SATURATION).unsqueeze(-1)).squeeze(-1)
    factor = torch.where(step == _HUE, 1.0, factor)
    x = torch.lerp(other, x, _each(factor)).clamp_(0, 1)
    hue = torch.where(step == _HUE, hue, 0.0)
    return color.shift(x, hue=hue[:, None, None]).clamp_(0, 1)


def _luma(rgb: Float[Tensor, "*batch 3 h w"]) -> Float[Tensor, "*batch 1 h w"]:
    red, green, blue = rgb.split(1, -3)
    return (red * _GREY[0]).add_(green, alpha=_GREY[1]).add_(blue, alpha=_GREY[2])


def _blur(x: Float[Tensor, "c h w"], sigma: float, radius: int) -> Float[Tensor, "c h w"]:
    """Gaussian blur, mirrored at the edges, by adding shifted copies: at these widths a third of what conv2d takes."""
    weights = [math.exp(-0.5 * (d / sigma) ** 2) for d in range(radius + 1)]
    total = weights[0] + 2 * sum(weights[1:])
    weights = [w / total for w in weights]
    while len(weights) > 1 and weights[-1] < 1e-4:  # a fortieth of a grey level
        weights.pop()
    reach = len(weights) - 1
    if reach == 0:
        return x
    if kernels.fit(x):
        return kernels.blur(x, weights)
    for dim in (-1, -2):
        n = x.shape[dim]
        padded = F.pad(x, (reach, reach, 0, 0) if dim == -1 else (0, 0, reach, reach), mode="reflect")
        x = padded.narrow(dim, reach, n) * weights[0]
        for d in range(1, reach + 1):
            x.add_(padded.narrow(dim, reach - d, n), alpha=weights[d])
            x.add_(padded.narrow(dim, reach + d, n), alpha=weights[d])
    return x


def _blur_matrix(sigma: Float[Tensor, " b"], radius: int, n: int) -> Float[Tensor, "b n n"]:
    """The same along one axis of n pixels as a matrix for each sample; the identity where sigma is zero."""
    d = torch.arange(radius + 1, device=sigma.device)
    weights = torch.exp(-0.5 * (d / sigma.clamp_min(1e-3).unsqueeze(-1)).square())
    weights = weights / (2 * weights.sum(-1, keepdim=True) - weights[:, :1])
    weights = F.pad(weights, (0, 1))  # what is farther away weighs nothing
    i = torch.arange(n, device=sigma.device)
    target, source = i.unsqueeze(-1), i
    far = radius + 1
    straight = (target - source).abs().clamp_max(far)
    low = torch.where(source > 0, (target + source).clamp_max(far), far)  # mirrored at the first pixel's centre
    high = torch.where(source < n - 1, (2 * (n - 1) - target - source).clamp_max(far), far)
    return weights[:, straight] + weights[:, low] + weights[:, high]


def _resize_matrix(
    start: Shaped[Tensor, " b"], length: Shaped[Tensor, " b"], n: int, size: int
) -> Float[Tensor, "b size n"]:
    """Antialiased bilinear resampling of n pixels' `length` from `start` to `size`, as a matrix for each sample."""
    scale = (length.float() / size).unsqueeze(-1)
    centre = (torch.arange(size, dtype=torch.float32, device=start.device) + 0.5) * scale
    pixel = torch.arange(n, dtype=torch.float32, device=start.device) - start.unsqueeze(-1)
    distance = (pixel.unsqueeze(1) + 0.5 - centre.unsqueeze(-1)).abs() / scale.unsqueeze(-1).clamp_min(1)
    inside = (pixel >= 0) & (pixel < length.unsqueeze(-1))
    weight = (1 - distance).clamp_min(0) * inside.unsqueeze(1)
    return weight / weight.sum(-1, keepdim=True)


@cached
def _statistics(device: torch.device) -> tuple[Tensor, Tensor]:
    mean, deviation = (torch.tensor(values, dtype=torch.float32).reshape(3, 1, 1).to(device) for values in (MEAN, STD))
    return mean, deviation


# -------------------------------------------------------------------------------------------------------------- inputs


def _batch_and_size(inpt: Any) -> tuple[int | None, int, int]:
    if isinstance(inpt, PIL.Image.Image):
        return None, inpt.height, inpt.width
    shape = tuple(inpt.shape)
    if len(shape) not in (3, 4) or shape[-3] not in (1, 3) or min(shape[-2:]) < 1:
        raise ValueError(f"SimCLRViews: expected images [3, H, W] or a batch [B, 3, H, W] in RGB, got shape {shape}")
    if inpt.dtype != torch.uint8 and not inpt.is_floating_point():
        raise ValueError(f"SimCLRViews: expected uint8 or floating-point colours, got {inpt.dtype}")
    return (shape[0] if len(shape) == 4 else None), shape[-2], shape[-1]


def _as_tensor(inpt: Any) -> Tensor:
    if isinstance(inpt, PIL.Image.Image):
        with torch.device("cpu"):  # a photo is there, whatever the default device
            return tvf.pil_to_tensor(inpt if inpt.mode == "RGB" else inpt.convert("RGB"))
    return inpt.as_subclass(Tensor) if isinstance(inpt, tv_tensors.TVTensor) else inpt

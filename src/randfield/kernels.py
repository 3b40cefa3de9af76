"""The inner loops in C, where they were compiled: `kernels.c`, called with tensors.

They are what `pip install` makes of that file if it finds a C compiler. What PyTorch computes in a dozen passes over
memory they compute in one: sampling takes six tenths of the time, a shift of colours a third, a blur two fifths. Each
stands in for a few lines of PyTorch in `fields`, `affine`, `warp`, `color` and `views`, which are the reference and the
way for all the rest: other devices and types, gradients, graphs being compiled, machines without the compiler. `fit`
says which it is.

With RANDFIELD_KERNELS=0 in the environment nothing is compiled, and what was compiled is not used.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from randfield.threads import in_threads

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped

__all__ = ["blur", "fit", "left_out", "library", "move", "peak", "pull", "pulls", "shift", "shifts"]

_ATOMS = ("move_rotate", "move_scale", "move_shear", "move_translate")  # as in the C
_HALO = 64


def _load() -> ctypes.CDLL | None:
    """The library that the build hook made from this very source (it names it alike), if this machine can run it."""
    if os.environ.get("RANDFIELD_KERNELS") == "0":
        return None
    source = Path(__file__).with_suffix(".c")
    if not source.exists():
        return None
    made = source.with_name(f"libkernels-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}.so")
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    if not made.exists() or (x86 and torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512")):
        return None
    try:
        return _declared(ctypes.CDLL(str(made)))
    except (OSError, AttributeError):  # made for another machine
        return None


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    at, long, i32 = ctypes.c_void_p, ctypes.c_long, ctypes.c_int
    library.planes.argtypes = [long, at, at]
    library.peak.argtypes = [long, long, at, at]
    library.pull.argtypes = [long, long, i32, i32, at, at, at, at, long, long, i32, at, at]
    library.move.argtypes = [i32, long, long, long, at, at, at, at, at, at, at]
    library.shift.argtypes = [long, long, at, at, at, at, at, at]
    library.blur.argtypes = [long, long, long, at, at, i32, at]
    for function in (library.planes, library.peak, library.pull, library.move, library.shift, library.blur):
        function.restype = None
    return library


library = _load()
"""The compiled kernels; None where there are none."""


@contextmanager
def left_out() -> Iterator[None]:
    """Do without the kernels for a while, in all threads: for tests and benchmarks."""
    global library
    kept, library = library, None
    try:
        yield
    finally:
        library = kept


def fit(*tensors: Tensor | None) -> bool:
    """Whether the kernels may be given the memory of these: plain float32 or uint8 tensors on the CPU, no gradients."""
    if torch.compiler.is_compiling() or library is None or torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    return all(t is None or _plain(t) for t in tensors)


def _plain(t: Tensor) -> bool:
    return (
        type(t) in (Tensor, torch.nn.Parameter)
        and t.dtype in (torch.float32, torch.uint8)
        and t.device.type == "cpu"
        and not (t.requires_grad and torch.is_grad_enabled())
        and not t.is_neg()
        and torch.autograd.forward_ad._current_level < 0
    )


def _planar(image: Shaped[Tensor, "*batch c h w"]) -> Shaped[Tensor, "*batch c h w"]:
    """The image with contiguous planes; from a PIL image, uint8 pixel by pixel, in a quarter of the time of PyTorch."""
    height, width = image.shape[-2:]
    from_pil = (
        image.dtype == torch.uint8 and image.stride()[-3:] == (1, 3 * width, 3) and image.numel() == 3 * height * width
    )
    if not from_pil:
        return image.contiguous()
    out = torch.empty_like(image, memory_format=torch.contiguous_format)
    _library().planes(height * width, image.data_ptr(), out.data_ptr())
    return out


def peak(phi: Float[Tensor, "*batch h w"]) -> Float[Tensor, "*batch 1 1"]:
    """`fields.peak_of`, for fields of two axes."""
    phi = phi.contiguous()
    out = phi.new_empty((*phi.shape[:-2], 1, 1))
    _library().peak(out.numel(), phi.shape[-2] * phi.shape[-1], phi.data_ptr(), out.data_ptr())
    return out


def pulls(image: Tensor, grid: Tensor) -> bool:
    """Whether `pull` will do: as `fit` says, and there is an image of two columns or more for each of the grids."""
    width = image.shape[-1]
    return (
        grid.dtype == torch.float32
        and len(image) == len(grid)
        and image.numel() > 0
        and width > 1
        and image.shape[-2] * width < 2**31
        and fit(image, grid)
    )


def pull(
    image: Shaped[Tensor, "n c h w"], grid: Float[Tensor, "n height width 2"], *, reflect: bool
) -> Shaped[Tensor, "n c height width"]:
    """`warp.pull`, bilinear, with padding "reflection" or "border"; uint8 is rounded."""
    n, channels, height, width = image.shape
    rows, columns = grid.shape[1:3]
    image = _planar(image)
    out = image.new_empty((n, channels, rows, columns))
    strides = (ctypes.c_long * 4)(*grid.stride())

    pixels, points, target = image.data_ptr(), grid.data_ptr(), out.data_ptr()
    floats, step_in, step_out = image.dtype == torch.float32, image[0].nbytes, out[0].nbytes

    def some(first: int, end: int) -> None:
        source, result = pixels + first * step_in, target + first * step_out
        _library().pull(
            end - first,
            channels,
            height,
            width,
            source if floats else None,
            None if floats else source,
            points + first * grid.stride(0) * grid.itemsize,
            strides,
            rows,
            columns,
            reflect,
            result if floats else None,
            None if floats else result,
        )

    parts = min(n, torch.get_num_threads())
    if parts <= 1:
        some(0, n)
    else:
        in_threads(lambda part: some(part * n // parts, (part + 1) * n // parts), range(parts))
    return out


def move(
    atom: Callable[..., Any],
    x: Tensor,
    y: Tensor,
    phi: Float[Tensor, "*batch fields h w"],
    factor: float | Tensor,
) -> Float[Tensor, "*batch 2 h w"]:
    """`affine.move_*`, whichever `atom` is, with the fields phi · factor, as planes of x and y; written over phi."""
    *batch, fields, height, width = phi.shape
    phi = phi.contiguous()
    planes = phi if fields == 2 else phi.new_empty((*batch, 2, height, width))
    factors = torch.as_tensor(factor, dtype=torch.float32, device=phi.device).expand(*batch, fields, 1, 1).contiguous()
    x, y = (t.expand(*batch, height, width).reshape(-1, height, width) for t in (x, y))
    _library().move(
        _ATOMS.index(atom.__name__),
        len(x),
        height,
        width,
        phi.data_ptr(),
        factors.data_ptr(),
        x.data_ptr(),
        (ctypes.c_long * 3)(*x.stride()),
        y.data_ptr(),
        (ctypes.c_long * 3)(*y.stride()),
        planes.data_ptr(),
    )
    return planes


def shifts(rgb: Tensor, *fields: Tensor | None) -> bool:
    """Whether `shift` will do: as `fit` says, and the fields have no samples that the images do not have."""
    size = (*rgb.shape[:-3], *rgb.shape[-2:])[::-1]
    return fit(rgb, *fields) and all(
        g is None
        or (
            g.dtype == torch.float32
            and g.ndim <= len(size)
            and all(a in (1, b) for a, b in zip(reversed(g.shape), size, strict=False))
        )
        for g in fields
    )


def shift(rgb: Shaped[Tensor, "*batch 3 h w"], *fields: Float[Tensor, "..."] | None) -> Shaped[Tensor, "*batch 3 h w"]:
    """`color.shift` by the fields of hue, saturation and value, which broadcast to the planes; uint8 is rounded."""
    *batch, _, height, width = rgb.shape
    rgb, pixels, floats = _planar(rgb), height * width, rgb.dtype == torch.float32
    out = torch.empty_like(rgb)
    expanded = [None if g is None else g.expand(*batch, height, width) for g in fields]
    for index in product(*map(range, batch[:-1])):
        given, strides = [], []
        for g in expanded:
            g = None if g is None else g[index]
            if g is not None and g.stride(-2) != width * g.stride(-1):  # rows do not follow one another
                g = g.contiguous()
            given.append(g)
            strides += [0, 0] if g is None else [g.stride(0) if batch else 0, g.stride(-1)]
        source, target = rgb[index].data_ptr(), out[index].data_ptr()
        _library().shift(
            batch[-1] if batch else 1,
            pixels,
            (ctypes.c_void_p * 3)(*(None if g is None else g.data_ptr() for g in given)),
            (ctypes.c_long * 6)(*strides),
            source if floats else None,
            None if floats else source,
            target if floats else None,
            None if floats else target,
        )
    return out


def blur(x: Float[Tensor, "c h w"], weights: Sequence[float]) -> Float[Tensor, "c h w"]:
    """Both axes convolved with weights[0 … reach] to either side, mirrored at the edges' pixel centres."""
    reach = len(weights) - 1
    if reach >= min(*x.shape[-2:], _HALO):
        raise ValueError(f"blur: expected a reach below {_HALO} and both sides of {tuple(x.shape)}, got {reach}")
    x, out = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    _library().blur(*x.shape, x.data_ptr(), (ctypes.c_float * len(weights))(*weights), reach, out.data_ptr())
    return out


def _library() -> ctypes.CDLL:
    assert library is not None
    return library

"""The explorer: a local web page on which one turns the settings and sees what happens to a photo.

Two halves. The first is pure: `Settings` are plain data that a link carries; from them come the transform, the pictures
that `explain` one draw of it and the `code` that makes the same view elsewhere. The second half hangs them on a page
(Gradio, imported there alone) and serves it.

A change costs one request and one answer, which holds all pictures as data: nothing is written to disk and nothing is
fetched a second time. The page loads nothing from elsewhere, and its content security policy has the browser see to it.
"""

from __future__ import annotations

import base64
import html
import inspect
import io
import os
import socket
import sys
import tempfile
import textwrap
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as tvf

from randfield import affine, drawing, pictures
from randfield.draws import Params
from randfield.names import COLOUR, GEOMETRY
from randfield.transforms import LocalAffine, LocalColorJitter, LocalTransform, LocalWarp

if TYPE_CHECKING:
    import gradio as gr
    from fastapi import FastAPI

__all__ = ["PRESETS", "Explained", "Photo", "Settings", "code", "explain", "load", "serve"]


# --------------------------------------------------------------------------------------------------------- settings

_LIMITS = {"gamma": (0.0, 12.0), "alpha": (0.0, 1.0), "p": (0.0, 1.0), "period": (1.0, 4.0), "seed": (0, 2**32 - 1)}
_CHOICES = {
    "transforms": (*GEOMETRY, *COLOUR),
    "bound": ("peak", "clip", "none"),
    "padding": ("reflection", "border", "zeros"),
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the page's controls say; the defaults are the paper's best.

    >>> Settings(alpha=(0.1, 0.2)).query()[:40]
    'transforms=translate&gamma=7,10&alpha=0.'
    >>> Settings.from_query("transforms=rotate,hue&gamma=8").transforms
    ('rotate', 'hue')
    """

    transforms: tuple[str, ...] = ("translate",)
    gamma: tuple[float, float] = (7.0, 10.0)
    alpha: tuple[float, float] = (0.0, 0.333)
    p: float = 0.8
    period: float = 1.0
    bound: str = "peak"
    padding: str = "reflection"
    fold_free: bool = False
    seed: int = 2  # whose draw is neither weak nor strong
    views: int = 1

    def __post_init__(self) -> None:
        if not self.transforms:
            raise ValueError(f"transforms: choose at least one of {', '.join(_CHOICES['transforms'])}")
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            for one in value if isinstance(value, tuple) else [value]:
                if one not in allowed:
                    raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {one!r}")
        for name, (low, high) in _LIMITS.items():
            value = getattr(self, name)
            numbers = value if isinstance(value, tuple) else (value,)
            if not all(isinstance(v, int | float) and low <= v <= high for v in numbers):
                raise ValueError(f"{name} must lie between {_typed(low)} and {_typed(high)}, got {_typed(value)}")
            if list(numbers) != sorted(numbers):
                raise ValueError(f"{name} is a lowest and a highest value, got {_typed(value)}; swap them")
        if self.views not in (1, MANY):
            raise ValueError(f"views must be 1 or {MANY}, got {self.views!r}")

    def query(self) -> str:
        """The query string of a link to these settings."""
        return urlencode({field.name: _typed(getattr(self, field.name)) for field in fields(self)}, safe=",")

    @classmethod
    def from_query(cls, query: str) -> Settings:
        """The settings of a link; what it leaves out has its default."""
        given = dict(parse_qsl(query, keep_blank_values=True))
        known = {field.name: field.default for field in fields(cls)}
        values: dict[str, Any] = {}
        for name, text in given.items():
            if name not in known:
                raise ValueError(f"the link sets {name!r}, which is no setting; expected some of {', '.join(known)}")
            try:
                values[name] = _parsed(text, like=known[name])
            except ValueError:
                raise ValueError(f"the link sets {name} to {text!r}; expected such as {_typed(known[name])}") from None
        return cls(**values)


MANY = 12  # views that the button draws


def _typed(value: object) -> str:
    """A value as one would type it: no float loses a digit, and whole ones have no point."""
    if isinstance(value, tuple):
        return ",".join(dict.fromkeys(map(_typed, value)))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def _parsed(text: str, *, like: Any) -> Any:
    if isinstance(like, tuple) and isinstance(like[0], float):
        numbers = [float(number) for number in text.split(",")]
        if len(numbers) > 2:
            raise ValueError(text)
        return numbers[0], numbers[-1]
    if isinstance(like, bool):
        return ("no", "yes").index(text) == 1
    return tuple(text.split(",")) if isinstance(like, tuple) else type(like)(text)


PRESETS = {
    "Paper's best": Settings(),
    "Gentle": Settings(transforms=("translate", "shear"), gamma=(8.0, 10.0), alpha=(0.0, 0.1), p=1.0),
    "Too strong": Settings(transforms=("rotate",), gamma=(6.0, 8.0), alpha=(0.3, 0.5), p=1.0),
}


# ------------------------------------------------------------------------------------------------------------ photo

_MOST_PIXELS = 64_000_000  # decoded they take 200 MB
_MOST_BYTES = 50 * 2**20  # of an upload


@dataclass(frozen=True)
class Photo:
    """A photo that fits the page, and the Python lines that load it."""

    image: Image.Image
    imports: tuple[str, ...]
    lines: tuple[str, ...]


def load(path: Path | None = None, *, size: int = 224, name: str | None = None) -> Photo:
    """A photo whose longer side has at most `size` pixels; without a path the one that comes with the package.

    `name` is what the code calls the file, by default its path. Whatever is wrong with the file is a ValueError.
    """
    builtin = Path(__file__).with_name("chelsea.jpg")  # by Stéfan van der Walt, CC0
    name = name or str(path)
    try:
        with Image.open(path or builtin) as file:
            width, height = file.size
            if width * height > _MOST_PIXELS:
                limit = f"{_MOST_PIXELS // 10**6} million pixels"
                raise ValueError(f"it has {width} × {height} pixels; the explorer takes {limit}, so make it smaller")
            ordinary = file.mode in ("RGB", "L", "CMYK") and not file.has_transparency_data
        image = pictures.as_rgb(pictures.read(path or builtin)[0])
    except Exception as error:  # Pillow raises what it likes: SyntaxError for a broken PNG, struct.error, ...
        raise ValueError(f"cannot show {name}: {pictures.reason(error)}") from error
    image.thumbnail((size, size))

    if ordinary:
        imports: tuple[str, ...] = ("from PIL import Image, ImageOps",)
        opened = f"Image.open({name!r})"
        if path is None:
            imports += ("from importlib.resources import files",)
            opened = 'Image.open(files("randfield") / "chelsea.jpg")'
        line = f'photo = ImageOps.exif_transpose({opened}).convert("RGB")'
    else:  # what becomes of 16 bits or of transparency takes more than a line to say
        imports = ("from pathlib import Path", "from randfield.pictures import as_rgb, read")
        line = f"photo = as_rgb(read(Path({name!r}))[0])"
    return Photo(image, imports, (line, f"photo.thumbnail(({size}, {size}))"))


# ------------------------------------------------------------------------------------------------- transform and code


def local_transforms(settings: Settings, generator: torch.Generator) -> list[LocalTransform]:
    """At most one that moves pixels and one that recolours them, to be applied in this order."""
    bound = None if settings.bound == "none" else settings.bound
    law: dict[str, Any] = {"gamma": settings.gamma, "period": settings.period, "bound": bound}
    acting: dict[str, Any] = {"p": settings.p, "generator": generator}
    resampling: dict[str, Any] = {"padding": settings.padding, "fold_free": settings.fold_free}
    atoms = [GEOMETRY[name] for name in GEOMETRY if name in settings.transforms]
    colours = [name for name in COLOUR if name in settings.transforms]
    made: list[LocalTransform] = []
    if len(atoms) == 1:
        made.append(atoms[0](alpha=settings.alpha, **law, **resampling, **acting))
    elif atoms:
        made.append(LocalAffine([atom(alpha=settings.alpha, **law) for atom in atoms], **resampling, **acting))
    if len(colours) == 1:
        made.append(COLOUR[colours[0]](alpha=settings.alpha, **law, **acting))
    elif colours:
        alphas: dict[str, Any] = {name: settings.alpha if name in colours else None for name in COLOUR}
        made.append(LocalColorJitter(**alphas, **law, **acting))
    return made


def code(settings: Settings, photo: Photo) -> str:
    """The Python lines that make the views of `explain`, to the bit."""
    made = local_transforms(settings, torch.Generator())
    names = {type(t).__name__ for one in made for t in one.modules() if isinstance(t, LocalTransform)}
    imports = ["import torch", *photo.imports, f"from randfield import {', '.join(sorted(names))}"]
    calls = [_call(transform, "generator=generator") for transform in made]
    augment = calls[0]
    if len(calls) > 1:
        imports.append("from torchvision.transforms import v2")
        augment = f"v2.Compose({_listed(calls)})"
    drawn = "view = augment(photo)"
    if settings.views > 1:
        drawn = f"views = [augment(photo) for _ in range({settings.views})]"
    lines = [
        *_sorted_imports(imports),
        "",
        *photo.lines,
        "",
        f"generator = torch.Generator().manual_seed({settings.seed})",
        f"augment = {augment}",
        drawn,
    ]
    return "\n".join(lines) + "\n"


def _sorted_imports(lines: list[str]) -> list[str]:
    """As one writes them: Python's own, then the others, `import x` before `from x import y`."""
    lines = sorted(lines, key=lambda line: (line.startswith("from"), line.split()[1]))
    own = [line for line in lines if line.split()[1].partition(".")[0] in sys.stdlib_module_names]
    return [*own, *[""] * bool(own), *(line for line in lines if line not in own)]


def _call(transform: LocalTransform, *more: str) -> str:
    """The expression that makes a transform: its settings where they are not the defaults of its class."""
    parameters = inspect.signature(type(transform)).parameters
    arguments = [
        f"{name}={_literal(value)}"
        for name, value in transform.config.items()
        if name != "transforms" and _literal(value) != _literal(parameters[name].default)
    ]
    if isinstance(transform, LocalAffine):
        atoms = [_call(atom) for atom in transform.transforms]  # type: ignore[arg-type]  # a ModuleList forgets
        arguments.insert(0, _listed(atoms))
    return f"{type(transform).__name__}({', '.join([*arguments, *more])})"


def _listed(expressions: list[str]) -> str:
    """A list of them, each on its own line."""
    return "[\n" + textwrap.indent("".join(f"{expression},\n" for expression in expressions), "    ") + "]"


def _literal(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"({', '.join(map(_literal, value))})"
    if isinstance(value, str):
        return f'"{value}"'
    return _typed(value) if isinstance(value, float) else repr(value)


# --------------------------------------------------------------------------------------------------------- pictures


@dataclass(frozen=True)
class Explained:
    """The views, and captioned pictures of what happened in the first: its fields, and a grid where pixels moved."""

    views: list[Image.Image]
    fields: list[tuple[str, Image.Image]]
    grid: tuple[str, Image.Image] | None = None


def explain(settings: Settings, photo: Photo) -> Explained:
    """Draw the views and explain the first."""
    generator = torch.Generator().manual_seed(settings.seed)
    made = local_transforms(settings, generator)
    drawn: list[Params] = []
    view = photo.image
    for transform in made:
        drawn.append(transform.make_params([view]))
        view = transform.transform(view, drawn[-1])
    further = [v2.Compose(made)(photo.image) for _ in range(settings.views - 1)]

    size = (photo.image.height, photo.image.width)
    heat = [field for transform, params in zip(made, drawn, strict=True) for field in _fields(transform, params, size)]
    moving = made[0]
    if not isinstance(moving, LocalWarp | LocalAffine):
        return Explained([view, *further], heat)
    gridded = moving.transform(drawing.gridded(photo.image), drawn[0])
    return Explained([view, *further], heat, _with_folds(gridded, moving.grid(drawn[0], size)))


def _fields(transform: Any, params: Params, size: tuple[int, int]) -> Iterator[tuple[str, Image.Image]]:
    if not params:  # the coin of p, or an alpha of zero
        return
    if isinstance(transform, LocalAffine):
        for atom, its in zip(transform.transforms, params["atoms"], strict=True):
            yield from _fields(atom, its, size)
        return
    kind = type(transform).__name__.removeprefix("Local").lower()
    if isinstance(transform, LocalColorJitter):
        names = [name for name in COLOUR if getattr(transform, name) is not None]
    else:
        names = [kind] if len(params["modes"]) == 1 else [f"{kind} x", f"{kind} y"]
    gamma, alpha = (torch.as_tensor(params[key]).flatten().tolist() for key in ("gamma", "alpha"))
    for index, (name, g) in enumerate(zip(names, transform.fields(params, size), strict=True)):
        caption = f"{name}: gamma {gamma[index % len(gamma)]:.1f}, alpha {alpha[index % len(alpha)]:.3f}"
        yield caption, drawing.heat_map(g)


def _with_folds(gridded: Image.Image, grid: Tensor) -> tuple[str, Image.Image]:
    """The deformed grid, red where the picture is turned inside out."""
    if min(gridded.size) < 2:  # there is no cell
        return "deformed grid", gridded
    determinant = affine.determinants(grid)
    cells = determinant <= 0
    share, least = float(cells.float().mean()), float(determinant.min())
    if share:
        mask = tvf.to_pil_image(cells.to(torch.uint8) * 180).resize(gridded.size, Image.Resampling.NEAREST)
        gridded.paste((230, 0, 70), mask=mask)
    folds = f"{100 * share:.2g} % folds (red)" if share else "nothing folds"
    return f"deformed grid: {folds}, determinant ≥\u00a0{least:.2f}", gridded


# ------------------------------------------------------------------------------------------------------------- page


def _figure(caption: str, image: Image.Image, kind: str = "JPEG", *, shown: str = "") -> str:
    """A picture as HTML that holds it; PNG where every pixel counts. `shown` says whether on wide or narrow screens."""
    encoded = io.BytesIO()
    image.save(encoded, kind, compress_level=1, quality=90)
    data = f"data:image/{kind.lower()};base64,{base64.b64encode(encoded.getvalue()).decode()}"
    caption = html.escape(caption)
    # Decoded before it is shown: the picture before it stays up to then, and nothing flickers.
    size = f'width="{image.width}" height="{image.height}"'
    return (
        f'<figure class="{shown}"><img src="{data}" {size} alt="{caption}" decoding="sync">'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _shown(settings: Settings, photo: Photo) -> tuple[str, str, str]:
    """The HTML of the large pictures, of the small ones, and the code."""
    seen = explain(settings, photo)
    large = [_figure("photo", photo.image, shown="wide"), _figure("view", seen.views[0], "PNG")]
    if seen.grid:
        large.append(_figure(*seen.grid))
    fields = "".join(_figure(*field) for field in seen.fields)
    original = _figure("photo", photo.image, shown="narrow")
    if not fields and settings.alpha[1] == 0:
        fields = "<p>None: alpha is 0.</p>"
    elif not fields:
        fields = (
            f"<p>None: this draw left the photo alone, as one does whose p is {_typed(settings.p)}. Try another.</p>"
        )
    small = "<h3>Fields <small>blue is negative, red is positive</small></h3>"
    small += f'<div class="tiles" id="fields">{fields}{original}</div>'
    if settings.views > 1:
        views = "".join(_figure(f"view {index}", view, "PNG") for index, view in enumerate(seen.views, 1))
        small += f'<h3 id="views">{settings.views} views</h3><div class="tiles">{views}</div>'
    return f'<div class="tiles">{"".join(large)}</div>', small, code(settings, photo)


_MANY = ("Draw twelve views", "Hide the twelve")
_HEADER = """<h1>randfield explorer</h1>
<p>Every pixel gets its own amount of a transform, and neighbours get nearly the same: the amount is a random field.
<b>gamma</b> is how smooth, <b>alpha</b> how strong; both are drawn between two numbers.</p>"""
_STYLE = """
footer { display: none !important }
:focus-visible { outline: 2px solid var(--color-accent) !important; outline-offset: 2px }
.html-container { padding: 0 !important }
#message:not(:has(p)) { display: none }
#message p { margin: 0; padding: 8px 12px; border-radius: 6px; background: #fde68a; color: #422006 }
#explorer {
  display: grid; gap: 16px 24px; align-items: start; grid-template: "controls large" "controls small" 1fr / 360px 1fr;
}
#controls { grid-area: controls }
#large { grid-area: large }
#small { grid-area: small }
#controls .head { flex-wrap: nowrap }
#controls .head input { width: 52px; padding: 2px }
#controls .head label, #draws button { white-space: nowrap }
#upload { min-height: 0 }
#upload .wrap { font-size: 0; min-height: 0; padding: 0 }
#upload .wrap > * { display: none }
#upload .wrap::after { content: "Drop a photo anywhere, or click to choose one"; font-size: 14px }
.tiles { display: grid; gap: 12px; grid-template-columns: repeat(3, 1fr) }
#small .tiles { grid-template-columns: repeat(4, 1fr) }
#small #fields { grid-template-columns: repeat(6, 1fr) }
.tiles figure { margin: 0 }
.tiles img { width: 100%; height: auto; border-radius: 4px; display: block; margin: 0 }
.tiles figcaption { font-size: 13px; line-height: 1.3; padding-top: 4px; color: var(--body-text-color); opacity: 0.75 }
h3 small { font-weight: normal }
.narrow { display: none }
@media (max-width: 1000px) {
  #explorer { grid-template: "large" "controls" "small" / 1fr }
  #large { position: sticky; top: 0; z-index: 50; gap: 8px; background: var(--body-background-fill); padding: 6px 0 }
  #large .tiles { grid-template-columns: 1fr 1fr; gap: 6px }
  #large img { max-height: 34vh; object-fit: contain; object-position: left }
  #small .tiles, #small #fields { grid-template-columns: 1fr 1fr 1fr; gap: 6px }
  #draws button { font-size: 14px; padding: 6px }
  .tiles .wide { display: none }
  .tiles .narrow { display: block }
}
@media (max-width: 360px) { #draws button { white-space: normal } }
"""

# Gradio's own rules have their say elsewhere: as they are, nothing can be sticky, and a screen that is a bit too narrow
# for one width gets the next, which leaves the pictures tiny. A photo may be dropped anywhere, not in its place alone.
_HEAD = """
<style>
.gradio-container { overflow: clip !important }
.fillable { max-width: 1280px !important }
</style>
<script>
const photos = event => event.dataTransfer.types.includes("Files");
addEventListener("dragover", event => photos(event) && event.preventDefault());
addEventListener("drop", event => {
  const input = document.querySelector("#upload input[type=file]");
  if (!input || !photos(event)) return;
  event.preventDefault();
  if (event.target.closest?.("#upload")) return;
  input.files = event.dataTransfer.files;
  input.dispatchEvent(new Event("change", {bubbles: true}));
});
</script>
"""

# Which may be far below the button that draws them.
_TO_THE_VIEWS = "() => document.querySelector('#views + .tiles')?.scrollIntoView({block: 'center'})"


def page(photo: Photo, *, size: int = 224) -> gr.Blocks:
    """The page, with a photo to begin with; those that are dropped on it are shrunk to `size`."""
    import gradio as gr

    start = Settings()

    def sliders(name: str, labels: tuple[str, ...], step: float) -> list[gr.Slider]:
        low, high = _LIMITS[name]
        value = getattr(start, name)
        values = value if isinstance(value, tuple) else (value,)
        made = [
            gr.Slider(low, high, value, step=step, label=label, min_width=120, buttons=[])
            for value, label in zip(values, labels, strict=True)
        ]
        for one in made:
            one.preprocess = lambda value: value  # it would raise where `Settings` explains, and break when left empty
        return made

    def radio(name: str, label: str) -> gr.Radio:
        return gr.Radio(_CHOICES[name], value=getattr(start, name), label=label)

    with gr.Blocks(title="randfield explorer", analytics_enabled=False) as page:
        photo_now, views = gr.State(photo), gr.State(start.views)
        gr.HTML(_HEADER)
        with gr.Row(elem_id="explorer"):
            with gr.Column(elem_id="large", min_width=0):
                message, large = gr.HTML(elem_id="message"), gr.HTML()
                with gr.Row(elem_id="draws"):
                    again = gr.Button("Another draw", variant="primary", size="md", min_width=90)
                    many = gr.Button(_MANY[0], size="md", min_width=90)
            with gr.Column(elem_id="controls", min_width=0):
                upload = gr.File(label="photo", show_label=False, file_types=["image"], height=48, elem_id="upload")
                with gr.Row():
                    presets = {name: gr.Button(name, size="sm", min_width=90) for name in PRESETS}
                transforms = gr.CheckboxGroup(_CHOICES["transforms"], value=start.transforms, label="transforms")
                with gr.Row():
                    gamma = sliders("gamma", ("gamma from", "gamma to"), 0.1)
                with gr.Row():
                    alpha = sliders("alpha", ("alpha from", "alpha to"), 0.01)
                others = sliders("p", ("p: how often it acts",), 0.05)
                others += sliders("period", ("period: 1 wraps around the edges",), 0.1)
                others += [
                    radio("bound", "bound: peak reaches alpha, clip rarely does, none may pass it"),
                    radio("padding", "padding: what comes in from outside"),
                ]
                others += [gr.Checkbox(start.fold_free, label="fold free: weaken a draw that would fold")]
                others += [gr.Number(start.seed, label="seed: which draw", precision=0)]
            with gr.Column(elem_id="small", min_width=0):
                small = gr.HTML()
                lines = gr.Code(language="python", label="Python", interactive=False, lines=8, show_line_numbers=False)
                link = gr.Textbox(label="Link to these settings", interactive=False, buttons=["copy"], max_lines=1)

        controls = [transforms, *gamma, *alpha, *others]
        state = [*controls, views, many]
        shown = [message, large, small, lines, link]

        def read(transforms: list[str], *values: Any) -> Settings:
            if None in values:
                raise ValueError("a number is missing; type one")
            low_to_high = [tuple(sorted(map(float, pair))) for pair in (values[:2], values[2:4])]
            given = (tuple(transforms), *low_to_high, *values[4:])
            return Settings(**{field.name: value for field, value in zip(fields(Settings), given, strict=True)})

        def written(settings: Settings) -> list[Any]:
            transforms, gamma, alpha, *others = (getattr(settings, field.name) for field in fields(settings))
            return [list(transforms), *gamma, *alpha, *others]

        def answer(
            photo: Photo,
            link: str,
            values: Sequence[Any],
            change: Callable[[Settings], Settings] = lambda settings: settings,
            note: str = "",
        ) -> list[Any]:
            """The state and all that is shown when `change` is made to the settings."""
            try:
                settings = change(read(*values))
            except ValueError as error:
                return [*values, _MANY[values[-1] > 1], _note(str(error)), *[gr.skip()] * 4]
            address = f"{link.partition('?')[0]}?{settings.query()}"
            return [*written(settings), _MANY[settings.views > 1], _note(note), *_shown(settings, photo), address]

        def moved(photo: Photo, link: str, *values: Any) -> list[Any]:
            return answer(photo, link, values)[len(state) :]

        def set_to(name: str, photo: Photo, link: str, *values: Any) -> list[Any]:
            return answer(photo, link, [*written(PRESETS[name])[:-2], *values[-2:]])  # seed and views stay

        def drawn_again(photo: Photo, link: str, *values: Any) -> list[Any]:
            return answer(photo, link, values, lambda it: replace(it, seed=(it.seed + 1) % 2**32))

        def drawn_many(photo: Photo, link: str, *values: Any) -> list[Any]:
            return answer(photo, link, values, lambda it: replace(it, views=1 if it.views > 1 else MANY))

        def opened(photo: Photo, link: str) -> list[Any]:
            settings, note = start, ""
            try:
                settings = Settings.from_query(link.partition("?")[2])
            except ValueError as error:
                note = f"{error}. These are the paper's settings instead."
            return answer(photo, link, written(settings), note=note)

        def taken(path: str, photo: Photo, link: str, *values: Any) -> list[Any]:
            note = ""
            try:
                photo = load(Path(path), size=size, name=Path(path).name)
            except ValueError as error:
                note = str(error)
            Path(path).unlink()  # nobody's photos stay on this disk
            return [photo, None, *answer(photo, link, values, note=note)[len(state) :]]

        # Not queued: the queue looks for work every 50 ms, which one would feel.
        at_once: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
        given, everything = [photo_now, link, *controls, views], [*state, *shown]
        inputs = [control.input for control in controls]
        gr.on(inputs, moved, given, shown, trigger_mode="always_last", **at_once)
        for name, preset in presets.items():
            preset.click(partial(set_to, name), given, everything, **at_once)
        again.click(drawn_again, given, everything, **at_once)
        many.click(drawn_many, given, everything, **at_once).then(js=_TO_THE_VIEWS)
        upload.upload(taken, [upload, *given], [photo_now, upload, *shown], **at_once)
        page.load(opened, given[:2], everything, js="(photo, link) => [photo, location.href]", **at_once)
        link.change(None, link, js="link => history.replaceState(null, '', link)")
    return page


def _note(text: str) -> str:
    return f'<p role="alert">{html.escape(text)}</p>' if text else ""


# ----------------------------------------------------------------------------------------------------------- server

# Gradio's page styles and starts itself in place; nothing comes from, or goes to, another host.
_POLICY = "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; connect-src 'self'; form-action 'self'"


def application(photo: Photo, *, size: int = 224) -> FastAPI:
    """The page as a web application."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # read when gradio is imported, and again later
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    import gradio as gr
    from fastapi import FastAPI

    app = FastAPI(openapi_url=None)
    app.add_middleware(_Enclosed)
    return gr.mount_gradio_app(
        app,
        page(photo, size=size),
        path="/",
        footer_links=[],
        run_history=False,
        ssr_mode=False,
        max_file_size=_MOST_BYTES,
        theme=gr.themes.Default(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"]),
        css=_STYLE,
        head=_HEAD,
    )


class _Enclosed:
    """Has the browser refuse whatever the page would ask of other hosts."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
        async def send_with_policy(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"content-security-policy", _POLICY.encode())]
            await send(message)

        await self.app(scope, receive, send_with_policy)


def serve(photo: Photo, *, size: int = 224, host: str, port: int | None, ready: Callable[[str], None]) -> None:
    """Serve the page until Ctrl-C; `ready` is called with its address. Without a port, 7860 or any that is free."""
    import uvicorn

    # Pictures this small are as quick with one thread, to the same bit, and two would wait for each other whenever the
    # browser has a core to itself.
    torch.set_num_threads(1)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, 7860 if port is None else port), family=family)
    except OSError:
        if port is not None:
            raise
        listening = socket.create_server((host, 0), family=family)
    with listening, tempfile.TemporaryDirectory(prefix="randfield-") as uploads:
        os.environ["GRADIO_TEMP_DIR"] = uploads
        app = application(photo, size=size)
        ready(f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}/")
        # Browsers hold a connection open for as long as the page is: do not wait for them in the end.
        config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1)
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listening])

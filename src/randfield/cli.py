"""The command line: `show` draws a contact sheet, `explore` opens a page, `augment` fills a folder.

`app` is a cyclopts App: signatures are the options, docstrings are the help, and one more command is one more function
under `@app.command`. Wrong arguments end with status 2; a job that could not be done, or only in part, ends with 1.
Standard output is for the result, a sentence or with `--json` one JSON object on the last line; what went wrong and the
progress go to standard error.

Every picture has a random generator of its own, seeded by a hash of the user's seed and of what the picture is, so that
neither the order nor the company in which pictures are made can matter.
"""

from __future__ import annotations

import io
import json
import math
import os
import signal
import sys
import webbrowser
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import torch
from cyclopts import App, Parameter
from cyclopts.validators import Number
from PIL import Image, ImageDraw, ImageFont
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

import randfield
from randfield import drawing, pictures
from randfield.draws import Params
from randfield.learn import commands as learning
from randfield.names import parse_local
from randfield.paper import commands as paper
from randfield.seeds import seed_of
from randfield.terminal import Count, Flag, Json, stop
from randfield.transforms import LocalAffine, LocalTransform, LocalValue, LocalWarp

__all__ = ["app", "augment", "explore", "show"]

app = App(
    name="randfield",
    version=randfield.__version__,
    help="""Gaussian random field augmentations for images.

A random field is a smooth random picture. Here it is the angle, the factor or the shift at every pixel of a photo, or
it is added to the photo's colours: one transform, in another amount at every place.
""",
    help_epilogue="""Examples:

```
# See what the transforms do to a photo:
randfield show photo.jpg -o sheet.png --grid

# Turn the settings on a local page and see what happens:
randfield explore photo.jpg

# Make four warped copies of every image in a folder:
randfield augment photos/ augmented/ --n 4

# Pretrain an encoder with and without a local field, and compare them:
randfield demo
```

`randfield show --help` and the like explain their options.
""",
    default_parameter=Parameter(negative=()),
)
learning.mount(app)
paper.mount(app)


# ---------------------------------------------------------------------------------------------------------- options


def _typed(values: Sequence[object]) -> str:
    """A default as one would type it."""
    return " ".join(f"{v:.3g}" if isinstance(v, float) else str(v) for v in values)


Transforms = Annotated[
    tuple[str, ...],
    Parameter(
        help="rotate, scale, shear, translate, hue, saturation, value, color (all three colours), or several of the "
        "first four joined by +, which are composed and resampled once.",
        consume_multiple=1,
        show_default=_typed,
    ),
]
Gamma = Annotated[
    tuple[float, ...],
    Parameter(
        help="Smoothness of the fields: a number, or a lowest and a highest to draw from.",
        consume_multiple=1,
        show_default=_typed,
    ),
]
Alpha = Annotated[
    tuple[float, ...],
    Parameter(
        help="Strength, the largest magnitude of the fields: a number, or a lowest and a highest to draw from. 1 would "
        "rotate by half a turn, scale to nothing and to double, translate by half the shorter side, go once around the "
        "colour wheel.",
        consume_multiple=1,
        show_default=_typed,
    ),
]


def _parsed(
    names: tuple[str, ...],
    gamma: tuple[float, ...],
    alpha: tuple[float, ...],
    *,
    p: float = 1.0,
    generator: torch.Generator,
) -> list[LocalTransform]:
    ranges = [values[0] if len(values) == 1 else values for values in (gamma, alpha)]
    return [parse_local(name, gamma=ranges[0], alpha=ranges[1], p=p, generator=generator) for name in names]


def _moves_pixels(transform: LocalTransform) -> bool:
    return isinstance(transform, LocalWarp | LocalAffine)


# ------------------------------------------------------------------------------------------------------------ files

_FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TGA", "TIFF", "WEBP")
"""Pictures made of pixels that Pillow both reads and writes; files of other kinds are not looked at."""


class CannotWriteError(Exception):
    """The disk, not the image, is at fault: no other file will fare better."""


def _encoded(image: Image.Image, kind: str, *, like: Image.Image) -> bytes:
    if kind not in Image.SAVE:
        raise ValueError(f"Pillow reads {kind} but cannot write it; convert it to PNG")
    options = {"quality": 95} if kind in ("AVIF", "JPEG", "WEBP") else {}
    if image.mode == like.mode:  # a colour profile and a transparent colour speak of the numbers of one mode
        options |= {key: like.info[key] for key in ("icc_profile", "transparency") if key in like.info}
    encoded = io.BytesIO()
    image.save(encoded, format=kind, **options)
    return encoded.getvalue()


def _write(path: Path, content: bytes) -> None:
    """Write the whole file or none of it."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            unfinished.write_bytes(content)
            unfinished.replace(path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise CannotWriteError(f"cannot write {path}: {pictures.reason(error)}") from error


# ------------------------------------------------------------------------------------------------------------- show


def _example(line: str) -> str:
    return f"Example:\n\n```\n{line}\n```\n"


@app.command(
    usage="Usage: randfield show PHOTO [OPTIONS]",
    help_epilogue=_example("randfield show photo.jpg --transform rotate translate+shear --alpha 0 0.333"),
)
def show(
    photo: Path,
    /,
    *,
    output: Annotated[Path, Parameter(alias="-o")] = Path("sheet.png"),
    transform: Transforms = (
        "rotate",
        "scale",
        "shear",
        "translate",
        "translate+shear",
        "hue",
        "saturation",
        "value",
        "color",
    ),
    gamma: Gamma = (7, 10),
    alpha: Alpha = (0.2,),
    n: Count = 4,
    seed: int = 0,
    grid: Flag = False,
    size: Annotated[int, Parameter(validator=Number(gte=64, lte=1024))] = 224,
    overwrite: Flag = False,
    json_: Json = False,
) -> None:
    """Draw a contact sheet of what the transforms do to a photo.

    A row for each transform: the fields of its first draw, blue where negative and red where positive, the one for x
    above the one for y; then the draws. All have the same alpha, so that they can be compared; for what the transforms
    do by default, and `augment` does, draw it: `--alpha 0 0.333`.

    Parameters
    ----------
    photo
        The image to transform.
    output
        The sheet, in the format that its name says.
    n
        Draws of each transform.
    seed
        The same seed draws the same pictures, whatever else is on the sheet.
    grid
        Draw a grid on the photo, which shows how it is deformed.
    size
        Longer side of each picture in pixels.
    overwrite
        Replace the sheet if it exists.
    """
    generator = torch.Generator()
    try:
        transforms = _parsed(transform, gamma, alpha, generator=generator)
    except ValueError as error:
        stop(str(error), status=2)
    kind = Image.registered_extensions().get(output.suffix.lower())
    if kind not in _FORMATS:
        stop(f"the name of --output {output} does not end as an image's does; expected one such as sheet.png", status=2)
    if output.exists() and not overwrite:
        stop(f"{output} exists; choose another --output, or replace it with --overwrite")
    try:
        original = _fitted(pictures.as_rgb(pictures.read(photo)[0]), size)
    except Exception as error:  # Pillow raises what it likes: SyntaxError for a broken PNG, struct.error, ...
        stop(f"cannot show {photo}: {pictures.reason(error)}")

    gridded = drawing.gridded(original) if grid else original
    rows = []
    for name, local in zip(transform, transforms, strict=True):
        start = gridded if _moves_pixels(local) else original
        drawn = []
        for index in range(n):
            generator.manual_seed(seed_of(seed, name, index))
            drawn.append(local.make_params([start]))
        rows.append(
            Row(
                name,
                fields=_fields(local, drawn[0], (start.height, start.width)),
                draws=[local.transform(start, params) for params in drawn],
                captions=[_strengths(params) if len(alpha) > 1 else "" for params in drawn],
            )
        )
    ranges = [" to ".join(f"{v:.3g}" for v in values) for values in (gamma, alpha)]
    sheet = _sheet(gridded, [photo.name, f"gamma {ranges[0]}", f"alpha {ranges[1]}", f"seed {seed}"], rows)

    try:
        _write(output, _encoded(sheet, kind, like=sheet))
    except CannotWriteError as error:
        stop(str(error))
    except (OSError, ValueError) as error:
        stop(
            f"{kind} cannot hold {sheet.width} × {sheet.height} pixels ({error}); try .png, or a smaller --size or --n"
        )
    if json_:
        print(json.dumps({"out": str(output), "transforms": list(transform)}))
    else:
        print(f"Wrote {output}, {sheet.width} × {sheet.height} pixels.")


@dataclass(frozen=True)
class Row:
    """What the sheet shows of one transform; the fields in columns."""

    name: str
    fields: list[list[Tensor]]
    draws: list[Image.Image]
    captions: list[str]


def _fields(transform: Any, params: Params, size: tuple[int, int]) -> list[list[Tensor]]:
    """The fields [height, width] of a draw in columns of at most two; the atoms of a composite have their own."""
    if not params:  # alpha is zero
        return [[torch.zeros(size)]]
    if isinstance(transform, LocalAffine):
        atoms = zip(transform.transforms, params["atoms"], strict=True)
        return [column for atom, its in atoms for column in _fields(atom, its, size)]
    g = list(transform.fields(params, size))
    return [g[k : k + 2] for k in range(0, len(g), 2)]


def _strengths(params: Params) -> str:
    """The drawn alpha of each field or pair of fields."""
    drawn = params.get("atoms", [params])
    return ", ".join(f"{float(alpha):.2f}" for its in drawn for alpha in its.get("alpha", [0]))


def _sheet(original: Image.Image, texts: list[str], rows: list[Row]) -> Image.Image:
    """The original and the settings on top, then the rows."""
    width, height = original.size
    em = max(12, round(max(width, height) / 14))  # the size of the text, and the unit of the layout
    gap, margin, line = em // 2, 2 * em, round(1.5 * em)
    font, small = ImageFont.load_default(em), ImageFont.load_default(0.8 * em)
    ink, pale = "#222222", "#777777"

    # Fields are half as wide and high as pictures, so that two fill a row.
    field = max(1, (width - gap) // 2), max(1, (height - gap) // 2)
    columns = max(len(row.fields) for row in rows)
    captioned = any(any(row.captions) for row in rows)
    x_fields = margin + max(math.ceil(font.getlength(row.name)) for row in rows) + em
    x_draws = x_fields + columns * (field[0] + gap) + em
    y_titles = margin + max(height, (len(texts) + 1) * line) + em
    y_rows = y_titles + line
    step = max(height, 2 * em) + (line if captioned else 0) + gap

    size = x_draws + len(rows[0].draws) * (width + gap) - gap + margin, y_rows + len(rows) * step - gap + margin
    sheet = Image.new("RGB", size, "white")
    pen = ImageDraw.Draw(sheet)
    for number, text in enumerate(texts):
        text = _shortened(text, font, x_draws - em - margin)
        pen.text((margin, margin + number * line), text, pale if number else ink, font)
    sheet.paste(original, (x_draws, margin))
    pen.text((x_fields, y_titles), "fields", pale, small)
    pen.text((x_draws, y_titles), "draws, with their alpha" if captioned else "draws", pale, small)
    for number, row in enumerate(rows):
        y = y_rows + number * step
        pen.text((margin, y + height / 2), row.name, ink, font, anchor="lm")
        for i, column in enumerate(row.fields):
            for j, g in enumerate(column):
                down = (height - field[1]) // 2 if len(column) == 1 else j * (height - field[1])
                sheet.paste(drawing.heat_map(g).resize(field), (x_fields + i * (field[0] + gap), y + down))
        for i, (picture, caption) in enumerate(zip(row.draws, row.captions, strict=True)):
            x = x_draws + i * (width + gap)
            sheet.paste(picture, (x, y))
            pen.text((x, y + height + gap // 2), _shortened(caption, small, width), pale, small)
    return sheet


def _shortened(text: str, font: ImageFont.ImageFont | ImageFont.FreeTypeFont, width: float) -> str:
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + "…") > width:
        text = text[:-1]
    return text + "…"


def _fitted(photo: Image.Image, longer: int) -> Image.Image:
    width, height = (max(1, round(side * longer / max(photo.size))) for side in photo.size)
    return photo.resize((width, height), Image.Resampling.LANCZOS)


# ---------------------------------------------------------------------------------------------------------- explore


@app.command(usage="Usage: randfield explore [PHOTO] [OPTIONS]")
def explore(
    photo: Path | None = None,
    /,
    *,
    size: Annotated[int, Parameter(validator=Number(gte=64, lte=1024))] = 224,
    host: str = "127.0.0.1",
    port: Annotated[int | None, Parameter(validator=Number(gte=0, lte=65535))] = None,
    no_browser: Flag = False,
    json_: Json = False,
) -> None:
    """Open a page on which to turn the settings and see what happens to a photo.

    It shows the view, the fields, the deformed grid and where it folds, and has the Python lines for it ready to copy.
    The page is served by this machine to this machine and asks nothing of any other. Ctrl-C ends it.

    Parameters
    ----------
    photo
        The image to begin with; by default a cat's. Others can be dropped on the page.
    size
        Longer side of the picture in pixels.
    host
        The address to serve at. At 0.0.0.0 whoever reaches this machine can use the page.
    port
        By default 7860, or any free one if that is taken.
    no_browser
        Only print the address.
    """
    from randfield import explorer

    def ready(url: str) -> None:
        print(json.dumps({"url": url}) if json_ else f"The explorer is at {url} until Ctrl-C.", flush=True)
        if not no_browser:
            webbrowser.open(url)

    try:
        explorer.serve(explorer.load(photo, size=size), size=size, host=host, port=port, ready=ready)
    except ModuleNotFoundError as error:
        if error.name not in ("gradio", "uvicorn"):
            raise
        stop("the explorer needs gradio; install it with: pip install 'randfield[explore]'")
    except OSError as error:
        stop(f"cannot serve at {host}:{port}: {error.strerror}; choose another --host or --port")
    except ValueError as error:
        stop(str(error))


# ---------------------------------------------------------------------------------------------------------- augment


@app.command(
    usage="Usage: randfield augment SRC DST [OPTIONS]",
    help_epilogue=_example("randfield augment photos/ augmented/ --transform translate color --p 0.8 --n 4"),
)
def augment(
    src: Path,
    dst: Path,
    /,
    *,
    transform: Transforms = ("translate",),
    gamma: Gamma = (7, 10),
    alpha: Alpha = (0, 1 / 3),
    p: float = 1.0,
    n: Count = 1,
    seed: int = 0,
    workers: Count | None = None,
    overwrite: Flag = False,
    resume: Flag = False,
    json_: Json = False,
) -> int:
    """Write transformed copies of an image, or of every image in a folder.

    `SRC/cats/tom.jpg` becomes `DST/cats/tom-0.jpg`, `tom-1.jpg` and so on, in the format it has, upright and with its
    colour profile, but without other metadata; JPEG at quality 95. The same seed writes the same files, whatever the
    number of workers. Several transforms act one after the other, each on the result of the one before.

    Geometric transforms take images of any mode. Colours leave transparency alone and write as RGB what is not,
    except that `value` also takes greyscale. Hidden files are passed over; of an animation the first frame is taken.

    An image that cannot be read or transformed is named at the end, and the exit status is then 1; the others are
    written. Files are written whole or not at all.

    Parameters
    ----------
    src
        An image, or a folder, searched with its sub-folders.
    dst
        The folder to write to, made if need be. It may lie inside SRC.
    p
        Probability that a transform acts, for each and every copy.
    n
        Copies of each image.
    seed
        Any whole number.
    workers
        Processes. By default one for each core, fewer where there is little to do.
    overwrite
        Replace files that exist. Without this or `--resume` nothing is written if any exists.
    resume
        Keep files that exist and write the missing ones, to go on with a run that was stopped.
    """
    root = src.parent if src.is_file() else src
    job = Job(root=root, dst=dst, names=transform, gamma=gamma, alpha=alpha, p=p, n=n, seed=seed, resume=resume)
    try:
        job.transforms(torch.Generator())
    except ValueError as error:
        stop(str(error), status=2)
    if overwrite and resume:
        stop("--overwrite replaces files that exist and --resume keeps them; choose one", status=2)
    if not src.exists():
        stop(f"{src} does not exist; expected an image or a folder of images")
    if dst.exists() and not dst.is_dir():
        stop(f"{dst} is not a folder; choose another DST")
    if src.is_dir() and src.resolve() == dst.resolve():
        stop(f"{dst} is SRC itself, whose images would then include their copies; choose another DST")
    images = [Path(src.name)] if src.is_file() else _images(src, apart_from=dst)
    if not images:
        stop(f"no images in {src}; expected files such as .jpg or .png, there or in sub-folders")
    if not (overwrite or resume):
        existing = [target for image in images for target in job.targets(image) if target.exists()]
        if existing:
            stop(
                f"{len(existing)} of {len(images) * n} files to write exist, such as {existing[0]}; choose another "
                "DST, replace them with --overwrite, or keep them and write the others with --resume"
            )

    # A worker takes seconds to start, a copy milliseconds to make.
    workers = workers or min(torch.get_num_threads(), 1 + len(images) * n // 500)
    bar = (TextColumn("Augmenting"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    written, failed = 0, []
    try:
        with (
            Progress(*bar, console=Console(stderr=True)) as progress,
            closing(_in_processes(partial(_augment, job), images, workers)) as results,
        ):
            task = progress.add_task("", total=len(images))
            for image, (count, reason) in zip(images, results, strict=True):
                written += count
                if reason is not None:
                    failed.append({"path": str(root / image), "reason": reason})
                progress.advance(task)
    except KeyboardInterrupt:
        stop("interrupted; the files in place are whole, and --resume writes the missing ones", status=130)
    except CannotWriteError as error:
        stop(f"{error}; once mended, --resume writes the missing files")
    except BrokenProcessPool:
        stop(
            "a worker was killed, perhaps for want of memory; try fewer --workers, with --resume for the missing files"
        )

    for failure in failed:
        print(f"randfield: cannot augment {failure['path']}: {failure['reason']}", file=sys.stderr)
    if json_:
        print(json.dumps({"written": written, "failed": failed, "out": str(dst)}))
    else:
        unread = f", {len(failed)} of {len(images)} images failed" if failed else ""
        print(f"Wrote {written} file{'s' * (written != 1)} to {dst}{unread}.")
    return 1 if failed else 0


@dataclass(frozen=True)
class Job:
    """What a worker has to know; the names and numbers are those of `augment`."""

    root: Path
    dst: Path
    names: tuple[str, ...]
    gamma: tuple[float, ...]
    alpha: tuple[float, ...]
    p: float
    n: int
    seed: int
    resume: bool

    def transforms(self, generator: torch.Generator) -> list[LocalTransform]:
        return _parsed(self.names, self.gamma, self.alpha, p=self.p, generator=generator)

    def targets(self, image: Path) -> Iterator[Path]:
        """Suffixes are kept and the number comes last, so that no two images can have a target in common."""
        return (self.dst / image.with_name(f"{image.stem}-{index}{image.suffix}") for index in range(self.n))


def _images(src: Path, *, apart_from: Path) -> list[Path]:
    """The images in a folder and its sub-folders, relative to it, in a fixed order, without what is in `apart_from`."""
    suffixes = {suffix for suffix, kind in Image.registered_extensions().items() if kind in _FORMATS}
    found = []
    for folder, inside, files in os.walk(src, followlinks=True):
        here = Path(folder)
        real = here.resolve()
        # Not DST, and no link that leads back to where we are.
        inside[:] = [
            name
            for name in sorted(inside)
            if not name.startswith(".")
            and (linked := (here / name).resolve()) != apart_from.resolve()
            and not real.is_relative_to(linked)
        ]
        found += [
            (here / name).relative_to(src)
            for name in sorted(files)
            if not name.startswith(".") and Path(name).suffix.lower() in suffixes
        ]
    return found


def _in_processes(
    work: Callable[[Path], tuple[int, str | None]], images: Sequence[Path], workers: int
) -> Generator[tuple[int, str | None], None, None]:
    """`map(work, images)` by so many processes; with one, by this one."""
    torch.set_num_threads(1)  # one thread each; more would also sum in another order, and files would differ in a bit
    if workers == 1:
        yield from map(work, images)
        return
    # Spawned, not forked: torch's threads do not survive a fork.
    pool = ProcessPoolExecutor(workers, get_context("spawn"), torch.set_num_threads, (1,))
    remaining = iter(images)
    try:
        with _interrupts_ignored():  # inherited by the workers, which start here: Ctrl-C is ours to handle
            running = deque(pool.submit(work, image) for image in islice(remaining, workers))
        for image in remaining:
            running.append(pool.submit(work, image))
            if len(running) >= 4 * workers:  # as much ahead as keeps everyone busy, not a million futures
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _augment(job: Job, image: Path) -> tuple[int, str | None]:
    """Write the copies of one image; how many, and what was wrong with the image if there are not all."""
    generator = torch.Generator()
    transforms = job.transforms(generator)
    written = 0
    try:
        original, kind = pictures.read(job.root / image)
        for index, target in enumerate(job.targets(image)):
            if job.resume and target.exists():
                continue
            generator.manual_seed(seed_of(job.seed, image.as_posix(), index))
            copy = original
            for transform in transforms:
                copy = _apply(transform, copy)
            _write(target, _encoded(copy, kind, like=original))
            written += 1
    except CannotWriteError:
        raise
    except Exception as error:  # one bad image among a million, and Pillow raises what it likes
        return written, pictures.reason(error)
    return written, None


def _apply(transform: LocalTransform, image: Image.Image) -> Image.Image:
    """Transform an image of any mode."""
    if _moves_pixels(transform) or (isinstance(transform, LocalValue) and image.mode in ("L", "I;16")):
        return transform(image)
    if image.mode.startswith(("I", "F")):
        raise ValueError(
            f"{type(transform).__name__} needs colours of 8 bits, got mode {image.mode}; convert it to RGB, or use a "
            "geometric transform"
        )
    if not image.has_transparency_data:
        return transform(image.convert("RGB"))
    image = image.convert("RGBA")
    recoloured = transform(image.convert("RGB"))
    recoloured.putalpha(image.getchannel("A"))
    return recoloured


# The examples of the first page are not repeated under every command.
for _name in app:
    if app[_name].help_epilogue is None:
        app[_name].help_epilogue = ""

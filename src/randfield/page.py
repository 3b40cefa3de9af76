"""A report as one HTML file that needs nothing else: text, tables, pictures and curves, all inside.

Parts are strings of HTML; what comes from outside is escaped by `text`, `table` and the captions. Curves are drawn as
SVG here, so that a report needs no plotting library.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping, Sequence
from html import escape

from PIL import Image

__all__ = ["curves", "document", "heading", "matrix", "picture", "pictures", "table", "text"]

_STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --pale: #59636e; --line: #d1d9e0; --ground: #ffffff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --pale: #9198a1; --line: #3d444d; --ground: #0d1117; } }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--ground); max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { line-height: 1.2; } h2 { margin-top: 2.2rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { border-bottom: 1px solid var(--line); padding: .35rem .8rem; text-align: right; vertical-align: top; }
th:first-child, td:first-child { text-align: left; }
thead th { border-bottom-width: 2px; }
figure { margin: 1.2rem 0; } figcaption, .pale { color: var(--pale); font-size: .9rem; }
figure { overflow-x: auto; } img { max-width: 100%; height: auto; margin-right: .25rem; }
code { font-family: ui-monospace, monospace; font-size: .9em; }
"""
_COLOURS = ("#0969da", "#cf222e", "#1a7f37", "#8250df", "#bf8700", "#6e7781")


def document(title: str, *parts: str) -> str:
    """A whole page."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n"
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def heading(words: str) -> str:
    return f"<h2>{escape(words)}</h2>"


def text(words: str, *, pale: bool = False) -> str:
    """A paragraph.

    >>> text("a < b")
    '<p>a &lt; b</p>'
    """
    opening = '<p class="pale">' if pale else "<p>"
    return f"{opening}{escape(words)}</p>"


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """
    >>> table(["a"], [[1]])
    '<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>1</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def matrix(
    rows: Sequence[str],
    columns: Sequence[str],
    values: Mapping[tuple[str, str], float],
    *,
    words: Mapping[tuple[str, str], str],
    caption: str,
) -> str:
    """A table whose cells are the bluer the greater their value; a cell without one is empty.

    >>> "<td></td>" in matrix(["a"], ["x", "y"], {("a", "x"): 1.0}, words={("a", "x"): "one"}, caption="")
    True
    """
    low, high = min(values.values(), default=0.0), max(values.values(), default=0.0)

    def cell(at: tuple[str, str]) -> str:
        if at not in values:
            return "<td></td>"
        share = (values[at] - low) / (high - low) if high > low else 0.5
        shade = f"background: color-mix(in srgb, {_COLOURS[0]} {45 * share:.0f}%, transparent)"
        return f'<td style="{shade}">{escape(words[at])}</td>'

    head = "".join(f"<th>{escape(name)}</th>" for name in ["", *columns])
    body = "".join(
        f"<tr><td>{escape(row)}</td>{''.join(cell((row, column)) for column in columns)}</tr>" for row in rows
    )
    return (
        f"<figure><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def picture(image: Image.Image, caption: str, *, kind: str = "PNG") -> str:
    """An image with its caption, which is also what it says to those who do not see it."""
    return pictures([image], caption, kind=kind)


def pictures(images: Sequence[Image.Image], caption: str, *, kind: str = "PNG") -> str:
    """Images side by side, as many as there is room for, with one caption."""
    made = []
    for image in images:
        encoded = io.BytesIO()
        image.save(encoded, kind)
        source = f"data:image/{kind.lower()};base64,{base64.b64encode(encoded.getvalue()).decode()}"
        made.append(f'<img src="{source}" width="{image.width}" height="{image.height}" alt="{escape(caption)}">')
    return f"<figure>{''.join(made)}<figcaption>{escape(caption)}</figcaption></figure>"


def curves(lines: Mapping[str, Sequence[tuple[float, float]]], *, x: str, y: str, caption: str = "") -> str:
    """Lines of (x, y) points by name; a point that is not finite is left out."""
    lines = {
        name: [(a, b) for a, b in points if math.isfinite(a) and math.isfinite(b)] for name, points in lines.items()
    }
    every = [point for points in lines.values() for point in points]
    if not every:
        return text(f"{y}: nothing to draw", pale=True)
    height, left, right, top, bottom = 300, 64, 20 + 7 * max(map(len, lines)), 16, 44
    width = left + 430 + right
    (x0, x1), (y0, y1) = ((min(v), max(v)) for v in zip(*every, strict=True))
    y_ticks, x_ticks = _ticks(y0, y1), _ticks(x0, x1, whole=all(a == int(a) for a, _ in every))
    y0, y1 = min(y0, y_ticks[0]), max(y1, y_ticks[-1])

    def at(a: float, b: float) -> tuple[float, float]:
        across = (a - x0) / ((x1 - x0) or 1) * (width - left - right) + left
        return across, height - bottom - (b - y0) / ((y1 - y0) or 1) * (height - top - bottom)

    drawn = []
    for tick in y_ticks:
        _, level = at(x0, tick)
        drawn.append(f'<line x1="{left}" x2="{width - right}" y1="{level:.1f}" y2="{level:.1f}" stroke="var(--line)"/>')
        drawn.append(_label(left - 8, level + 4, f"{tick:g}", "end"))
    drawn += [
        _label(at(tick, y0)[0], height - bottom + 18, f"{tick:g}", "middle") for tick in x_ticks if x0 <= tick <= x1
    ]
    drawn.append(_label((left + width - right) / 2, height - 6, x, "middle"))
    drawn.append(f'<g transform="rotate(-90 14 {height / 2})">{_label(14, height / 2, y, "middle")}</g>')
    ends = sorted((at(*points[-1])[1], name) for name, points in lines.items() if points)
    levels: dict[str, float] = {}
    for level, name in ends:  # labels keep clear of each other
        levels[name] = max(level, max(levels.values(), default=-math.inf) + 16)
    for number, (name, points) in enumerate(lines.items()):
        if not points:
            continue
        colour = _COLOURS[number % len(_COLOURS)]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in (at(*point) for point in points))
        drawn.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        drawn += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.5" fill="{colour}"/>' for a, b in (at(*p) for p in points)]
        drawn.append(_label(at(*points[-1])[0] + 8, levels[name] + 4, name, "start", colour))
    svg = f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-label="{escape(y)}">'
    return f"<figure>{svg}{''.join(drawn)}</svg><figcaption>{escape(caption)}</figcaption></figure>"


def _label(x: float, y: float, words: str, anchor: str, colour: str = "var(--pale)") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="12" fill="{colour}">{escape(words)}</text>'


def _ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    """About five round numbers that cover the range.

    >>> _ticks(0.13, 0.92)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    span = (high - low) or abs(high) or 1.0
    step = 10.0 ** math.floor(math.log10(span / 4))
    step *= min((m for m in (1, 2, 5, 10) if span / (step * m) <= 5), default=10)
    if whole:
        step = max(1.0, step)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(k * step, 10) for k in range(first, last + 1)]

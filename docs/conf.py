"""The documentation site, built by `make docs`: warnings are errors, the gallery is run."""

import re
from pathlib import Path
from typing import Any

import latex2mathml.converter
import sphinx.util.inspect
import torch
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx_gallery.sorting import ExplicitOrder

import randfield

torch.set_num_threads(1)  # small pictures, and others may be at work on this machine

project = "randfield"
author = "the randfield maintainers"
copyright = "the randfield maintainers, Apache-2.0"  # noqa: A001  # Sphinx reads this name
version = release = randfield.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = [
    "_build",
    "gallery",
    "photos",
    "**/sg_execution_times.rst",
    "sg_execution_times.rst",
]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
smartquotes_action = "De"  # dashes and ellipses; "nearest" is to be pasted as it is

html_theme = "furo"
html_title = "randfield"
html_static_path = ["_static"]
html_favicon = "_static/icon.svg"
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_math_renderer = "mathml"

# Docstrings speak of `code` in single backticks, as Markdown does.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_inherit_docstrings = False
napoleon_use_param = False  # "gamma, p, spectrum: as for ..." describes several at once
maximum_signature_line_length = 80

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "examples",
    "filename_pattern": r"plot_",
    "within_subsection_order": ExplicitOrder(
        [
            f"plot_{name}.py"
            for name in (
                "fields",
                "local_affine",
                "local_colour",
                "composites",
                "folding",
                "targets",
                "simclr_views",
                "other_spectra",
                "own_transform",
            )
        ]
    ),
    "abort_on_example_error": True,
    "download_all_examples": False,
    "image_srcset": ["2x"],
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
}


def _as_rst(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Docstrings are prose with `code`, doctests and indented formulas; make that RST."""
    if what in ("attribute", "property"):
        lines[:0] = ["..", ""]  # or napoleon takes what precedes a colon for a type
    before, doctest = "", False
    for number, line in enumerate(list(lines)):
        doctest = line.lstrip().startswith(">>>") or (doctest and bool(line.strip()))
        formula = what == "module" and line.startswith("    ")
        if not doctest and not formula:
            prose = line.split("`")
            prose[::2] = [
                part.replace("*", r"\*").replace("|", r"\|") for part in prose[::2]
            ]
            prose[2::2] = [
                rf"\ {part}" if part[:1].isalnum() else part for part in prose[2::2]
            ]  # a plural's s
            lines[number] = "`".join(prose)
        if formula and not before.startswith("    ") and not doctest:
            lines[number] = f"::\n\n{line}"
        before = line if line.strip() else before
    lines[:] = "\n".join(lines).split("\n")


def _math(display: str) -> Any:
    def visit(translator: Any, node: nodes.Element) -> None:
        translator.body.append(
            latex2mathml.converter.convert(node.astext(), display=display)
        )
        raise nodes.SkipNode

    return visit


def _loads_nothing_from_elsewhere(app: Sphinx, error: Exception | None) -> None:
    remote = re.compile(
        r"""<(?:script|img|iframe|source)[^>]*\ssrc=["'](?:https?:)?//|"""
        r"""<link[^>]*\shref=["'](?:https?:)?//|@import|url\(["']?(?:https?:)?//"""
    )
    for file in Path(app.outdir).rglob("*"):
        if file.suffix in (".html", ".css") and (found := remote.search(file.read_text())):
            raise ExtensionError(f"{file} loads something from elsewhere: {found[0]}")


def setup(app: Sphinx) -> None:
    # What dispatches on a type is one function to its reader: one signature says all.
    sphinx.util.inspect.is_singledispatch_function = lambda obj: False
    # MathML, which browsers draw themselves: no script, from here or from elsewhere.
    app.add_html_math_renderer("mathml", (_math("inline"), None), (_math("block"), None))
    app.connect("autodoc-process-docstring", _as_rst, priority=400)  # before napoleon's 500
    app.connect("build-finished", _loads_nothing_from_elsewhere)

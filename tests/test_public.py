"""The public surface is a list; the core needs torch and torchvision alone; imports point one way."""

import ast
import importlib
import inspect
import operator
import pathlib
import subprocess
import sys

import pytest

import randfield

PUBLIC = {
    "randfield": [
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
        "SimCLRViews",
        "from_config",
        "functional",
        "matern",
        "power_law",
        "sample_field",
        "squared_exponential",
    ],
    "randfield.functional": [
        "compose",
        "folding",
        "identity_grid",
        "rotate",
        "sampling_grid",
        "scale",
        "shear",
        "shift_hsv",
        "translate",
        "warp",
    ],
}

# What each module of the core may import of randfield itself.
BELOW = {
    "threads": set(),
    "kernels": {"threads"},
    "fields": {"kernels"},
    "affine": {"fields"},
    "color": {"fields", "kernels"},
    "warp": {"affine", "fields", "kernels"},
    "functional": {"affine", "color", "kernels", "warp"},
    "draws": {"fields"},
    "transforms": {"affine", "draws", "fields", "functional", "kernels", "threads", "warp"},
    "views": {"affine", "color", "draws", "fields", "functional", "kernels", "threads", "transforms", "warp"},
}
MATHS = ("threads", "kernels", "fields", "affine", "color", "warp", "draws")  # import torch alone

SOURCE = pathlib.Path(inspect.getfile(randfield)).parent
TRANSFORM = {
    "gamma": (7, 10),
    "p": 1.0,
    "spectrum": None,
    "period": 1.0,
    "bound": "peak",
    "per_sample": False,
    "generator": None,
}
STRENGTH = {"alpha": (0, 1 / 3)}
RESAMPLING = {"interpolation": "bilinear", "padding": "reflection", "fill": 0, "fold_free": False}
WHEN = {"p": 1.0, "per_sample": False, "generator": None}
SIGNATURES = {
    **{f"Local{name}": TRANSFORM | STRENGTH | RESAMPLING for name in ("Rotate", "Scale", "Shear", "Translate")},
    **{f"Local{name}": TRANSFORM | STRENGTH for name in ("Hue", "Saturation", "Value")},
    "LocalColorJitter": TRANSFORM | dict.fromkeys(("hue", "saturation", "value"), (0, 1 / 3)),
    "LocalAffine": WHEN | RESAMPLING | {"order": "random"},
    "sample_field": {
        "gamma": 8.0,
        "alpha": 1.0,
        "batch": (),
        "spectrum": None,
        "period": 1.0,
        "bound": "peak",
        "tolerance": 0.0,
        "generator": None,
        "device": None,
    },
}


def imported_by(module):
    """The names of all modules a file imports when it is imported, that is outside functions and TYPE_CHECKING."""
    names = []
    tree = ast.parse((SOURCE / f"{module}.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names(name):
    """A new name in the public surface is a decision, and this list is where it is taken."""
    module = importlib.import_module(name)
    assert module.__all__ == PUBLIC[name]
    assert all(hasattr(module, public) for public in module.__all__)


@pytest.mark.parametrize(
    "name", PUBLIC["randfield"] + [f"functional.{name}" for name in PUBLIC["randfield.functional"]]
)
def test_public_names_are_documented(name):
    thing = operator.attrgetter(name)(randfield)
    assert len((inspect.getdoc(thing) or "").split()) >= 5


@pytest.mark.parametrize("name", SIGNATURES)
def test_options_are_keywords_with_the_agreed_defaults(name):
    """The agreed interface: nothing but `size` and the atoms is positional, nothing is swallowed by **kwargs."""
    parameters = inspect.signature(getattr(randfield, name)).parameters
    options = {key: p.default for key, p in parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY}
    assert options == SIGNATURES[name]
    rest = [(key, p.kind.name) for key, p in parameters.items() if key not in options]
    first = {"LocalAffine": "transforms", "sample_field": "size"}
    assert rest == ([(first[name], "POSITIONAL_OR_KEYWORD")] if name in first else [])


@pytest.mark.parametrize("module", BELOW)
def test_imports_point_one_way(module):
    ours = {name.split(".")[1] for name in imported_by(module) if name.split(".")[0] == "randfield"}
    assert ours <= BELOW[module]


@pytest.mark.parametrize("module", BELOW)
def test_core_imports_torch_and_torchvision_alone(module):
    allowed = {"torch"} if module in MATHS else {"torch", "torchvision", "PIL"}
    others = {name.split(".")[0] for name in imported_by(module)} - sys.stdlib_module_names - {"randfield"}
    assert others <= allowed


def test_importing_randfield_loads_nothing_beyond_torchvision():
    """Measured in a fresh process: whatever torchvision brings is there before."""
    code = """
import sys, torchvision, torchvision.transforms.v2
before = {name.split(".")[0] for name in sys.modules}
import randfield
print(*sorted({name.split(".")[0] for name in sys.modules} - before - sys.stdlib_module_names))
"""
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning:randfield", "-c", code],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["randfield"]


def test_version_and_types():
    assert randfield.__version__.split(".")[0].isdigit()
    assert (SOURCE / "py.typed").exists()

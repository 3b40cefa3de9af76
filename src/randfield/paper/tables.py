"""Tables 1 to 4 of the paper: what each row changes, and the accuracies that the paper prints.

A row is a name, the part of a run's config in which it differs from the others, and the paper's numbers. The names are
those of `--rows`, of folders and of results. Rows that stand in several tables have the same settings there, so that
they need not be trained twice. A baseline that a table does not print but is compared with is among its rows too.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any, Literal, get_args

from randfield.names import parse_local
from randfield.transforms import LocalTransform

__all__ = ["LOCALS", "TABLES", "Accuracy", "Row", "Table", "TableName"]

LOCALS = ("translate", "shear", "scale", "rotate", "translate+shear", "color")
"""What is worth a try on data of one's own: the atoms, and a pair of those that fold little."""

TableName = Literal["table1", "table2", "table3", "table4"]

Task = Literal["in", "ood"]
"""Where an encoder is judged: on the data that it was pretrained on, or on other data."""


@dataclass(frozen=True)
class Accuracy:
    """Top-1 and top-5 as shares; the paper prints no top-5 for composites."""

    top1: float
    top5: float | None = None


@dataclass(frozen=True, eq=False)
class Row:
    """One setting. `cell` is its place in a table of two dimensions, by the labels of the row and the column."""

    name: str
    label: str
    settings: dict[str, Any]
    paper: dict[Task, Accuracy]
    cell: tuple[str, str] | None = None
    printed: bool = True

    def transform(self) -> LocalTransform | None:
        """The local transform of this row's views; None is SimCLR as it was."""
        settings = dict(self.settings)
        name = settings.pop("local")
        return None if name == "none" else parse_local(name, **({"p": 0.8} | settings))


@dataclass(frozen=True)
class Table:
    """A table; the row called `baseline` is what the others are compared with."""

    name: TableName
    title: str
    rows: tuple[Row, ...]
    baseline: str

    def row(self, name: str) -> Row:
        return next(row for row in self.rows if row.name == name)


def _row(
    name: str, label: str, inside: Accuracy, outside: Accuracy, /, *, cell: tuple[str, str] | None = None,
    printed: bool = True, **settings: Any,
) -> Row:  # fmt: skip
    return Row(name, label, settings, {"in": inside, "ood": outside}, cell, printed)


_BASELINE = (Accuracy(0.7056, 0.9022), Accuracy(0.3873, 0.5983))

_ATOMS: dict[str, tuple[Accuracy, Accuracy]] = {
    "color": (Accuracy(0.7045, 0.9013), Accuracy(0.3964, 0.6071)),
    "rotate": (Accuracy(0.7007, 0.8945), Accuracy(0.4159, 0.6171)),
    "scale": (Accuracy(0.7102, 0.8964), Accuracy(0.4174, 0.6245)),
    "shear": (Accuracy(0.7219, 0.9031), Accuracy(0.4102, 0.6228)),
    "translate": (Accuracy(0.7223, 0.9015), Accuracy(0.4231, 0.6267)),
}

_TABLE1 = Table(
    "table1",
    "Table 1: atomic local transformations",
    (
        _row("baseline", "Baseline (SimCLR augmentations)", *_BASELINE, local="none"),
        *(
            _row(name, f"Local {'color jitter' if name == 'color' else name}", *paper, local=name)
            for name, paper in _ATOMS.items()
        ),
    ),
    baseline="baseline",
)

_GAMMAS = ((3.0, 7.0), (7.0, 10.0), (3.0, 10.0))
_ALPHAS = {"1/3": 1 / 3, "2/3": 2 / 3, "1": 1.0}
_SWEEP: dict[Task, tuple[tuple[Accuracy, ...], ...]] = {
    "in": (
        (Accuracy(0.6981, 0.8896), Accuracy(0.6879, 0.8788), Accuracy(0.6595, 0.865)),
        (Accuracy(0.7223, 0.9015), Accuracy(0.6939, 0.8873), Accuracy(0.6917, 0.8879)),
        (Accuracy(0.7045, 0.8939), Accuracy(0.6937, 0.8808), Accuracy(0.6723, 0.8697)),
    ),
    "ood": (
        (Accuracy(0.4046, 0.6055), Accuracy(0.4043, 0.6021), Accuracy(0.3964, 0.5895)),
        (Accuracy(0.4231, 0.6267), Accuracy(0.4080, 0.6169), Accuracy(0.4180, 0.6245)),
        (Accuracy(0.4183, 0.6255), Accuracy(0.4136, 0.6092), Accuracy(0.4043, 0.6003)),
    ),
}


def _sweep(i: int, j: int) -> Row:
    gamma, (most, alpha) = _GAMMAS[i], list(_ALPHAS.items())[j]
    cell = f"γ ∈ [{gamma[0]:g}, {gamma[1]:g}]", f"α ∈ [0, {most}]"
    settings: dict[str, Any] = {} if gamma == (7.0, 10.0) else {"gamma": gamma}
    settings |= {} if most == "1/3" else {"alpha": (0.0, alpha)}
    return _row(
        f"gamma{gamma[0]:g}-{gamma[1]:g}-alpha{alpha:.2f}", ", ".join(cell), _SWEEP["in"][i][j], _SWEEP["ood"][i][j],
        cell=cell, local="translate", **settings,
    )  # fmt: skip


_UNPRINTED = _row("baseline", "Baseline (table 1)", *_BASELINE, printed=False, local="none")

_TABLE2 = Table(
    "table2",
    "Table 2: smoothness and strength of local translation",
    (_UNPRINTED, *(_sweep(i, j) for i in range(3) for j in range(3))),
    baseline="baseline",
)

_PROBABILITIES: dict[float, tuple[Accuracy, Accuracy]] = {
    0.0: _BASELINE,
    0.2: (Accuracy(0.7134, 0.8971), Accuracy(0.3906, 0.6030)),
    0.4: (Accuracy(0.7207, 0.9034), Accuracy(0.3954, 0.6060)),
    0.6: (Accuracy(0.7140, 0.9036), Accuracy(0.3903, 0.6060)),
    0.8: _ATOMS["translate"],
    1.0: (Accuracy(0.6929, 0.8893), Accuracy(0.3937, 0.6031)),
}

_TABLE3 = Table(
    "table3",
    "Table 3: probability of local translation",
    tuple(
        _row(f"p{p:.1f}", f"{p:.1f}", *paper, **({"local": "translate", "p": p} if p else {"local": "none"}))
        for p, paper in _PROBABILITIES.items()
    ),
    baseline="p0.0",
)

_PAIRS: dict[str, tuple[float, float]] = {
    "rotate+scale": (0.7092, 0.4026),
    "rotate+shear": (0.7155, 0.4006),
    "rotate+translate": (0.716, 0.4044),
    "scale+shear": (0.7235, 0.3848),
    "scale+translate": (0.7088, 0.3953),
    "shear+translate": (0.7119, 0.3966),
}


def _pair(first: str, second: str) -> Row:
    cell = first.capitalize(), second.capitalize()
    if first == second:  # the diagonal shows the atom alone
        inside, outside = _ATOMS[first]
        return _row(first, f"{cell[0]} alone", inside, outside, cell=cell, local=first)
    name = f"{first}+{second}"
    inside, outside = (Accuracy(top1) for top1 in _PAIRS[name])
    return _row(name, f"{cell[0]} and {second}", inside, outside, cell=cell, local=name)


_TABLE4 = Table(
    "table4",
    "Table 4: composites of two",
    (
        _UNPRINTED,
        *(_pair(*both) for both in combinations_with_replacement(("rotate", "scale", "shear", "translate"), 2)),
    ),
    baseline="baseline",
)

TABLES: dict[TableName, Table] = {table.name: table for table in (_TABLE1, _TABLE2, _TABLE3, _TABLE4)}
assert tuple(TABLES) == get_args(TableName)

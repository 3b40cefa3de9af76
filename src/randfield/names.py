"""What transforms are called where code is not at hand: on the command line and in the config of a run.

A name is one word, or words joined by `+` for what is composed; the ranges of gamma and alpha and the probability p go
beside it, the same for all of its parts.
"""

from __future__ import annotations

import torch

from randfield.transforms import (
    LocalAffine,
    LocalColorJitter,
    LocalHue,
    LocalRotate,
    LocalSaturation,
    LocalScale,
    LocalShear,
    LocalTransform,
    LocalTranslate,
    LocalValue,
    LocalWarp,
    Range,
)

__all__ = ["COLOUR", "GEOMETRY", "parse_local"]

GEOMETRY: dict[str, type[LocalWarp]] = {
    "rotate": LocalRotate,
    "scale": LocalScale,
    "shear": LocalShear,
    "translate": LocalTranslate,
}
COLOUR = {"hue": LocalHue, "saturation": LocalSaturation, "value": LocalValue}


def parse_local(
    name: str,
    *,
    gamma: Range = (7, 10),
    alpha: Range = (0, 1 / 3),
    p: float = 1.0,
    generator: torch.Generator | None = None,
) -> LocalTransform:
    """The transform that a name on the command line stands for.

    `rotate`, `scale`, `shear`, `translate`, `hue`, `saturation` and `value` are the classes of those names; `color` is
    all three colours; geometric names joined by `+` are a `LocalAffine` of atoms that all have this gamma and alpha.

    >>> parse_local("translate+shear", alpha=0.2, p=0.8).transforms[1].alpha
    0.2
    """
    if name == "color":
        return LocalColorJitter(hue=alpha, saturation=alpha, value=alpha, gamma=gamma, p=p, generator=generator)
    if name in COLOUR:
        return COLOUR[name](gamma=gamma, alpha=alpha, p=p, generator=generator)
    atoms = name.split("+")
    if not set(atoms) <= GEOMETRY.keys():
        raise ValueError(
            f"unknown transform {name!r}; expected one of {', '.join([*GEOMETRY, *COLOUR, 'color'])}, or several of "
            f"the first {len(GEOMETRY)} joined by +, such as translate+shear"
        )
    if len(atoms) == 1:
        return GEOMETRY[name](gamma=gamma, alpha=alpha, p=p, generator=generator)
    return LocalAffine([GEOMETRY[atom](gamma=gamma, alpha=alpha) for atom in atoms], p=p, generator=generator)

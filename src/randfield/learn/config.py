"""What decides a run: a `Config`, and the presets that fill it.

A config is plain data. It is saved beside the run as JSON, and the same config gives the same run.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from randfield.names import parse_local
from randfield.views import SimCLRViews

__all__ = ["METHODS", "PRESETS", "Config", "MethodName", "OptimizerName", "Precision", "PresetName"]

MethodName = Literal["simclr", "byol", "simsiam", "barlowtwins", "vicreg"]
OptimizerName = Literal["lars", "sgd", "adamw"]
Precision = Literal["bf16", "fp32"]
PresetName = Literal["demo", "small", "paper"]
METHODS = get_args(MethodName)


@dataclass(frozen=True, kw_only=True)
class Config:
    """A pretraining run; the defaults are those of the preset `paper`, see there for where they come from."""

    data: str = "imagenet"
    root: str = "data"
    local: str = "none"
    """The local transform by name, see `randfield.names`; none is SimCLR as it was."""
    gamma: tuple[float, ...] = (7.0, 10.0)
    alpha: tuple[float, ...] = (0.0, 1 / 3)
    p: float = 0.8
    method: MethodName = "simclr"
    encoder: str = "resnet50"
    size: int = 224
    crop_scale: tuple[float, float] = (0.08, 1.0)
    strength: float = 1.0
    blur: bool = True
    epochs: int = 1000
    warmup_epochs: float = 10
    batch_size: int = 4096
    """Images of a step, over all processes; each gives two views."""
    accumulate: int = 1
    """Parts that a step is done in; negatives come from one part."""
    optimizer: OptimizerName = "lars"
    learning_rate: float = 4.8
    weight_decay: float = 1e-6
    temperature: float = 0.1
    hidden_dim: int = 2048
    output_dim: int = 128
    head_batch_norm: bool = True
    precision: Precision = "bf16"
    seed: int = 0
    knn_every: int = 1
    """Epochs between looks at the nearest neighbours."""

    def __post_init__(self) -> None:
        for name, kind in (("method", MethodName), ("optimizer", OptimizerName), ("precision", Precision)):
            if getattr(self, name) not in get_args(kind):
                raise ValueError(f"{name} must be one of {', '.join(get_args(kind))}, got {getattr(self, name)!r}")
        for name in ("size", "epochs", "batch_size", "accumulate", "hidden_dim", "output_dim", "knn_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)!r}")
        for name in ("learning_rate", "temperature"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise ValueError(f"{name} must be a number above 0, got {getattr(self, name)!r}")
        if not 0 <= self.warmup_epochs <= self.epochs:
            raise ValueError(f"warmup_epochs must be in [0, epochs={self.epochs}], got {self.warmup_epochs!r}")
        if self.batch_size % self.accumulate:
            raise ValueError(f"accumulate must divide batch_size={self.batch_size}, got {self.accumulate!r}")
        for name in ("gamma", "alpha", "crop_scale"):
            object.__setattr__(self, name, tuple(map(float, getattr(self, name))))  # JSON has lists
        self.views()  # says what is wrong with the rest

    def views(self, *, cropped: bool = False) -> SimCLRViews:
        """The views that this config learns from; of images that are crops of their size, the one view of each."""
        gamma, alpha = (values[0] if len(values) == 1 else values for values in (self.gamma, self.alpha))
        local = None if self.local == "none" else parse_local(self.local, gamma=gamma, alpha=alpha, p=self.p)
        scale, n_views = ((1.0, 1.0), 1) if cropped else (self.crop_scale, 2)
        return SimCLRViews(self.size, local, n_views=n_views, strength=self.strength, blur=self.blur, crop_scale=scale)

    @classmethod
    def of(cls, preset: PresetName, **given: Any) -> Config:
        """A preset with some of its values replaced; a value of None is not given.

        Where epochs are given and warm-up is not, it takes at most a tenth of them.
        """
        if preset not in PRESETS:
            raise ValueError(f"preset must be one of {', '.join(PRESETS)}, got {preset!r}")
        values = PRESETS[preset] | {key: value for key, value in given.items() if value is not None}
        if given.get("warmup_epochs") is None:
            values["warmup_epochs"] = min(values["warmup_epochs"], values["epochs"] / 10)
        return cls.read(values)

    @classmethod
    def read(cls, values: dict[str, Any]) -> Config:
        """From plain data; a key that there is not is an error."""
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ValueError(f"unknown keys in the config: {', '.join(unknown)}; known are {', '.join(sorted(known))}")
        return cls(**values)

    @classmethod
    def load(cls, path: Path) -> Config:
        try:
            return cls.read(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, json.JSONDecodeError, TypeError) as error:
            raise ValueError(f"{path} is not a config: {error}") from error

    def plain(self) -> dict[str, Any]:
        """As plain data, which `read` reads back."""
        return {key: list(v) if isinstance(v, tuple) else v for key, v in dataclasses.asdict(self).items()}


# What the random-field paper does not give is SimCLR's published value: Chen et al., 2020, arXiv 2002.05709; "command"
# is the one for ImageNet in the README of github.com/google-research/simclr.
_PAPER: dict[str, Any] = {
    "data": "imagenet",
    "encoder": "resnet50",  # paper, section 4: an encoder pretrained on ImageNet by SimCLR
    "size": 224,
    "crop_scale": (0.08, 1.0),  # SimCLR, appendix A
    "strength": 1.0,  # SimCLR, appendix A
    "blur": True,  # SimCLR, appendix A
    "epochs": 1000,  # not given; SimCLR's longest: the paper's baseline of 70.6 % is out of reach of 100, its default
    "warmup_epochs": 10,  # SimCLR, section 2.2
    "batch_size": 4096,  # SimCLR, section 2.2, and command
    "optimizer": "lars",  # SimCLR, section 2.2
    "learning_rate": 4.8,  # SimCLR, section 2.2: 0.3 × batch size / 256, and command
    "weight_decay": 1e-6,  # SimCLR, section 2.2, and command
    "temperature": 0.1,  # command
    "hidden_dim": 2048,  # as wide as the encoder's output: their code
    "output_dim": 128,  # SimCLR, section 2.2
    "precision": "bf16",  # ours; theirs is TPUs' default, which multiplies in bfloat16
}

# For two cores and a quarter of an hour: SimCLR's settings for CIFAR (appendix B.9: half the jitter, no blur, a small
# stem), a narrow ResNet-18, and AdamW, which a batch of 256 suits better than LARS.
_SMALL: dict[str, Any] = {
    "data": "demo",
    "encoder": "resnet18_small_w16",
    "size": 32,
    "crop_scale": (0.2, 1.0),
    "strength": 0.5,
    "blur": False,
    "epochs": 15,
    "warmup_epochs": 1,
    "batch_size": 256,
    "optimizer": "adamw",
    "learning_rate": 4e-3,
    "weight_decay": 1e-4,
    "temperature": 0.2,
    "hidden_dim": 512,
    "output_dim": 128,
    "precision": "bf16",
}

PRESETS: dict[str, dict[str, Any]] = {
    "paper": _PAPER,
    "small": _SMALL,
    "demo": _SMALL | {"epochs": 24, "batch_size": 200, "warmup_epochs": 2, "knn_every": 3},
}

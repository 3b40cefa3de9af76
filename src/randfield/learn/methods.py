"""Other ways to learn from two views, with lightly's losses and heads: BYOL, SimSiam, Barlow Twins, VICReg.

The paper names other methods as its future work. Widths are the config's, so that they suit small encoders; with
`hidden_dim` and `output_dim` as in the papers they are the papers'.
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING

import torch
from lightly.loss import BarlowTwinsLoss, NegativeCosineSimilarity, VICRegLoss
from lightly.models.modules.heads import (
    BarlowTwinsProjectionHead,
    BYOLPredictionHead,
    BYOLProjectionHead,
    SimSiamPredictionHead,
    SimSiamProjectionHead,
    VICRegProjectionHead,
)
from lightly.models.utils import deactivate_requires_grad, update_momentum
from torch import Tensor, nn

from randfield.learn.simclr import Method, SimCLR

if TYPE_CHECKING:
    from randfield.learn.config import Config

__all__ = ["BYOL", "BarlowTwins", "SimSiam", "VICReg", "build"]


class BYOL(Method):
    """Predict the projections of a slow copy of oneself (Grill et al., 2020)."""

    momentum = 0.996  # at the start; a cosine takes it to one

    def __init__(self, encoder: nn.Module, config: Config) -> None:
        super().__init__(encoder, config)
        self.projector = BYOLProjectionHead(self.width, config.hidden_dim, config.output_dim)
        self.predictor = BYOLPredictionHead(config.output_dim, config.hidden_dim, config.output_dim)
        self.slow = copy.deepcopy(nn.Sequential(encoder, self.projector))
        deactivate_requires_grad(self.slow)
        self.criterion = NegativeCosineSimilarity()

    def before_step(self, progress: float) -> None:
        momentum = 1 - (1 - self.momentum) * (math.cos(math.pi * progress) + 1) / 2
        update_momentum(nn.Sequential(self.encoder, self.projector), self.slow, momentum)

    def loss(self, views: list[Tensor]) -> Tensor:
        predicted = self.predictor(self.projector(self.encoded(views))).float().chunk(2)
        with torch.no_grad():
            aimed = self.slow(torch.cat(views)).float().chunk(2)
        loss: Tensor = self.criterion(predicted[0], aimed[1]) + self.criterion(predicted[1], aimed[0])
        return loss / 2


class SimSiam(Method):
    """BYOL without the slow copy: the gradient stops at the other view (Chen & He, 2021)."""

    def __init__(self, encoder: nn.Module, config: Config) -> None:
        super().__init__(encoder, config)
        self.projector = SimSiamProjectionHead(self.width, config.hidden_dim, config.output_dim)
        self.predictor = SimSiamPredictionHead(config.output_dim, max(1, config.output_dim // 4), config.output_dim)
        self.criterion = NegativeCosineSimilarity()

    def loss(self, views: list[Tensor]) -> Tensor:
        projected = self.projector(self.encoded(views))
        first, second = self.predictor(projected).float().chunk(2)
        aim_second, aim_first = projected.detach().float().chunk(2)
        loss: Tensor = self.criterion(first, aim_first) + self.criterion(second, aim_second)
        return loss / 2


class BarlowTwins(Method):
    """The correlations of both views' features are to be the identity (Zbontar et al., 2021)."""

    def __init__(self, encoder: nn.Module, config: Config) -> None:
        super().__init__(encoder, config)
        self.head = BarlowTwinsProjectionHead(self.width, config.hidden_dim, config.output_dim)
        self.criterion = BarlowTwinsLoss(gather_distributed=True)

    def loss(self, views: list[Tensor]) -> Tensor:
        loss: Tensor = self.criterion(*self.head(self.encoded(views)).float().chunk(2))
        return loss


class VICReg(Method):
    """Views alike, features that vary, features that differ (Bardes et al., 2022)."""

    def __init__(self, encoder: nn.Module, config: Config) -> None:
        super().__init__(encoder, config)
        self.head = VICRegProjectionHead(self.width, config.hidden_dim, config.output_dim)
        self.criterion = VICRegLoss(gather_distributed=True)

    def loss(self, views: list[Tensor]) -> Tensor:
        loss: Tensor = self.criterion(*self.head(self.encoded(views)).float().chunk(2))
        return loss


_METHODS: dict[str, type[Method]] = {
    "simclr": SimCLR,
    "byol": BYOL,
    "simsiam": SimSiam,
    "barlowtwins": BarlowTwins,
    "vicreg": VICReg,
}


def build(encoder: nn.Module, config: Config) -> Method:
    return _METHODS[config.method](encoder, config)

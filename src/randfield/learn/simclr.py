"""SimCLR: views of the same image are drawn together, views of others pushed apart (Chen et al., 2020).

`Method` is what a way of learning has to say: a loss for the views of a batch. `Pretraining` is the rest of the step, a
LightningModule: it turns a batch of images into views where they are, and steps the optimizer through warm-up and
cosine. Further methods are in `methods`.

The global batch is everything: it is drawn alike in every process, of which each does its share, so the number of
processes changes neither the views, nor the negatives, nor the loss.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import lightning as L
import torch
from lightly.loss import NTXentLoss
from lightly.models.modules.heads import SimCLRProjectionHead
from lightly.models.utils import get_weight_decay_parameters
from lightly.utils.lars import LARS
from lightly.utils.scheduler import CosineWarmupScheduler
from torch import Tensor, nn
from torch.utils.data import DataLoader

from randfield.learn.feed import Feed
from randfield.seeds import seed_of
from randfield.views import SimCLRViews

if TYPE_CHECKING:
    from randfield.learn.config import Config

__all__ = ["Method", "Pretraining", "SimCLR"]


class Method(nn.Module):
    """An encoder, whatever helps to teach it, and the loss of a batch of views."""

    def __init__(self, encoder: nn.Module, config: Config) -> None:
        super().__init__()
        self.encoder = encoder
        self.config = config
        self.width: int = encoder.num_features  # type: ignore[assignment]  # timm's encoders have it, modules need not

    def loss(self, views: list[Tensor]) -> Tensor:
        """The loss of two views [b, 3, h, w] each of the same b images, which are this process's share."""
        raise NotImplementedError

    def before_step(self, progress: float) -> None:
        """Called before each step with the share of the run that is over, for what is not learned by gradient."""

    def encoded(self, views: list[Tensor]) -> Tensor:
        """Features of all views, one pass: batch statistics are those of both views, as in the papers."""
        features: Tensor = self.encoder(torch.cat(views))
        return features

    def forward(self, views: list[Tensor]) -> Tensor:
        return self.loss(views)


class SimCLR(Method):
    """Normalised temperature-scaled cross entropy over the global batch, on a head of two layers."""

    def __init__(self, encoder: nn.Module, config: Config) -> None:
        super().__init__(encoder, config)
        self.head = SimCLRProjectionHead(
            self.width, config.hidden_dim, config.output_dim, batch_norm=config.head_batch_norm
        )
        self.criterion = NTXentLoss(config.temperature, gather_distributed=True)

    def loss(self, views: list[Tensor]) -> Tensor:
        # In full precision: at a temperature of 0.1, bfloat16 tells few similarities apart.
        first, second = self.head(self.encoded(views)).float().chunk(2)
        loss: Tensor = self.criterion(first, second)
        return loss


class Pretraining(L.LightningModule):
    """A method on its way through a run. `feed` brings the images, `steps` is the number of all steps."""

    def __init__(self, method: Method, config: Config, feed: Feed) -> None:
        super().__init__()
        self.method = method.to(memory_format=torch.channels_last)
        self.config = config
        self.feed = feed
        self.views, self.rest_of_views = config.views(), config.views(cropped=True)

    @property
    def steps(self) -> int:
        batches = len(self.feed.images) // self.feed.batch_size
        return self.config.epochs * math.ceil(batches / self.config.accumulate)

    def train_dataloader(self) -> DataLoader[Any]:
        # Workers begin before Lightning tells the sampler which epoch a run goes on with.
        epoch = self.trainer.fit_loop.epoch_progress.current.processed  # type: ignore[attr-defined]  # it has that
        return self.feed.loader(self.trainer.global_rank, self.trainer.world_size, epoch=epoch)

    def on_after_batch_transfer(self, batch: dict[str, Any], dataloader_idx: int) -> dict[str, Any]:
        when = batch["epoch"], batch["step"]
        if "images" in batch:
            batch["views"] = self._made(self.views, batch.pop("images"), *when)
        elif "crops" in batch:
            crops = enumerate(batch.pop("crops"))
            batch["views"] = [self._made(self.rest_of_views, crop, *when, number)[0] for number, crop in crops]
        batch["views"] = [view.contiguous(memory_format=torch.channels_last) for view in batch["views"]]
        return batch

    @torch.no_grad()
    def _made(self, views: SimCLRViews, images: Tensor, *when: int) -> list[Tensor]:
        """Views of this process's share of a global batch, all of which every process draws."""
        share, rank = len(images), self.trainer.global_rank
        if views.generator is None or views.generator.device != images.device:
            views.generator = torch.Generator(images.device)
        views.generator.manual_seed(seed_of(self.config.seed, "views", *when))
        everyone = images[:1].expand(share * self.trainer.world_size, -1, -1, -1)  # only its shape is asked for
        params = views.make_params([everyone])
        if self.trainer.world_size > 1:
            params = views.take(params, slice(rank * share, (rank + 1) * share))
        return views.transform(images, params)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        self.method.before_step(self.global_step / max(1, self.steps))

    def on_train_epoch_start(self) -> None:
        self._losses: list[Tensor] = []

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        loss: Tensor = self.method(batch["views"])
        self._losses.append(loss.detach())
        return loss

    def mean_loss(self) -> float:
        """Of the epoch so far, over all processes, each of which has to ask."""
        return float(self.trainer.strategy.reduce(torch.stack(self._losses).mean(), reduce_op="mean"))

    def latest_loss(self) -> float:
        return float(self._losses[-1])

    def configure_optimizers(self) -> Any:
        config = self.config
        decayed, others = get_weight_decay_parameters([self.method])
        groups = [
            {"params": [p for p in params if p.requires_grad], "weight_decay": decay}
            for params, decay in ((decayed, config.weight_decay), (others, 0.0))
        ]
        optimizer: torch.optim.Optimizer
        if config.optimizer == "lars":
            optimizer = LARS(groups, lr=config.learning_rate, momentum=0.9)
        elif config.optimizer == "sgd":
            optimizer = torch.optim.SGD(groups, lr=config.learning_rate, momentum=0.9)
        else:
            optimizer = torch.optim.AdamW(groups, lr=config.learning_rate)
        warm = round(self.steps * config.warmup_epochs / config.epochs)
        schedule = CosineWarmupScheduler(optimizer, warmup_epochs=warm, max_epochs=max(1, self.steps))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

"""
What if fields should not wrap around, or should have one scale?
================================================================

By default a field lives on a torus as large as the image, as an FFT of the image's size
makes it, so opposite edges move alike. ``period`` makes the torus larger than the image.
``spectrum`` replaces the power law by any function P(k).
"""

import matplotlib.pyplot as plt
import torch

from randfield import matern, sample_field, squared_exponential


def plot(settings: dict, tiles: int = 1) -> None:
    _, axes = plt.subplots(1, len(settings), figsize=(10, 3), layout="constrained")
    for ax, (title, setting) in zip(axes, settings.items(), strict=True):
        g = sample_field((128, 128), generator=torch.Generator().manual_seed(8), **setting)
        ax.imshow(g.tile(tiles, tiles).numpy(), cmap="RdBu_r", vmin=-1, vmax=1)
        ax.set(xticks=[], yticks=[])
        ax.set_title(title, fontsize="medium")
        for edge in range(1, tiles):
            ax.axhline(128 * edge, color="black", linewidth=0.5)
            ax.axvline(128 * edge, color="black", linewidth=0.5)
    plt.show()


# %%
# Each field twice by twice, side by side: with period 1 it continues over its edges, with
# period 2 it does not.

plot(
    {f"period={period}": {"gamma": 6.0, "period": float(period)} for period in (1, 1.5, 2)},
    tiles=2,
)

# %%
# A power law has no scale of its own: whatever its gamma, the longest wave that fits is
# the strongest. These spectra have one, ``length``, in units of half the shorter side.
# ``period=2`` gives waves longer than the image their room.

plot(
    {
        "matern(nu=0.5, length=0.3)": {
            "spectrum": matern(nu=0.5, length=0.3),
            "period": 2.0,
        },
        "matern(nu=2.5, length=0.3)": {
            "spectrum": matern(nu=2.5, length=0.3),
            "period": 2.0,
        },
        "squared_exponential(length=0.3)": {
            "spectrum": squared_exponential(length=0.3),
            "period": 2.0,
        },
    }
)


# %%
# Your own is a function from wave numbers k, in cycles per unit of length, to power: here
# a ring of waves, all about two thirds of a unit long, and the band between two cut-offs.
# Transforms take the same argument: ``LocalTranslate(spectrum=ring)``.


def ring(k: torch.Tensor) -> torch.Tensor:
    return torch.exp(-((k - 1.5) ** 2) / 0.02)


def band(k: torch.Tensor) -> torch.Tensor:
    return ((k > 0.7) & (k < 3)).float()


plot({"ring": {"spectrum": ring}, "band": {"spectrum": band}})

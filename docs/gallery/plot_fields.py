"""
What does gamma do to a field?
==============================

A field g is white noise coloured by the power spectrum P(k) = k^-gamma. Every column
below has the same noise and another gamma. Up to about 3 the field is ragged and would
tear a photograph apart; from 7 to 10, the paper's range, it consists of a few broad
waves, and beyond 10 hardly anything changes.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

from randfield import sample_field

gammas, size = [2, 3, 5, 7, 10], 224


def field(gamma: float, seed: int) -> np.ndarray:
    generator = torch.Generator().manual_seed(seed)
    return sample_field((size, size), gamma=gamma, alpha=1.0, generator=generator).numpy()


figure, axes = plt.subplots(3, len(gammas), figsize=(10, 6.2), layout="constrained")
for seed, row in enumerate(axes):
    for gamma, ax in zip(gammas, row, strict=True):
        shown = ax.imshow(field(gamma, seed), cmap="RdBu_r", vmin=-1, vmax=1)
        ax.set(xticks=[], yticks=[], title=f"gamma = {gamma}" if seed == 0 else "")
figure.colorbar(shown, ax=axes, label="g", shrink=0.6)
plt.show()

# %%
# Opposite edges match, because by default a field lives on a torus as large as the image;
# :doc:`plot_other_spectra` shows how to part them.
#
# The same along one line, the middle row of the first draw. Smoothness and strength are
# independent of each other: somewhere in the field, if not on this line, the magnitude
# reaches alpha, here 1, at every gamma.

figure, ax = plt.subplots(figsize=(10, 3), layout="constrained")
x = np.linspace(-1, 1, size)
for gamma, colour in zip(
    gammas, plt.colormaps["viridis"](np.linspace(0, 0.9, len(gammas))), strict=True
):
    ax.plot(x, field(gamma, 0)[size // 2], color=colour, label=f"{gamma}")
ax.set(xlabel="x", ylabel="g(x, 0)", xlim=(-1, 1))
ax.legend(title="gamma", loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()

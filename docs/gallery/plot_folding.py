"""
Where does each transform start to fold?
========================================

Where a field changes faster than the picture can follow, the sampling grid folds over: a
piece of the image appears twice or inside out, and a keypoint on it has no single place
to go. ``functional.folding`` measures it, as the share of pixels where the Jacobian
determinant is not positive.
"""

import matplotlib.pyplot as plt
import torch

from randfield import (
    LocalRotate,
    LocalScale,
    LocalShear,
    LocalTranslate,
    LocalWarp,
    functional,
)

size, draws = (64, 64), 100
gammas, alphas = torch.arange(3, 11), torch.linspace(0, 0.6, 41)
x, y = functional.identity_grid(size).unbind(-1)


def folds(kind: type[LocalWarp], gamma: float) -> torch.Tensor:
    """The share of draws that fold anywhere at each of the alphas."""
    torch.manual_seed(0)
    transform = kind(gamma=gamma, alpha=1.0, per_sample=True)
    g = transform.fields(transform.make_params([torch.empty(draws, 1, *size)]), size)
    grids = (
        torch.stack(transform.move(x, y, *(alpha * g).unbind(-3)), -1) for alpha in alphas
    )
    least = [functional.folding(grid)[1] for grid in grids]
    return (torch.stack(least) <= 0).float().mean(1)


# %%
# For every gamma, the alpha at which one draw in twenty folds somewhere (line) and at
# which half of them do (dashes). The shaded box is the paper's range. Keep below the
# line, or set ``fold_free=True``, which shrinks the alpha of just those draws that would
# fold.

figure, ax = plt.subplots(figsize=(8, 5), layout="constrained")
ax.axhspan(0, 1 / 3, xmin=4 / 7, color="0.9")
ax.text(8.5, 0.02, "the paper's range", ha="center", color="0.4")
kinds = [LocalTranslate, LocalShear, LocalScale, LocalRotate]
for kind, colour in zip(
    kinds, ["tab:blue", "tab:green", "tab:orange", "tab:red"], strict=True
):
    share = torch.stack([folds(kind, float(gamma)) for gamma in gammas])
    for level, style, label in ((0.05, "-", kind.__name__), (0.5, "--", None)):
        reached = share >= level
        first = torch.where(reached.any(1), alphas[reached.int().argmax(1)], torch.nan)
        ax.plot(gammas.numpy(), first.numpy(), style, color=colour, label=label)
ax.set(xlabel="gamma (smoothness)", ylabel="alpha (strength)", xlim=(3, 10), ylim=(0, 0.6))
ax.legend(title="5 % of draws fold; dashed: half do", loc="upper left")
plt.show()

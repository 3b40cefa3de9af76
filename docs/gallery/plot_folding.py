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

size, draws, gammas = (64, 64), 300, torch.arange(3, 11)
x, y = functional.identity_grid(size).unbind(-1)


def starts(kind: type[LocalWarp], gamma: float) -> torch.Tensor:
    """The alpha at which each draw starts to fold, up to 0.6, by bisection."""
    torch.manual_seed(0)
    transform = kind(gamma=gamma, alpha=1.0, per_sample=True)
    g = transform.fields(transform.make_params([torch.empty(draws, 1, *size)]), size)
    below, above = torch.zeros(draws, 1, 1, 1), torch.full((draws, 1, 1, 1), 0.6)
    for _ in range(7):
        alpha = (below + above) / 2
        grid = torch.stack(transform.move(x, y, *(alpha * g).unbind(-3)), -1)
        folds = (functional.folding(grid)[1] <= 0).reshape(alpha.shape)
        below, above = torch.where(folds, below, alpha), torch.where(folds, alpha, above)
    return above.flatten()


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
    alphas = torch.stack([starts(kind, float(gamma)) for gamma in gammas])
    for share, style, label in ((0.05, "-", kind.__name__), (0.5, "--", None)):
        ax.plot(gammas, alphas.quantile(share, dim=1), style, color=colour, label=label)
ax.plot([], "-k", label="one draw in twenty folds")
ax.plot([], "--k", label="half of the draws fold")
ax.set(xlabel="gamma (smoothness)", ylabel="alpha (strength)", xlim=(3, 10), ylim=(0, 0.6))
ax.legend(loc="upper left", ncols=2)
plt.show()

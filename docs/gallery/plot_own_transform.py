"""
How do I write a local transform of my own?
===========================================

Derive from ``LocalWarp``, say how many fields it needs and where target points come from.
Ranges of gamma and alpha, masks and boxes, batches, replay, ``fold_free`` and the rest
come with the base class. This one is a swirl: it turns points about the centre by an
angle that fades towards the rim.
"""

import matplotlib.pyplot as plt
import torch
from PIL import Image

from randfield import LocalAffine, LocalShear, LocalWarp, from_config


class LocalSwirl(LocalWarp):
    """Turn by pi·g about the centre, less and less towards the rim."""

    field_count = 1

    def move(self, x, y, g):
        angle = torch.pi * g * torch.exp(-2 * (x**2 + y**2))
        return x * angle.cos() - y * angle.sin(), x * angle.sin() + y * angle.cos()


# %%
# That is all. It has the options of every other transform, composes with them, and its
# settings are plain data.

swirl = LocalSwirl(
    alpha=(0.4, 0.8), fold_free=True, generator=torch.Generator().manual_seed(0)
)
both = LocalAffine(
    [LocalSwirl(alpha=0.5), LocalShear(alpha=0.3)],
    generator=torch.Generator().manual_seed(0),
)
assert from_config({"LocalSwirl": swirl.config}).alpha == (0.4, 0.8)

photo = Image.open("../photos/chelsea.jpg")
figure, axes = plt.subplots(2, 3, figsize=(10, 4.6), layout="constrained")
for name, transform, row in zip(
    ["LocalSwirl", "with LocalShear"], [swirl, both], axes, strict=True
):
    row[0].set_ylabel(name)
    for ax in row:
        ax.imshow(transform(photo))
        ax.set(xticks=[], yticks=[])
plt.show()

# %%
# ``move`` gets tensors, whole planes of x, y and g at once, and must not write over them.
# Coordinates have their origin at the centre, and the shorter side spans [-1, 1]. If a
# field of one moves points farther than the farthest corner is from the centre along an
# axis, override ``reach`` too: it decides how many waves are worth drawing.

"""
What do the local colour transforms do?
=======================================

They add a field g to one channel of HSV: hue wraps around the colour wheel, saturation
and value (brightness) are clamped to [0, 1]. ``LocalColorJitter`` adds three independent
fields to all three, the paper's local colour jitter.
"""

import matplotlib.pyplot as plt
import torch
from PIL import Image

from randfield import LocalColorJitter, LocalHue, LocalSaturation, LocalValue

photo = Image.open("../photos/chelsea.jpg")
generator = torch.Generator().manual_seed(1)
transforms = [
    LocalHue(alpha=1 / 3, generator=generator),
    LocalSaturation(alpha=1 / 3, generator=generator),
    LocalValue(alpha=1 / 3, generator=generator),
    LocalColorJitter(hue=1 / 3, saturation=1 / 3, value=1 / 3, generator=generator),
]
figure, axes = plt.subplots(4, 4, figsize=(10, 7), layout="constrained")
for transform, row in zip(transforms, axes, strict=True):
    row[0].imshow(photo)
    row[0].set_ylabel(type(transform).__name__)
    for ax in row[1:]:
        ax.imshow(transform(photo))
    for ax in row:
        ax.set(xticks=[], yticks=[])
axes[0, 0].set_title("original")
plt.show()

# %%
# A gentler setting, and one that leaves the hue alone: each channel takes a number, a
# range or None.

gentle = LocalColorJitter(
    hue=(0, 0.05), saturation=(0, 0.2), value=(0, 0.2), generator=generator
)
no_hue = LocalColorJitter(hue=None, generator=generator)
figure, axes = plt.subplots(1, 4, figsize=(10, 2), layout="constrained")
for ax, transform, title in zip(
    axes, [gentle, gentle, no_hue, no_hue], ["gentle"] * 2 + ["no hue"] * 2, strict=True
):
    ax.imshow(transform(photo))
    ax.set(xticks=[], yticks=[], title=title)
plt.show()

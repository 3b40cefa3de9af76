"""
How do two local transforms become one?
=======================================

``LocalAffine`` multiplies the atoms' matrices at every pixel, in random order, each
atom's alpha times 1/sqrt(N), and resamples the image once (section 4.3 of the paper).
Applied one after the other instead, the atoms interpolate an already interpolated
picture.
"""

import matplotlib.pyplot as plt
import torch
from PIL import Image
from torchvision.transforms import v2

from randfield import LocalAffine, LocalRotate, LocalShear, LocalTranslate

photo = Image.open("../photos/rocket.jpg")
seeded = torch.Generator().manual_seed(3)

atoms = [LocalRotate(alpha=0.1), LocalShear(alpha=0.3), LocalTranslate(alpha=0.2)]
pairs = {
    "rotate, shear": LocalAffine([atoms[0], atoms[1]], generator=seeded),
    "shear, translate": LocalAffine([atoms[1], atoms[2]], generator=seeded),
    "rotate, translate": LocalAffine([atoms[0], atoms[2]], generator=seeded),
    "all three": LocalAffine(atoms, generator=seeded),
}
figure, axes = plt.subplots(3, 4, figsize=(10, 5.4), layout="constrained")
for (name, transform), column in zip(pairs.items(), axes.T, strict=True):
    column[0].set_title(name)
    for ax in column:
        ax.imshow(transform(photo))
        ax.set(xticks=[], yticks=[])
plt.show()

# %%
# What one resampling saves, made plain by sixteen weak atoms of the same strength: as one
# transform, and one by one.

weak, count = 0.02, 16
once = LocalAffine([LocalTranslate(alpha=weak * count**0.5)] * count, generator=seeded)
one_by_one = v2.Compose([LocalTranslate(alpha=weak, generator=seeded)] * count)
figure, axes = plt.subplots(1, 3, figsize=(10, 2.8), layout="constrained")
titles = ["original", "composed, resampled once", "one by one, resampled 16 times"]
for ax, picture, title in zip(
    axes, [photo, once(photo), one_by_one(photo)], titles, strict=True
):
    ax.imshow(v2.functional.center_crop(picture, [160, 240]))
    ax.set(xticks=[], yticks=[], title=title)
plt.show()

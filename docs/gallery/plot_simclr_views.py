"""
What does a network see of a photograph?
========================================

``SimCLRViews`` is the paper's whole pipeline: crop and resize, then the local transform,
then flip, colour jitter, grey and blur. Here are eight views of one photograph without a
local transform, and eight with ``LocalTranslate(p=0.8)``, the paper's best. Both start from
one seed, so that views in the same place have the same crop and the same colours.
"""

import matplotlib.pyplot as plt
import torch
from PIL import Image

from randfield import LocalTranslate, SimCLRViews

photo = Image.open("../photos/chelsea.jpg")
settings = {"size": 160, "n_views": 8, "normalize": False, "crop_scale": (0.25, 1.0)}

plain = SimCLRViews(**settings, generator=torch.Generator().manual_seed(6))
local = SimCLRViews(
    **settings, local=LocalTranslate(p=0.8), generator=torch.Generator().manual_seed(6)
)

figure = plt.figure(figsize=(10, 10.6), layout="constrained")
titles = ["SimCLR", "SimCLR with local translation"]
for part, title, views in zip(figure.subfigures(2), titles, [plain, local], strict=True):
    part.suptitle(title)
    for ax, view in zip(part.subplots(2, 4).flat, views(photo), strict=True):
        ax.imshow(view.permute(1, 2, 0).numpy())
        ax.set(xticks=[], yticks=[])
plt.show()

# %%
# For training leave ``normalize`` at True, which subtracts the mean of ImageNet's
# colours, and ``crop_scale`` at SimCLR's own (0.08, 1); crops of less than a quarter of
# the photograph are left out above because they are hard to recognise. The same object
# takes one image in a ``DataLoader`` worker or a batch on the device that holds it.

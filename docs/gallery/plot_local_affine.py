"""
What do the local affine transforms do to a photograph?
=======================================================

Rotation, scale, shear and translation, as an affine matrix theta has them, but with a
theta for every pixel: its numbers are fields g. Each target pixel takes its colour from
the source point theta · (x, y, 1).
"""

import matplotlib.pyplot as plt
import torch
from PIL import Image, ImageDraw

from randfield import LocalRotate, LocalScale, LocalShear, LocalTranslate

photo = Image.open("../photos/chelsea.jpg")
squares = photo.copy()
pen = ImageDraw.Draw(squares)
for position in range(15, max(photo.size), 30):
    pen.line([(position, 0), (position, photo.height)], "white", 2)
    pen.line([(0, position), (photo.width, position)], "white", 2)

# %%
# One strength for all, so that they can be compared, and a fixed gamma. ``make_params``
# draws; ``transform`` applies the same draw to the photograph and to the photograph with
# a grid on it; ``fields`` shows what was drawn.

generator = torch.Generator().manual_seed(4)
figure, axes = plt.subplots(4, 4, figsize=(10, 7), layout="constrained")
for kind, row in zip(
    [LocalRotate, LocalScale, LocalShear, LocalTranslate], axes, strict=True
):
    transform = kind(gamma=8, alpha=0.2, generator=generator)
    params = transform.make_params([photo])
    fields = transform.fields(params, (photo.height, photo.width))
    names = ["g"] if len(fields) == 1 else ["gx", "gy"]
    for name, g, ax in zip(names, fields, row, strict=False):
        ax.imshow(g.numpy(), cmap="RdBu_r", vmin=-0.2, vmax=0.2)
        ax.set_title(name, fontsize="small")
    row[2].imshow(transform.transform(squares, params))
    row[3].imshow(transform.transform(photo, params))
    row[0].set_ylabel(kind.__name__)
    for ax in row:
        ax.set(xticks=[], yticks=[])
    if len(fields) == 1:
        row[1].imshow(squares)
        row[1].set_title("the photograph", fontsize="small")
plt.show()

# %%
# Rotation, scale and shear are about the centre of the image: there they leave the
# picture almost alone, and farther out the same g moves a pixel farther. Translation is
# as strong everywhere; at the same alpha rotation is the strongest, because g stands for
# pi·g radians: 0.2 is a turn of 36 degrees.

"""
Do boxes, masks and keypoints follow the image?
===============================================

All parts of a sample go through one deformation: masks are sampled as the image is, only
without mixing classes; keypoints go where their pixels went, which takes the inverse of
the sampling grid; a box becomes the smallest upright box around where its outline went.
"""

import matplotlib.pyplot as plt
import torch
from PIL import Image, ImageDraw
from torchvision import tv_tensors
from torchvision.transforms.v2 import functional as tvf
from torchvision.utils import draw_bounding_boxes, draw_keypoints, draw_segmentation_masks

from randfield import LocalAffine, LocalRotate, LocalTranslate

photo = Image.open("../photos/coffee.jpg")
size = photo.height, photo.width
drawing = Image.new("L", photo.size)
ImageDraw.Draw(drawing).ellipse([66, 62, 409, 328], fill=1)  # the saucer
sample = {
    "image": tv_tensors.Image(photo),
    "mask": tv_tensors.Mask(tvf.pil_to_tensor(drawing)),
    "boxes": tv_tensors.BoundingBoxes(
        [[66, 62, 409, 328]], format="XYXY", canvas_size=size
    ),
    "points": tv_tensors.KeyPoints(
        [[66, 195], [409, 195], [237, 328], [310, 240]], canvas_size=size
    ),
    "label": "coffee",
}

# %%
# ``fold_free=True`` keeps every draw one to one, so that each keypoint has exactly one
# place to go.

generator = torch.Generator().manual_seed(5)
transform = LocalAffine(
    [LocalRotate(alpha=0.12), LocalTranslate(alpha=0.2)],
    fold_free=True,
    generator=generator,
)


def show(ax: plt.Axes, sample: dict) -> None:
    picture = draw_segmentation_masks(
        sample["image"], sample["mask"].bool(), alpha=0.35, colors="deepskyblue"
    )
    picture = draw_bounding_boxes(picture, sample["boxes"], colors="white", width=3)
    picture = draw_keypoints(picture, sample["points"][None], colors="red", radius=6)
    ax.imshow(picture.permute(1, 2, 0).numpy())
    ax.set(xticks=[], yticks=[])


figure, axes = plt.subplots(2, 3, figsize=(10, 4.6), layout="constrained")
show(axes[0, 0], sample)
axes[0, 0].set_title("original")
for ax in axes.flat[1:]:
    show(ax, transform(sample))
plt.show()

# %%
# The points are still on the mask's outline and on the spoon. The box may be larger than
# the mask needs: it holds all that the box held before, of which the mask is a part. The
# label was passed through untouched.

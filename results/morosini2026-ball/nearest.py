"""How far held-out images are from training images of their class: `python nearest.py DATA/cifar10.npz`.

Corollary B.8 of Morosini et al. (2026) asks for a held-out set that lies within ε of the training set, label by
label, with each training image taking the same share of it. That is decided by the data alone.
"""

import sys

import numpy as np

COUNT = 5000

with np.load(sys.argv[1]) as found:
    parts = {
        "the first of the test set": (found["x_test"][:COUNT], found["y_test"][:COUNT]),
        "the next of the training set": (found["x_train"][COUNT : 2 * COUNT], found["y_train"][COUNT : 2 * COUNT]),
    }
    x, y = found["x_train"][:COUNT].reshape(COUNT, -1).astype(np.int16), found["y_train"][:COUNT].ravel()
for name, (images, labels) in parts.items():
    held, classes = images.reshape(len(images), -1).astype(np.int16), labels.ravel()
    nearest = [np.abs(x[y == label] - image).max(1).min() for image, label in zip(held, classes, strict=True)]
    least, middle, most = np.percentile(nearest, [0, 50, 100])
    same = np.array_equal(np.bincount(y), np.bincount(classes))
    print(f"{name}: largest difference in a pixel from the nearest training image of its class, of 255: ", end="")
    print(f"{least:.0f} at the least, {middle:.0f} in the middle, {most:.0f} at the most; labels as frequent: {same}")

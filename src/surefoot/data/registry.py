"""Table of the data sets. `surefoot.data.sets` reads their files."""

from __future__ import annotations

from surefoot.registry import Citation, DatasetEntry, table

__all__ = ["DATASETS"]

_KRIZHEVSKY2009 = Citation("Krizhevsky", 2009, "Learning Multiple Layers of Features from Tiny Images")
_HENDRYCKS2019 = Citation(
    "Hendrycks and Dietterich", 2019,
    "Benchmarking Neural Network Robustness to Common Corruptions and Perturbations",
)  # fmt: skip
_FETCH = "fetch it with: surefoot data fetch {}"

DATASETS: dict[str, DatasetEntry] = table(
    [
        DatasetEntry(
            "digits", "surefoot.data.sets:digits", given=("root",), embedded=True,
            what="1,797 images 8×8 of ten digits, embedded",
            citation=Citation("Alpaydin and Kaynak", 1998, "Optical Recognition of Handwritten Digits"),
        ),
        DatasetEntry(
            "cifar10", "surefoot.data.sets:cifar", given=("root",), fixed={"fine": False},
            what="60,000 images 32×32 of ten things", remedy=_FETCH.format("cifar10"),
            fetch="surefoot.data.fetch:fetch_cifar10", corrupted="CIFAR-10-C", citation=_KRIZHEVSKY2009,
        ),
        DatasetEntry(
            "cifar100", "surefoot.data.sets:cifar", given=("root",), fixed={"fine": True},
            what="60,000 images 32×32 of a hundred things",
            remedy="put cifar-100-python.tar.gz or the folder cifar-100-python there",
            corrupted="CIFAR-100-C", citation=_KRIZHEVSKY2009,
        ),
        DatasetEntry(
            "svhn", "surefoot.data.sets:svhn", given=("root",), what="99,289 house numbers 32×32",
            remedy="put train_32x32.mat and test_32x32.mat into svhn/ there",
            citation=Citation(
                "Netzer et al.", 2011, "Reading Digits in Natural Images with Unsupervised Feature Learning"
            ),
        ),
        DatasetEntry(
            "mnist", "surefoot.data.sets:mnist", given=("root",), fixed={"stem": "mnist"},
            what="70,000 images 28×28 of ten digits", remedy=_FETCH.format("mnist"),
            fetch="surefoot.data.fetch:fetch_mnist",
            citation=Citation("LeCun et al.", 1998, "Gradient-Based Learning Applied to Document Recognition"),
        ),
        DatasetEntry(
            "fashion-mnist", "surefoot.data.sets:mnist", given=("root",), fixed={"stem": "fashion-mnist"},
            what="70,000 images 28×28 of clothes", remedy=_FETCH.format("fashion-mnist"),
            fetch="surefoot.data.fetch:fetch_fashion_mnist",
            citation=Citation(
                "Xiao, Rasul and Vollgraf", 2017,
                "Fashion-MNIST: A Novel Image Dataset for Benchmarking Machine Learning Algorithms",
            ),
        ),
        DatasetEntry(
            "tiny-imagenet", "surefoot.data.sets:folders", given=("root",),
            fixed={"stem": "tiny-imagenet", "size": 64}, what="110,000 images 64×64 of 200 things",
            remedy="put train/ and val/ with a folder for each class into tiny-imagenet/ there",
            citation=Citation("Le and Yang", 2015, "Tiny ImageNet Visual Recognition Challenge"),
        ),
        DatasetEntry(
            "imagenet", "surefoot.data.sets:folders", given=("root",), fixed={"stem": "imagenet", "size": 224},
            what="images of a thousand things, scaled to 224",
            remedy="put train/ and val/ with a folder for each class into imagenet/ there", corrupted="ImageNet-C",
            citation=Citation("Deng et al.", 2009, "ImageNet: A Large-Scale Hierarchical Image Database"),
        ),
        DatasetEntry(
            "cifar10-c", "surefoot.data.sets:corrupted", given=("root",),
            fixed={"stem": "CIFAR-10-C", "clean": "cifar10"}, what="CIFAR-10's test set under 19 corruptions",
            remedy="put the .npy files into CIFAR-10-C/ there, and cifar10 beside it", citation=_HENDRYCKS2019,
        ),
        DatasetEntry(
            "cifar100-c", "surefoot.data.sets:corrupted", given=("root",),
            fixed={"stem": "CIFAR-100-C", "clean": "cifar100"}, what="CIFAR-100's test set under 19 corruptions",
            remedy="put the .npy files into CIFAR-100-C/ there, and cifar100 beside it", citation=_HENDRYCKS2019,
        ),
    ]
)  # fmt: skip

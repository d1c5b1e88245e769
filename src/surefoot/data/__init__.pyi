from surefoot.data.augment import crop_and_flip, uniforms
from surefoot.data.sets import StoredData, load_set
from surefoot.dataset import ArrayDataset, Dataset, as_dataset

__all__ = [
    "ArrayDataset",
    "Dataset",
    "StoredData",
    "as_dataset",
    "crop_and_flip",
    "load_set",
    "uniforms",
]

"""Data sets: file formats and sources, the fixed train/test split, and partitions over simulated clients."""

from secagg.data.partition import partition
from secagg.data.records import Dataset, Records
from secagg.data.sources import open_dataset

__all__ = ["Dataset", "Records", "open_dataset", "partition"]

"""Data sets: sources, schemas, the fixed train/test split, and partitions over simulated clients."""

from secagg.data.partition import partition
from secagg.data.records import Dataset, Origin, Records
from secagg.data.schema import Schema, load_schema
from secagg.data.sources import open_dataset

__all__ = ["Dataset", "Origin", "Records", "Schema", "load_schema", "open_dataset", "partition"]

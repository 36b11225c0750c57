"""Data sets: sources, schemas, the fixed train/test split, and partitions over simulated clients."""

from secagg.agreement.schema import Schema, load_schema
from secagg.data.partition import partition
from secagg.data.records import Dataset, Records
from secagg.data.sources import open_dataset
from secagg.encoding.grid import Origin

__all__ = ["Dataset", "Origin", "Records", "Schema", "load_schema", "open_dataset", "partition"]

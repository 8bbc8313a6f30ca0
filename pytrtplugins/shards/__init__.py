"""Photos and their boxes as shards, for training: tar files in WebDataset's convention, with an index for any order."""

from __future__ import annotations

from .check import CheckedShards, check_shards
from .labels import FORMATS
from .make import Made, make_shards
from .reader import Example, Shards

__all__ = ["FORMATS", "CheckedShards", "Example", "Made", "Shards", "check_shards", "make_shards"]

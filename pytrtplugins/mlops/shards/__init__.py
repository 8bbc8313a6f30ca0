"""Shards of photos and boxes for training: tar files in WebDataset's convention, with an index for random access."""

from __future__ import annotations

from ...vision.labels import FORMATS
from .check import CheckedShards, check_shards
from .make import Made, make_shards
from .photo_set import PhotoSet, open_photos
from .reader import Example, Shards

__all__ = [
    "FORMATS",
    "CheckedShards",
    "Example",
    "Made",
    "PhotoSet",
    "Shards",
    "check_shards",
    "make_shards",
    "open_photos",
]

"""Read labels of photos: a module for each format."""

from __future__ import annotations

from .annotations import Annotations, LabelledPhoto, Problem
from .formats import FORMATS, read_labels

__all__ = ["FORMATS", "Annotations", "LabelledPhoto", "Problem", "read_labels"]

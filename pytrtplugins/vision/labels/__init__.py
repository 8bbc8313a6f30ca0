"""Labels of photos: one file here for each format that is read."""

from __future__ import annotations

from .annotations import Annotations, LabelledPhoto, Problem
from .formats import FORMATS, read_labels

__all__ = ["FORMATS", "Annotations", "LabelledPhoto", "Problem", "read_labels"]

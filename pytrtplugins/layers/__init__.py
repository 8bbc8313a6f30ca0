"""darknet's own layers as plugins."""

from ._activations import decompose_siblings, sibling_groups
from .region import Region
from .reorg import Reorg
from .yolo import Yolo

__all__ = ["Region", "Reorg", "Yolo", "decompose_siblings", "sibling_groups"]

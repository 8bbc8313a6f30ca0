"""Kernels of operators that read or write at computed positions (Gather, Scatter, TopK, …), one launch each."""

from . import (  # noqa: F401 - each fills the table
    cumulate,
    fills,
    gather,
    grid_sample,
    nonzero,
    pad,
    pools,
    resize,
    roi_align,
    scatter,
    suppress,
    top_k,
    unique,
)
from .table import INDEXED, fits_kernel, indexed_kernel

__all__ = ["INDEXED", "fits_kernel", "indexed_kernel"]

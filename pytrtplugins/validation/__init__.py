"""Check an ONNX model before use; refuse broken models and tensors larger than memory.

`validated` looks at a model's structure: nothing is computed, and no weight is copied. `check_sizes` looks at the dims that
`infer`, shape inference that takes little memory, found; `infer_node` is the same of one node.
`load_external_data` reads weights that lie beside a model, within its folder.
"""

from __future__ import annotations

from .broadcasting import check_slopes
from .external import load_external_data
from .inference import infer, infer_node
from .model import validated
from .operand_types import check_operand_types
from .ranks import check_ranks
from .sizes import check_sizes
from .tensors import check_tensor

__all__ = [
    "check_operand_types",
    "check_ranks",
    "check_sizes",
    "check_slopes",
    "check_tensor",
    "infer",
    "infer_node",
    "load_external_data",
    "validated",
]

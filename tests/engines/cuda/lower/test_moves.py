"""An operator that only moves values is no step of its own: the kernel behind it reads the values where they lie."""

import numpy as np
import pytest

from tests.engines.cuda.lower.test_pointwise import Graph, random

NUMBERS = {
    "Expand": ([2, 4, 2, 6],),
    "Gather": (1,),
    "Pad": ([0, 1, 0, 0, 0, 0, 2, 0],),
    "Reshape": ([3, 16],),
    "Resize": (np.float32([]), np.float32([1, 1, 2, 3])),
    "Slice": ([1], [9], [3]),
    "Squeeze": ([0],),
    "Tile": ([1, 2, 3, 1],),
    "Unsqueeze": ([1],),
}
ATTRIBUTES = {
    "DepthToSpace": {"blocksize": 2},
    "Flatten": {"axis": 3},
    "Gather": {"axis": 3},
    "SpaceToDepth": {"blocksize": 2},
    "Transpose": {"perm": [2, 0, 3, 1]},
}


@pytest.mark.parametrize("operator", sorted({*NUMBERS, *ATTRIBUTES}))
def test_a_kernel_reads_where_moved_values_lie(operator):
    """Two moves, one after the other, and a Softmax: one kernel."""
    graph = Graph(x=random(2, 6, 4, 1))
    turned = graph.add("Transpose", "x", perm=[3, 2, 0, 1])
    numbers = [graph.constant(np.array(number)) for number in NUMBERS.get(operator, ())]
    moved = graph.add(operator, turned, *numbers, **ATTRIBUTES.get(operator, {}))
    assert graph.check(graph.add("Softmax", moved, axis=-1)) == ["pointwise"]

"""What rewrites recognize, and models that differ from it in one place: their numbers are onnxruntime's.

near_misses.txt has a paragraph for each pattern: its name, inputs and outputs, nodes, the nodes that are left when it is lowered, and
how many of the changed models are lowered to such nodes too.
"""

import re
from pathlib import Path

import numpy as np
import pytest

from pytrtplugins.engines.cuda.lower.pipeline import lower
from pytrtplugins.passes import prepare
from tests.engines.cuda.host import run_on_host
from tests.engines.cuda.lower.near_misses import near_misses
from tests.engines.model_parts import parsed
from tests.engines.operators import literal
from tests.measures import relative

PATTERNS = dict(part.split("\n", 1) for part in Path(__file__).with_name("near_misses.txt").read_text().split("\n\n"))
NUMBERS = {
    **{
        "one": 1,
        "half": 0.5,
        "three": 3,
        "none": 0,
        "low": 0,
        "high": 1,
        "lowest": -np.inf,
        "overlap": 0.3,
        "score": 0.1,
    },
    **{"root": 2**0.5, "root_half": 0.5**0.5, "cube": 0.044715, "tanh_scale": (2 / np.pi) ** 0.5, "factor": 1.702},
    **{"head_scale": 2, "score_scale": 0.3, "step": 0.05, "finer": 0.047, "ws": 0.02, "scales": [1, 1, 2, 2]},
}
OTHERS = {
    "mask": np.tri(4, dtype=bool),
    "zero": np.int8(0),
    "codes": np.arange(-72, 72, dtype=np.int8).reshape(4, 4, 3, 3),
    "dims": np.array([1, 4, 4, 9]),
    "most": np.array([3]),
    "last": np.array([-1]),
    "flat": np.arange(-24, 24, dtype=np.int8).reshape(6, 8),
    "parted": np.array([0, 0, 2, 3]),
    "joined": np.array([0, 0, 6]),
    "windows": np.array([2, 3, 2, 4, 4]),
    "whole": np.array([6, 2, 4, 4]),
}


def pattern(name):
    """Its model, and what it becomes; constants named ``w2_3`` are random numbers of these dims."""
    head, *nodes, result = PATTERNS[name].strip().split("\n")
    words, random = set(re.findall(r"\w+", " ".join(nodes))), np.random.default_rng(5)
    constants = {key: np.array(value, np.float32) for key, value in NUMBERS.items() if key in words}
    constants |= {key: value for key, value in OTHERS.items() if key in words}
    for word in sorted(words):
        if dims := re.fullmatch(r"w([\d_]+)[a-z]?", word):
            constants[word] = random.standard_normal([*map(int, dims[1].split("_"))], np.float32)
    return parsed(f"{head} {{ {' '.join(nodes)} }}", 18, 10, **constants), result


def kinds(model):
    return " ".join(node.op_type for node in lower(model).graph)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PATTERNS)
def test_a_change_of_one_place_leaves_onnxruntimes_numbers(name):
    (model, result), random, alike = pattern(name), np.random.default_rng(3), 0
    dims = {info.name: [dim.dim_value for dim in info.type.tensor_type.shape.dim] for info in model.graph.input}
    inputs = {key: random.standard_normal(sizes, np.float32) for key, sizes in dims.items()}
    recognized = kinds(prepare(model))
    for what, other in near_misses(model):
        try:
            wanted, prepared = literal(other, inputs), prepare(other)
        except Exception:  # no model of ONNX
            continue
        found, _ = run_on_host(prepared, inputs, disable=("pointwise",))
        for info, values in zip(other.graph.output, wanted, strict=True):
            np.testing.assert_array_equal(np.isnan(found[info.name]), np.isnan(values), what)
            assert relative(np.nan_to_num(found[info.name]), np.nan_to_num(values)) < 1e-4, (what, info.name)
        alike += kinds(prepared) == recognized
    assert f"→ {recognized}; {alike}" == result

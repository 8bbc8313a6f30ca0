"""Small networks with free dims, inputs that fit them, and inputs that fit the declared dims and contradict the network."""

import re

import numpy as np
import onnx

from tests.engines.operators import ints


def rows(*values):
    """Indices of one axis each, as operators with N axes take them."""
    return np.array(values, np.int64)[:, None]


def of_x(text, fitting, contradicting):
    """A network of one input, and its dims."""
    return text, {"x": fitting}, {"x": contradicting}


SQUARE = "g (float[2,N] x, float[M,2] w) => (float[2,2] y)"
# the network; inputs that fit and that contradict: arrays, or dims of an array of ones
CASES = {
    "Add of a constant": of_x(
        "g (float[N,4] x) => (float[a,4] y) <float[3,1] c = {1,2,3}> { y = Add (x, c) }", (3, 4), (2, 4)
    ),
    "Add": (
        "g (float[N,4] x, float[M,4] z) => (float[a,4] y) { y = Add (x, z) }",
        *({"x": (3, 4), "z": (1, 4)}, {"x": (2, 4), "z": (3, 4)}),
    ),
    "Where": (
        "g (bool[1] c, float[N] x, float[M] z) => (float[a] y) { y = Where (c, x, z) }",
        *({"c": np.array([True]), "x": (1,), "z": (3,)}, {"c": np.array([True]), "x": (2,), "z": (3,)}),
    ),
    "Expand": of_x(
        "g (float[N,1,1] x) => (float[3,4,4] y) <int64[3] s = {3,4,4}> { y = Expand (x, s) }", (3, 1, 1), (2, 1, 1)
    ),
    "Expand to a computed shape": (
        "g (float[N,1] x, int64[2] s) => (float[a,b] y) { y = Expand (x, s) }",
        *({"x": (4, 1), "s": ints(4, 3)}, {"x": (3, 1), "s": ints(4, 3)}),
    ),
    "Reshape": of_x("g (float[N,3] x) => (float[4,3] y) <int64[2] s = {4,3}> { y = Reshape (x, s) }", (4, 3), (2, 3)),
    "Reshape to a computed shape": (
        "g (float[N,3] x, int64[2] s) => (float[a,b] y) { y = Reshape (x, s) }",
        *({"x": (2, 3), "s": ints(3, 2)}, {"x": (2, 3), "s": ints(40, 30)}),
    ),
    "MatMul": (SQUARE + "{ y = MatMul (x, w) }", {"x": (2, 3), "w": (3, 2)}, {"x": (2, 2), "w": (3, 2)}),
    "Gemm": (SQUARE + "{ y = Gemm (x, w) }", {"x": (2, 3), "w": (3, 2)}, {"x": (2, 2), "w": (3, 2)}),
    "Split": of_x(
        "g (float[N] x) => (float[2] y, float[3] z) <int64[2] s = {2,3}> { y, z = Split (x, s) }", (5,), (4,)
    ),
    "LayerNormalization": of_x(
        "g (float[2,N] x) => (float[2,a] y) <float[3] s = {1,2,3}> { y = LayerNormalization (x, s) }", (2, 3), (2, 2)
    ),
    "BatchNormalization": of_x(
        "g (float[2,N,1,1] x) => (float[2,a,1,1] y) <float[3] s = {1,2,3}> { y = BatchNormalization (x, s, s, s, s) }",
        (2, 3, 1, 1),
        (2, 2, 1, 1),
    ),
    "Conv": of_x(
        "g (float[1,N,3,3] x) => (float[1,1,3,3] y) <float[1,3,1,1] w = {1,2,3}> { y = Conv (x, w) }",
        (1, 3, 3, 3),
        (1, 200, 3, 3),
    ),
    "DepthToSpace": of_x(
        "g (float[1,N,1,1] x) => (float[1,a,2,2] y) { y = DepthToSpace <blocksize=2> (x) }", (1, 4, 1, 1), (1, 3, 1, 1)
    ),
    **{
        f"{operator}, {index}": (
            f"g (float[3] x, int64[{dims}] i{updates}) => (float[a] y) {{ y = {operator} (x, i{', u' if updates else ''}) }}",
            *({"x": (3,), "i": at(*fitting)} | ({"u": (2,)} if updates else {}) for fitting in ((0, -3), (0, index))),
        )
        for operator, dims, updates, at in (
            ("Gather", "N", "", ints),
            ("GatherND", "N,1", "", rows),
            ("GatherElements", "N", "", ints),
            ("ScatterElements", "N", ", float[N] u", ints),
            ("ScatterND", "N,1", ", float[N] u", rows),
        )
        for index in (3, -4, 50000)
    },
    "Tile": (
        "g (float[3] x, int64[1] r) => (float[N] y) { y = Tile (x, r) }",
        *({"x": (3,), "r": ints(2)}, {"x": (3,), "r": ints(-1)}),
    ),
    **{
        f"{operator} by a constant, {size} for 3": (
            f"g (float[{dims}] x) => (float[{result}] y) <float[{constant}] w = {{1,2,3,4,5,6}}> {{ y = {operator} (x, w) }}",
            *({"x": shape(3)}, {"x": shape(size)}),
        )
        for operator, dims, constant, result, shape in (
            ("MatMul", "2,N", "3,2", "2,2", lambda size: (2, size)),
            ("MatMul", "1,2,N", "3,2", "1,2,2", lambda size: (1, 2, size)),
            ("MatMul", "N", "3,2", "2", lambda size: (size,)),
            ("Gemm", "2,N", "3,2", "2,2", lambda size: (2, size)),
            ("Gemm <transB=1>", "2,N", "2,3", "2,2", lambda size: (2, size)),
            ("Gemm <transA=1>", "N,2", "3,2", "2,2", lambda size: (size, 2)),
            ('Einsum <equation="ij,jk->ik">', "2,N", "3,2", "2,2", lambda size: (2, size)),
        )
        for size in (2, 900)
    },
    "MatMul of a constant": of_x(
        "g (float[N,2] x) => (float[2,2] y) <float[2,3] w = {1,2,3,4,5,6}> { y = MatMul (w, x) }", (3, 2), (900, 2)
    ),
    **{
        f"attention, {' '.join(map(str, sizes))}": (
            "g (float[1,2,N,D] q, float[1,2,M,E] k, float[1,2,L,4] v) => (float[1,2,N,4] y)"
            "{ kt = Transpose <perm=[0,1,3,2]> (k)  s = MatMul (q, kt)  p = Softmax (s)  y = MatMul (p, v) }",
            {"q": (1, 2, 3, 4), "k": (1, 2, 5, 4), "v": (1, 2, 5, 4)},
            {"q": (1, 2, 3, sizes[0]), "k": (1, 2, sizes[2], sizes[1]), "v": (1, 2, sizes[3], 4)},
        )
        for sizes in ((6, 4, 5, 5), (4, 1, 5, 5), (4, 4, 5, 6), (4, 4, 5, 1), (4, 4, 1, 5), (4, 4, 900, 5))
    },
    **{
        f"Clip, {size} bounds": (
            f"g (float[2] x, float[N] b) => (float[2] y) {{ y = Clip ({inputs}) }}",
            *({"x": (2,), "b": (1,)}, {"x": (2,), "b": (size,)}),
        )
        for inputs, size in (("x, b", 2), ("x, , b", 900))
    },
    **{
        f"Concat, {size} for 3": (
            "g (float[2,N] x, float[2,M] z) => (float[4,a] y) { y = Concat <axis=0> (x, z) }",
            *({"x": (2, 3), "z": (2, 3)}, {"x": (2, 3), "z": (2, size)}),
        )
        for size in (2, 900)
    },
    "Concat of images": (
        "g (float[1,2,N,N] x, float[1,2,M,M] z) => (float[1,6,a,b] y) { y = Concat <axis=1> (x, z, x) }",
        *({"x": (1, 2, 4, 4), "z": (1, 2, 4, 4)}, {"x": (1, 2, 4, 4), "z": (1, 2, 40, 40)}),
    ),
    "Concat of views": (
        "g (float[2,N] x, float[2,M] z) => (float[1,4,a] y) <int64[1] s = {0}>"
        "{ p = Unsqueeze (x, s)  q = Unsqueeze (z, s)  y = Concat <axis=1> (p, q) }",
        *({"x": (2, 3), "z": (2, 3)}, {"x": (2, 3), "z": (2, 900)}),
    ),
    "Concat of computed tensors": (
        "g (float[2,N] x, float[2,M] z) => (float[4,a] y) { p = Relu (x)  q = Abs (z)  y = Concat <axis=0> (p, q) }",
        *({"x": (2, 3), "z": (2, 3)}, {"x": (2, 3), "z": (2, 900)}),
    ),
    **{
        f"{operator}, constant {index}": (
            f"g (float[N] x{', float[2] u' if updates else ''}) => (float[a] y) <int64[{dims}] i = {{0, {index}}}>"
            f"{{ y = {operator} (x, i{', u' if updates else ''}) }}",
            *({"x": (size,)} | ({"u": (2,)} if updates else {}) for size in (8, 3)),
        )
        for operator, dims, updates in (
            ("Gather", "2", False),
            ("GatherND", "2,1", False),
            ("GatherElements", "2", False),
            ("ScatterElements", "2", True),
            ("ScatterND", "2,1", True),
        )
        for index in (7, -8)
    },
    "PRelu": of_x("g (float[2,N] x) => (float[2,a] y) <float[3] s = {1,2,3}> { y = PRelu (x, s) }", (2, 3), (2, 2)),
    "InstanceNormalization": of_x(
        "g (float[2,N,4,4] x) => (float[2,a,4,4] y) <float[3] s = {1,2,3}> { y = InstanceNormalization (x, s, s) }",
        (2, 3, 4, 4),
        (2, 900, 4, 4),
    ),
    "Split into equal parts": of_x("g (float[N] x) => (float[a] y, float[b] z) { y, z = Split (x) }", (4,), (901,)),
    "TopK": of_x("g (float[N] x) => (float[5] y, int64[5] i) <int64[1] k = {5}> { y, i = TopK (x, k) }", (6,), (3,)),
}


def case_of(name):
    """The model, what fits and what contradicts, as arrays."""
    text, *feeds = CASES[name]
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    return model, *(
        {key: np.ones(value, np.float32) if isinstance(value, tuple) else value for key, value in each.items()}
        for each in feeds
    )


def names_part(error, model):
    """Whether the text of an error names a node or tensor of a model."""
    names = {name for node in model.graph.node for name in (node.name, *node.input, *node.output) if name}
    text = str(error)
    return any(re.search(f"['\"]{re.escape(name)}['\"/_]|Node {re.escape(name)} ", text) for name in names)

"""Function bodies of fused floating-point operators, made by onnxruntime's optimizer and transformer tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .node import ContribNode, NotWritableError, ints, number

__all__ = ["FUSED"]

_CONV = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
_ALPHA_BETA = ("alpha", "beta", "gamma")
_NUMBERS: Mapping[str, tuple[str, ...]] = {  # of an activation function, in the order of activation_params
    **dict.fromkeys(("Relu", "Tanh", "Sigmoid", "Softplus", "Softsign", "HardSwish"), ()),
    **dict.fromkeys(("LeakyRelu", "Elu", "ThresholdedRelu"), ("alpha",)),
    "HardSigmoid": ("alpha", "beta"),
    "Selu": ("alpha", "gamma"),
    "Clip": ("min", "max"),
}


def _activation(node: ContribNode, source: str, numbers: Mapping[str, float], result: str = "y0") -> str:
    """Statements that apply the node's activation function."""
    kind = node.attribute("activation", "")
    if not kind:
        return f"{result} = Identity ({source})"
    if kind not in _NUMBERS:
        raise NotWritableError(f"its activation function is {kind!r}")
    if kind == "Clip":
        return f"""{node.number("low", numbers["min"])}
            {node.number("high", numbers["max"])}
            {result} = Clip ({source}, low, high)"""
    parameters = {name: numbers[name] for name in _NUMBERS[kind] if name in numbers}
    texts = ", ".join(f"{name} = {float(value)!r}" for name, value in parameters.items())
    return f"{result} = {kind} {texts and f'<{texts}>'} ({source})"


def _fused_conv(node: ContribNode) -> str:
    names = _NUMBERS.get(node.attribute("activation", ""), ())
    numbers = dict(zip(names, node.attribute("activation_params", []), strict=False))
    return f"""
        conv = Conv {node.attributes(*_CONV)} ({node.inputs(0, 1, 2)})
        sum = {"Add (conv, x3)" if node.has(3) else "Identity (conv)"}
        {_activation(node, "sum", numbers)}"""


def _channels_first(node: ContribNode, body: str) -> str:
    """A body for images whose channels are innermost: it reads ``x0_nchw``, and gives ``y0_nchw``."""
    rank = len(node.dims(0))
    inward, outward = [0, rank - 1, *range(1, rank - 1)], [0, *range(2, rank), 1]
    return f"""
        x0_nchw = Transpose <perm = {inward}> (x0)
        {body}
        y0 = Transpose <perm = {outward}> (y0_nchw)"""


def _nhwc_fused_conv(node: ContribNode) -> str:
    """The weights, too, have their channels innermost; what is added has them where the result has."""
    names = _NUMBERS.get(node.attribute("activation", ""), ())
    numbers = dict(zip(names, node.attribute("activation_params", []), strict=False))
    rank = len(node.dims(0))
    inward = [0, rank - 1, *range(1, rank - 1)]
    added = f"z = Transpose <perm = {inward}> (x3)\nsum = Add (conv, z)" if node.has(3) else "sum = Identity (conv)"
    bias = ", x2" if node.has(2) else ""
    return _channels_first(
        node,
        f"""w = Transpose <perm = {inward}> (x1)
        conv = Conv {node.attributes(*_CONV)} (x0_nchw, w{bias})
        {added}
        {_activation(node, "sum", numbers, "y0_nchw")}""",
    )


def _nhwc_max_pool(node: ContribNode) -> str:
    """MaxPool, where ``ceil_mode`` also applies with ``auto_pad`` VALID, which means the same without pads."""
    padded = () if node.attribute("auto_pad", "") == "VALID" else ("auto_pad", "pads")
    names = (*padded, "ceil_mode", "dilations", "kernel_shape", "strides")
    return _channels_first(node, f"y0_nchw = MaxPool {node.attributes(*names)} (x0_nchw)")


def _fused_gemm(node: ContribNode) -> str:
    numbers = {name: value for name in _ALPHA_BETA if (value := node.attribute(f"activation_{name}", None)) is not None}
    numbers |= {"min": node.attribute("activation_alpha", 0.0), "max": node.attribute("activation_beta", 0.0)}
    return f"""
        product = Gemm {node.attributes("alpha", "beta", "transA", "transB")} ({node.inputs(0, 1, 2)})
        {_activation(node, "product", numbers)}"""


def _fused_matmul(node: ContribNode) -> str:
    statements = [*_matrix(node, 0, "A"), *_matrix(node, 1, "B"), "product = MatMul (a, b)"]
    alpha = node.attribute("alpha", 1.0)
    statements += [] if alpha == 1.0 else [node.number("alpha", alpha)]
    statements.append("scaled = Identity (product)" if alpha == 1.0 else "scaled = Mul (product, alpha)")
    numbers = {name: value for name in _ALPHA_BETA if (value := node.attribute(f"activation_{name}", None)) is not None}
    return "\n".join((*statements, _activation(node, "scaled", numbers)))


def _matrix(node: ContribNode, index: int, letter: str) -> list[str]:
    """A statement that transposes an operand; onnxruntime does not transpose vectors."""
    last, batch = node.attribute(f"trans{letter}", 0), node.attribute(f"transBatch{letter}", 0)
    rank = len(node.dims(index)) if last or batch else 0
    axes = [*range(rank)]
    if batch and rank > 2:
        axes = [*axes[1:-1], axes[0], axes[-1]]
    if last and rank > 1:
        axes[-2:] = axes[:-3:-1]
    name = letter.lower()
    if axes == sorted(axes):
        return [f"{name} = Identity (x{index})"]
    return [f"{name} = Transpose <perm = {axes}> (x{index})"]


def _gelu(node: ContribNode) -> str:
    return f"""
        {"x = Add (x0, x1)" if node.has(1) else "x = Identity (x0)"}
        {node.number("root", 2**0.5)}
        {node.number("one", 1.0)}
        {node.number("half", 0.5)}
        ratio = Div (x, root)
        erf = Erf (ratio)
        factor = Add (erf, one)
        product = Mul (x, factor)
        y0 = Mul (product, half)"""


def _fast_gelu(node: ContribNode) -> str:
    """FastGelu: x/2 · (1 + tanh(x · (0.035677408136300125 · x² + 0.7978845608028654)))."""
    return f"""
        {"x = Add (x0, x1)" if node.has(1) else "x = Identity (x0)"}
        {node.number("cubic", 0.035677408136300125)}
        {node.number("linear", 0.7978845608028654)}
        {node.number("one", 1.0)}
        {node.number("half", 0.5)}
        square = Mul (x, x)
        scaled = Mul (square, cubic)
        slope = Add (scaled, linear)
        inner = Mul (x, slope)
        tanh = Tanh (inner)
        factor = Add (tanh, one)
        product = Mul (x, factor)
        y0 = Mul (product, half)"""


def _quick_gelu(node: ContribNode) -> str:
    return f"""
        {node.number("alpha", node.attribute("alpha", 1.702))}
        scaled = Mul (x0, alpha)
        share = Sigmoid (scaled)
        y0 = Mul (x0, share)"""


def _layer_norm(node: ContribNode) -> str:
    outputs = ", ".join(f"y{index}" for index in range(len(node.node.output)))
    return f"{outputs} = LayerNormalization {node.attributes('axis', 'epsilon', 'stash_type')} ({node.inputs(0, 1, 2)})"


def _mean_square_norm(node: ContribNode) -> str:
    """SimplifiedLayerNormalization, which is RMSNormalization of opset 23."""
    rank = len(node.dims(0))
    axis = node.attribute("axis", -1)
    return _divide_by_root(node, "x0", 1, range(axis % rank, rank), 1e-5)


def _divide_by_root(node: ContribNode, source: str, factor: int, axes: range | list[int], epsilon: float) -> str:
    """The result has the type of the factors, which are input number ``factor``; ``epsilon`` is the attribute's default."""
    return f"""
        {ints("axes", list(axes))}
        wide = Cast <to = 1> ({source})
        {number("epsilon", node.attribute("epsilon", epsilon))}
        square = Mul (wide, wide)
        total = ReduceSum <keepdims = 1> (square, axes)
        shape = Shape (wide)
        sizes = Gather (shape, axes)
        count_int = ReduceProd <keepdims = 0> (sizes)
        count = Cast <to = 1> (count_int)
        mean = Div (total, count)
        shifted = Add (mean, epsilon)
        root = Sqrt (shifted)
        normal = Div (wide, root)
        narrow = {node.cast("normal", factor)}
        y0 = Mul (narrow, x{factor})
        {"y1 = Reciprocal (root)" if node.gives(1) else ""}"""


def _skip(node: ContribNode, bias: int) -> str:
    """The sum that is normalized, which may be an output, too."""
    total = "pair = Add (x0, x1)"
    total += f"\nsum = Add (pair, x{bias})" if node.has(bias) else "\nsum = Identity (pair)"
    return total + ("\ny3 = Identity (sum)" if node.gives(3) else "")


def _skip_layer_norm(node: ContribNode) -> str:
    outputs = 1 + max((index for index in (0, 1, 2) if node.gives(index)), default=0)
    names = ", ".join(f"y{index}" if node.gives(index) else '""' for index in range(outputs))
    beta = ", x3" if node.has(3) else ""
    epsilon = float(node.attribute("epsilon", 1e-12))
    return f"""
        {_skip(node, 4)}
        {names} = LayerNormalization <axis = -1, epsilon = {epsilon!r}> (sum, x2{beta})"""


def _skip_mean_square_norm(node: ContribNode) -> str:
    if node.gives(1) or node.gives(2):
        raise NotWritableError("it gives its mean or its variance")
    return f"""
        {_skip(node, 3)}
        {_divide_by_root(node, "sum", 2, [-1], 1e-12)}"""


def embedding(node: ContribNode, segments: str, positions: str, words: str, gamma: str, beta: str, where: int) -> str:
    """The normalized sum of word, position and segment vectors; the arguments are names of the tables.

    ``where`` is the index of the input with the numbers of places; -1: none.
    """
    node.check_rank(7, 2)  # the mask
    for index in (5, 6):
        node.check_length(index, node.dims(2)[-1])
    if where > 0 and node.has(where):
        node.check_rank(where, 2)
        places = f"places = Gather ({positions}, x{where})"
    else:
        places = f"""shape = Shape (x0)
        {ints("zero", [0])}
        {ints("one", [1])}
        {ints("two", [2])}
        length = Slice (shape, one, two)
        places = Slice ({positions}, zero, length, zero)"""
    lengths = "" if not node.gives(1) else _lengths(node)
    return f"""
        {places}
        word = Gather ({words}, x0)
        pair = Add (word, places)
        {f"segment = Gather ({segments}, x1)" if node.has(1) else ""}
        sum = {"Add (pair, segment)" if node.has(1) else "Identity (pair)"}
        y0 = LayerNormalization <axis = -1, epsilon = {float(node.attribute("epsilon", 1e-12))!r}> (sum, {gamma}, {beta})
        {lengths}
        {"y2 = Identity (sum)" if node.gives(2) else ""}"""


def _lengths(node: ContribNode) -> str:
    """How many words of each sequence the mask lets through; 0 without one."""
    if node.has(7):
        return f"""{ints("second", [1])}
        y1 = ReduceSum <keepdims = 0> (x7, second)"""
    return f"""whole = Shape (x0)
        {ints("begin", [0])}
        {ints("end", [1])}
        batch = Slice (whole, begin, end)
        y1 = ConstantOfShape <value = int32[1] {{0}}> (batch)"""


def _embedding(node: ContribNode) -> str:
    return embedding(node, "x4", "x3", "x2", "x5", "x6", 8)


def _range(node: ContribNode) -> str:
    """Range with a step that may be left out."""
    names = [f"s{index}" for index in range(3) if node.has(index)]
    scalars = [node.scale(index) for index in range(len(names))]
    return "\n".join((*scalars, node.number("one", 1), f"y0 = Range ({', '.join([*names, 'one'][:3])})"))


FUSED: Mapping[str, Callable[[ContribNode], str]] = {
    "BiasGelu": _gelu,
    "EmbedLayerNormalization": _embedding,
    "FastGelu": _fast_gelu,
    "FusedConv": _fused_conv,
    "FusedGemm": _fused_gemm,
    "FusedMatMul": _fused_matmul,
    "FusedMatMulActivation": _fused_matmul,
    "Gelu": _gelu,
    "LayerNormalization": _layer_norm,
    "NhwcFusedConv": _nhwc_fused_conv,
    "NhwcMaxPool": _nhwc_max_pool,
    "QuickGelu": _quick_gelu,
    "Range": _range,
    "SimplifiedLayerNormalization": _mean_square_norm,
    "SkipLayerNormalization": _skip_layer_norm,
    "SkipSimplifiedLayerNormalization": _skip_mean_square_norm,
    "TransposeMatMul": _fused_matmul,
}

"""Function bodies of operators whose weights are packed in few bits, or that are quantized dynamically."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .node import ContribNode, NotWritableError, ints

__all__ = ["PACKED"]


def _matmul_bits(node: ContribNode) -> str:
    """MatMulNBits: [filters, blocks, bytes of a block] of codes, with a scale and a zero point for each block."""
    bits, size = node.attribute("bits", 4), node.attribute("block_size")
    filters, depth = node.attribute("N"), node.attribute("K")
    if node.has(4) or node.attribute("weight_prepacked", 0):
        raise NotWritableError("its columns are in another order, or its weights are packed for one machine")
    blocks = -(-depth // size)
    if node.has(3) and node.dtype(3) == "uint8":
        row = -(-blocks * bits // 8) * 8 // bits
        zeros = f"""{_codes("zeros", "x3", bits, [filters, row])}
            {ints("z_begin", [0])}
            {ints("z_end", [blocks])}
            {ints("z_axis", [1])}
            zeros_cut = Slice (zeros, z_begin, z_end, z_axis)
            {ints("z_dims", [filters, blocks, 1])}
            zeros_3 = Reshape (zeros_cut, z_dims)
            zero = {node.cast("zeros_3")}"""
    elif node.has(3):
        zeros = f"{ints('z_dims', [filters, blocks, 1])}\nzero = Reshape (x3, z_dims)"
    else:
        zeros = node.number("zero", 2 ** (bits - 1))
    return f"""
        {_codes("codes", "x1", bits, [filters, blocks, size])}
        numbers = {node.cast("codes")}
        {zeros}
        {ints("s_dims", [filters, blocks, 1])}
        scales = Reshape (x2, s_dims)
        shifted = Sub (numbers, zero)
        blocked = Mul (shifted, scales)
        {ints("flat_dims", [filters, -1])}
        flat = Reshape (blocked, flat_dims)
        {ints("begin", [0])}
        {ints("end", [depth])}
        {ints("axis", [1])}
        cut = Slice (flat, begin, end, axis)
        w = Transpose <perm = [1, 0]> (cut)
        product = MatMul (x0, w)
        y0 = {"Add (product, x5)" if node.has(5) else "Identity (product)"}"""


def _codes(name: str, source: str, bits: int, dims: list[int]) -> str:
    """Statements that unpack bytes, the lowest bits first, into whole numbers of these dims."""
    if bits not in (2, 4, 8):
        raise NotWritableError(f"its codes have {bits} bits")
    count = 8 // bits
    texts = [f"{name}_bytes = Cast <to = 6> ({source})", ints(f"{name}_last", [-1])]
    for index in range(count):
        texts += [
            f"{name}_step{index} = Constant <value = int32 {{{2 ** (bits * index)}}}> ()",
            f"{name}_range{index} = Constant <value = int32 {{{2**bits}}}> ()",
            f"{name}_high{index} = Div ({name}_bytes, {name}_step{index})",
            f"{name}_code{index} = Mod ({name}_high{index}, {name}_range{index})",
            f"{name}_part{index} = Unsqueeze ({name}_code{index}, {name}_last)",
        ]
    parts = ", ".join(f"{name}_part{index}" for index in range(count))
    return "\n".join(
        (
            *texts,
            f"{name}_all = Concat <axis = -1> ({parts})",
            ints(f"{name}_dims", dims),
            f"{name} = Reshape ({name}_all, {name}_dims)",
        )
    )


def _lstm(node: ContribNode) -> str:
    """DynamicQuantizeLSTM: weights are codes [directions, inputs, 4 · hidden]; what they are multiplied by stays in float here."""
    names = ("activation_alpha", "activation_beta", "activations", "clip", "direction", "hidden_size", "input_forget")
    node.attribute("hidden_size")  # which cannot be left out here
    outputs = ", ".join(f"y{index}" if node.gives(index) else '""' for index in range(len(node.node.output)))
    parts = [_weights(node, name, *indices) for name, indices in (("w", (1, 8, 9)), ("r", (2, 10, 11)))]
    others = ", ".join(f"x{index}" if node.has(index) else '""' for index in range(3, 8))
    return "\n".join((*parts, f"{outputs} = LSTM {node.attributes(*names)} (x0, w, r, {others})"))


def _weights(node: ContribNode, name: str, codes: int, scale: int, zero: int) -> str:
    """Dequantize weights with one scale and zero point per direction, or per column of each direction."""
    axes = {index: [1, 2] if len(node.dims(index)) == 1 else [1] for index in (scale, zero)}
    return f"""{name}_int = Cast <to = 1> (x{codes})
        {name}_zero_int = Cast <to = 1> (x{zero})
        {ints(f"{name}_zero_axes", axes[zero])}
        {name}_zero = Unsqueeze ({name}_zero_int, {name}_zero_axes)
        {ints(f"{name}_step_axes", axes[scale])}
        {name}_step = Unsqueeze (x{scale}, {name}_step_axes)
        {name}_shifted = Sub ({name}_int, {name}_zero)
        {name}_columns = Mul ({name}_shifted, {name}_step)
        {name} = Transpose <perm = [0, 2, 1]> ({name}_columns)"""


def _gathered_blocks(node: ContribNode) -> str:
    """GatherBlockQuantized: slices of a table of codes with a scale for each block along an axis; bytes hold a row's codes packed."""
    if node.dtype(0) in ("int4", "uint4"):
        axes = node.attribute("quantize_axis", 1), node.attribute("gather_axis", 0)
        return f"""
            table = DequantizeLinear <axis = {axes[0]}, block_size = {node.attribute("block_size", 128)}> ({node.inputs(0, 2, 3)})
            y0 = Gather <axis = {axes[1]}> (table, x1)"""
    if node.dtype(0) != "uint8" or node.attribute("gather_axis", 0):
        raise NotWritableError("its table is not one of bytes whose rows are gathered")
    bits, size, (*rows, width) = node.attribute("bits", 4), node.attribute("block_size", 128), node.dims(0)
    if node.attribute("quantize_axis", 1) not in (len(rows), -1):
        raise NotWritableError("its blocks do not lie along the last axis")
    depth = width * 8 // bits
    blocks = -(-depth // size)
    if node.has(3):
        row = -(-blocks * bits // 8) * 8 // bits
        zeros = f"""{_codes("zeros", "x3", bits, [*rows, row])}
            zero_numbers = {node.cast("zeros", 2)}
            {_along_blocks("zero", "zero_numbers", [*rows, blocks], size, depth)}"""
    else:
        zeros = node.number("zero", 2 ** (bits - 1), 2)
    return f"""
        {_codes("codes", "x0", bits, [*rows, depth])}
        numbers = {node.cast("codes", 2)}
        {zeros}
        {_along_blocks("scale", "x2", [*rows, blocks], size, depth)}
        shifted = Sub (numbers, zero)
        table = Mul (shifted, scale)
        y0 = Gather (table, x1)"""


def _along_blocks(name: str, source: str, dims: list[int], size: int, depth: int) -> str:
    """Statements that repeat each block's number, in the first columns of the source, for each element of its row."""
    return f"""{ints(f"{name}_begin", [0])}
        {ints(f"{name}_blocks", [dims[-1]])}
        {ints(f"{name}_axis", [-1])}
        {name}_cut = Slice ({source}, {name}_begin, {name}_blocks, {name}_axis)
        {name}_column = Unsqueeze ({name}_cut, {name}_axis)
        {ints(f"{name}_dims", [*dims, size])}
        {name}_all = Expand ({name}_column, {name}_dims)
        {ints(f"{name}_flat", [*dims[:-1], dims[-1] * size])}
        {name}_rows = Reshape ({name}_all, {name}_flat)
        {ints(f"{name}_depth", [depth])}
        {name} = Slice ({name}_rows, {name}_begin, {name}_depth, {name}_axis)"""


PACKED: Mapping[str, Callable[[ContribNode], str]] = {
    "DynamicQuantizeLSTM": _lstm,
    "GatherBlockQuantized": _gathered_blocks,
    "MatMulNBits": _matmul_bits,
}

"""CumSum and CumProd: a row is shared by threads that have a run of it each; float16 and bfloat16 are rounded when they are written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .....tensor import DType
from ..expression import computed_in
from ..index import Index
from ..text import C_TYPES
from .rows import Rows, power_of_two, row_kernel_text
from .table import Described, KernelSource, Node, indexed

__all__: list[str] = []

_MANY_ROWS = 1 << 15
"""With so many, a thread has a row."""
_BLOCK = 128


def _fits(at: Any, inputs: Sequence[Described], outputs: Sequence[Described | None]) -> bool:
    return bool(inputs[0][0]) and inputs[0][1] in C_TYPES and inputs[0][1] is not DType.BOOL


@indexed("CumSum", "CumProd", fits=_fits, reads=(0,))
def _cumulate(node: Node) -> KernelSource:
    x, at, form = node.inputs[0], node.attributes, node.output
    axis = int(np.reshape(at["known"][1], ())) % len(form.dims)
    rows = Rows(form.dims, axis)
    share = 1 if rows.count >= _MANY_ROWS else min(_BLOCK, power_of_two(-(-rows.length // 8)))
    place = Index.counter("place", rows.length)
    order = f"{rows.length - 1}u - number" if at.get("reverse") else "number"
    kind = C_TYPES[form.dtype]
    target = rows.address(form, f"static_cast<{kind}*>(y0)", place)
    computed = C_TYPES[computed_in(form.dtype)]
    body = [
        f"unsigned const item = blockIdx.x * {_BLOCK // share}u + threadIdx.x / THREADS;",
        f"unsigned const row = item < {rows.count}u ? item : {rows.count - 1}u;", *rows.lines(),
        f"cumulate<{computed}>(",
        f"    [&](unsigned number) {{ unsigned const place = {order}; return static_cast<{computed}>({x.scalar(rows.at(place))}); }},",
        f"    [&](unsigned number, {computed} value) {{",
        f"        unsigned const place = {order};",
        f"        if (item < {rows.count}u) *({target}) = static_cast<{kind}>(value);", "    });",
    ]  # fmt: skip
    constants = {
        "N": rows.length, "THREADS": share, "BLOCK": _BLOCK, "CHUNK": -(-rows.length // share), "SUM": int(node.op == "CumSum"),
        "EXCLUSIVE": int(bool(at.get("exclusive"))),
    }  # fmt: skip
    text = row_kernel_text(node, _BLOCK, ("cumulate.cu",), constants, body)
    return KernelSource(text, -(-rows.count // (_BLOCK // share)), _BLOCK, False)

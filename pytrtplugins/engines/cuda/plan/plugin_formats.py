"""Choose types and layouts of a plugin's step among those that its `supports_format` accepts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....errors import BuildError
from ....plugin.base import Plugin
from ....tensor import DType, TensorDesc
from ..device.layout import FP8, Format, channels_last, linear
from .tensors import FLOATS, Dims

__all__ = ["agree_formats"]


def agree_formats(
    name: str, plugin: Plugin, dims: Sequence[Dims], dtypes: Sequence[DType], layouts: Sequence[str]
) -> list[Format]:
    """Return the first combination of types and layouts that a plugin accepts; those without copies are tried first.

    Args:
        name: The node's, for the message.
        plugin: The plugin.
        dims: Of its inputs.
        dtypes: Of its inputs; FP8 is asked for as int8, see `as_bytes`.
        layouts: ``"nhwc"`` and ``"linear"`` as they are to be asked.

    Returns:
        Forms of its inputs, then of its outputs.

    Raises:
        BuildError: it takes none.
    """
    dtypes = [DType.INT8 if dtype is FP8 else dtype for dtype in dtypes]
    out_dims: Any = plugin.all_output_dims(list(dims))
    own = next((dtype for dtype in dtypes if dtype in FLOATS), DType.FLOAT32)
    for layout in layouts:
        for kind in dict.fromkeys((own, DType.FLOAT32)):
            types = [kind if dtype in FLOATS else dtype for dtype in dtypes]
            outs = plugin.all_output_dtypes(types, len(out_dims))
            forms = [
                _format_for(each, dtype, layout)
                for each, dtype in zip((*dims, *out_dims), (*types, *outs), strict=True)
            ]
            known = [form for form in forms if form is not None]
            descs = [
                TensorDesc(f"{name}.{index}", form.dims, form.dtype, "nhwc" if form.nhwc else "linear")
                for index, form in enumerate(known)
            ]
            if len(known) == len(forms) and all(plugin.supports_format(index, descs) for index in range(len(descs))):
                return known
    raise BuildError(
        f"engine 'cuda': plugin {plugin!r} (node {name!r}) takes none of linear and NHWC in float32, "
        f"{own}{', int8' if DType.INT8 in dtypes else ''}: supports_format refuses all.",
        engine="cuda",
    )


def _format_for(dims: Dims, dtype: DType, layout: str) -> Format | None:
    if layout == "linear":
        return linear(dims, dtype)
    return channels_last(dims, dtype, dense=True) if len(dims) == 4 else None

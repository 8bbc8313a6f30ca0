"""A fake stream and fake GPU arrays to check plugins on a CPU: they refuse what CUDA graph capture forbids.

Kernels run on them as on NumPy arrays. Everything else that needs memory, a value or another stream is a `PluginError` whose
``.defect`` names it: ``"synchronizes"``, ``"allocates"``, ``"copies pageable memory"``, ``"reads a value on the host"``,
``"uses the default stream"``.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import PluginError
from .record import Constant

__all__ = ["StandInArray", "StandInStream", "check_stream"]

_PACKAGE = f"{Path(__file__).parent.parent}{os.sep}"
_LAYERS, _NUMPY = f"{_PACKAGE}layers{os.sep}", f"{Path(np.__file__).parent}{os.sep}"
_READS = ("item", "tolist", "tobytes", "get", "dump", "tofile")
_TO_NUMBERS = ("__float__", "__int__", "__bool__", "__index__", "__complex__")
_ARITHMETIC = [
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "matmul",
    "and",
    "or",
    "xor",
    "lshift",
    "rshift",
]
_COMPARISONS = ("__lt__", "__le__", "__gt__", "__ge__", "__neg__", "__pos__", "__abs__", "__invert__")


class StandInStream:
    """A stream of which only the number is known; events may be recorded and waited for.

    Attributes:
        ptr: The number.
        current: Whether the block runs in which it is CuPy's current stream.
        capturing: Whether its work goes into a graph; before, as engines do, `enqueue` runs once without one.
        constants: The `Constant`s that kernels were given on it, which are on the GPU then.
    """

    def __init__(self, number: int = 0x5EA0) -> None:
        self.ptr, self.current, self.capturing = number, False, False
        self.constants: list[Constant] = []

    def synchronize(self) -> None:
        """Refused: the host would wait."""
        raise refused("synchronizes", "stream.synchronize() lets the host wait")

    def record(self, event: Any = None) -> Any:
        """Nothing: events are taken into a graph."""
        return event

    def wait_event(self, event: Any) -> None:
        """Nothing, likewise."""

    def use(self) -> StandInStream:
        """Make it the current one."""
        self.current = True
        return self

    def __enter__(self) -> StandInStream:
        return self.use()

    def __exit__(self, *error: object) -> None:
        self.current = False

    def __int__(self) -> int:
        return self.ptr


class StandInArray:
    """An array of a GPU: views and kernels take it, what needs its values or new memory does not.

    Attributes:
        host: The memory behind it.
        stream: On which work on it is to be queued.
    """

    def __init__(self, host: Any, stream: StandInStream) -> None:
        self.host, self.stream = host, stream

    @property
    def shape(self) -> tuple[int, ...]:
        """Dims."""
        return tuple(self.host.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        return self.host.dtype  # type: ignore[no-any-return]

    @property
    def T(self) -> StandInArray:
        """The axes in the other order."""
        return self._view(self.host.T)

    def view(self, dtype: Any = None) -> StandInArray:
        """The same bytes with another element type."""
        return self._view(self.host if dtype is None else self.host.view(dtype))

    def reshape(self, *dims: Any) -> StandInArray:
        """The same elements with other dims."""
        return self._view(self.host.reshape(*dims), "reshape")

    def transpose(self, *axes: Any) -> StandInArray:
        """The axes in another order."""
        return self._view(self.host.transpose(*axes))

    def __getattr__(self, name: str) -> Any:
        if name in ("ndim", "size", "nbytes", "itemsize", "strides", "flags"):
            return getattr(self.host, name)
        if name in _READS:
            raise refused("reads a value on the host", f"array.{name}() copies values to the host")
        if not name.startswith("_") and callable(getattr(np.ndarray, name, None)):
            raise refused("allocates", f"array.{name} makes a new array")
        raise AttributeError(f"an array of a GPU has no attribute {name!r} that can be checked on a CPU")

    def __len__(self) -> int:
        return len(self.host)

    def __getitem__(self, key: Any) -> StandInArray:
        part = self.host[key]
        if not isinstance(part, np.ndarray):  # one value: on a GPU it stays there
            part = self.host[(*key, Ellipsis) if isinstance(key, tuple) else (key, Ellipsis)]
        return self._view(part, "indexing with an array")

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, np.ndarray) and value.ndim:
            raise refused("copies pageable memory", "a NumPy array is assigned to an array of a GPU")
        self._on_its_stream("an assignment")
        self.host[key] = value.host if isinstance(value, StandInArray) else value

    def __array__(self, *arguments: Any, **named: Any) -> Any:
        raise refused("reads a value on the host", "NumPy copies the array's values to the host")

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, out: Any = None, **named: Any) -> Any:
        if out is None:
            raise refused("allocates", f"{function.__name__} makes a new array.\nDo: give it out=, or write a kernel")
        if any(isinstance(value, np.ndarray) and value.ndim for value in (*inputs, *out)):
            raise refused("copies pageable memory", f"{function.__name__} mixes NumPy arrays with arrays of a GPU")
        self._on_its_stream(function.__name__)
        plain, results = (
            [value.host if isinstance(value, StandInArray) else value for value in some] for some in (inputs, out)
        )
        getattr(function, method)(*plain, out=tuple(results), **named)
        return out[0] if len(out) == 1 else out

    def __array_function__(self, function: Any, types: Any, arguments: Any, named: Any) -> Any:
        raise refused("allocates", f"numpy.{function.__name__} makes a new array, or reads values")

    def _view(self, part: Any, what: str = "") -> StandInArray:
        if part.size and not np.may_share_memory(part, self.host):
            raise refused("allocates", f"{what} makes a new array")
        return StandInArray(part, self.stream)

    def _on_its_stream(self, what: str) -> None:
        if not self.stream.current:
            raise refused(
                "uses the default stream",
                f"{what} is queued on CuPy's current stream, not on that of enqueue.\nDo: write `with stream:` around it",
            )


def _refusing(defect: str, what: str) -> Callable[..., Any]:
    def method(self: StandInArray, *others: Any) -> Any:
        raise refused(defect, what)

    return method


def _in_place(name: str) -> Callable[..., Any]:
    def method(self: StandInArray, other: Any) -> StandInArray:
        self[...] = StandInArray(getattr(self.host, name)(getattr(other, "host", other)), self.stream)
        return self

    return method


for _name in _TO_NUMBERS:
    setattr(
        StandInArray,
        _name,
        _refusing("reads a value on the host", "a value is copied to the host, as a number of Python"),
    )
for _name in (*(f"__{side}{op}__" for op in _ARITHMETIC for side in ("", "r")), *_COMPARISONS):
    setattr(StandInArray, _name, _refusing("allocates", f"{_name.strip('_')} of arrays makes a new array"))
for _name in _ARITHMETIC:
    if _name != "matmul":
        setattr(StandInArray, f"__i{_name}__", _in_place(f"__{_name}__"))


def check_stream(kernel: str, arguments: list[Any], stream: Any) -> None:
    """Refuse a launch on arrays that stand for a GPU's on another stream than `enqueue`'s, or with numbers that are not on the GPU yet."""
    wanted = next((value.stream for value in arguments if isinstance(value, StandInArray)), None)
    if wanted is None:
        return
    if not (stream is wanted or (stream is None and wanted.current) or stream == wanted.ptr):
        raise refused(
            "uses the default stream",
            f"kernel {kernel} is not launched on the stream of enqueue.\nDo: launch(..., stream=stream)",
        )
    new = [
        each for each in arguments if isinstance(each, Constant) and not any(each is old for old in wanted.constants)
    ]
    if new and wanted.capturing:
        raise refused(
            "copies pageable memory",
            f"kernel {kernel} is given a Constant that enqueue makes, which is copied to the GPU in each run.\n"
            "Do: make it in configure or initialize",
        )
    wanted.constants += new


def refused(defect: str, what: str) -> PluginError:
    """Make the error for an operation that CUDA graph capture forbids, with the plugin's line."""
    frames = [frame for frame in traceback.extract_stack() if not _is_ours(frame.filename)]
    text, _, advice = what.partition("\n")
    place = f" ({frames[-1].filename}:{frames[-1].lineno}: {frames[-1].line})" if frames else ""
    return PluginError(f"{defect}: {text}{place}{advice and chr(10)}{advice}", defect=defect)


def _is_ours(file: str) -> bool:
    return (file.startswith(_PACKAGE) and not file.startswith(_LAYERS)) or file.startswith((_NUMPY, "<frozen "))

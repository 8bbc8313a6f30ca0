"""Arguments of a launch: counted, checked against the kernel's parameters, and named when they are wrong."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..errors import KernelError
from ..tensor import SymbolicDim
from .bindings import DeviceArray, device_array, is_device_array
from .record import Constant, SymbolicArray, SymbolicNumber, SymbolicValues
from .signature import C_TYPES, ELEMENT_TYPES, Parameter, Signature
from .stand_in import StandInArray

__all__ = ["bind", "is_array", "spread"]

_SYMBOLIC = {"i": "whole number", "f": "number with a fraction", "b": "truth value"}


def is_array(value: Any) -> bool:
    """Whether an argument is an array of any kind, not a number."""
    known = (np.ndarray, SymbolicArray, Constant, DeviceArray, StandInArray)
    return isinstance(value, known) or is_device_array(value)


def spread(arguments: Iterable[Any]) -> list[Any]:
    """The arguments with tuples and lists in line: ``(x, (2, 3), 4)`` is ``[x, 2, 3, 4]``."""
    flat: list[Any] = []
    for argument in arguments:
        if isinstance(argument, (tuple, list)) and not isinstance(argument, DeviceArray):
            flat += argument
        else:
            flat.append(argument)
    return flat


def bind(signature: Signature, arguments: list[Any]) -> tuple[list[Any], str | None, str]:
    """Check arguments against the parameters.

    Args:
        signature: The kernel's.
        arguments: What was given, tuples spread.

    Returns:
        One value for each parameter (arrays as they came, device memory as `DeviceArray`, numbers as bool, int, float or
        `SymbolicDim`); the C type for the type parameter; and where the arrays are: ``"host"``, ``"device"``,
        ``"symbolic"``, or ``"stand-in"``, as `StandInArray` is on the host.

    Raises:
        KernelError: wrong number or types, arrays on different devices, or arrays that are not contiguous.
    """
    expected = len(signature.parameters)
    if len(arguments) != expected:
        missing = ", ".join(map(str, signature.parameters[len(arguments) :]))
        detail = f"; missing: {missing}" if missing else ""
        raise KernelError(
            f"kernel {signature}: expected {expected} arguments, found {len(arguments)} (tuples count each of their "
            f"numbers){detail}",
            expected=expected,
            found=len(arguments),
        )
    devices: dict[str, str] = {}
    values = [
        _array(signature, parameter, value, devices) if parameter.pointer else _number(signature, parameter, value)
        for parameter, value in zip(signature.parameters, arguments, strict=True)
    ]
    if len(devices) > 1:
        where = ", ".join(f"{name}: {device}" for device, name in sorted(devices.items()))
        raise KernelError(
            f"kernel {signature}: the arrays lie on different devices ({where}).\n"
            "Do: copy them to one place, or wrap numbers that never change: pytrtplugins.cuda.Constant(values)"
        )
    return values, _element(signature, values), next(iter(devices), "host")


def _array(signature: Signature, parameter: Parameter, value: Any, devices: dict[str, str]) -> Any:
    if value is None:
        return None
    if isinstance(value, Constant):
        if not parameter.const:
            raise _wrong(signature, parameter, "a Constant cannot be written; declare the parameter const")
        _check_dtype(signature, parameter, value.dtype)
        return value
    if isinstance(value, (np.ndarray, StandInArray)):
        device, value = ("stand-in", value.host) if isinstance(value, StandInArray) else ("host", value)
        contiguous, dtype = value.flags.c_contiguous, value.dtype
        if not parameter.const and not value.flags.writeable:
            raise _wrong(signature, parameter, "the array is read-only")
    elif isinstance(value, SymbolicArray):
        device, contiguous, dtype = "symbolic", True, value.dtype
    elif is_device_array(value):
        value = device_array(value)
        device, contiguous, dtype = "device", value.contiguous, value.dtype
    elif isinstance(value, SymbolicValues):
        raise _wrong(
            signature,
            parameter,
            "a field is not an array of the launch's device.\nDo: pytrtplugins.cuda.Constant(field)",
        )
    else:
        raise _wrong(signature, parameter, f"expected an array, found {type(value).__name__} {value!r:.40}")
    if not contiguous:
        raise _wrong(signature, parameter, "the array is not contiguous; take numpy.ascontiguousarray of it")
    devices.setdefault(device, parameter.name)
    if dtype is not None:
        _check_dtype(signature, parameter, dtype)
    return value


def _check_dtype(signature: Signature, parameter: Parameter, dtype: np.dtype[Any]) -> None:
    if not dtype.isnative:
        raise _wrong(signature, parameter, f"the array is in the other byte order; take its astype(numpy.{dtype.name})")
    wanted = C_TYPES.get(parameter.type)
    if wanted is not None and dtype.name != wanted:
        raise _wrong(signature, parameter, f"expected an array of {wanted}, found {dtype}")


def _number(signature: Signature, parameter: Parameter, value: Any) -> Any:
    kind = np.dtype(C_TYPES[parameter.type])
    if is_array(value) or value is None or isinstance(value, str):
        raise _wrong(signature, parameter, f"expected a number, found {type(value).__name__}")
    if isinstance(value, SymbolicNumber):
        if value.kind == kind.kind or (value.kind == "i" and kind.kind in "uf"):
            return value
        raise _wrong(signature, parameter, f"expected {parameter.type}, found a symbolic {_SYMBOLIC[value.kind]}")
    if kind.kind == "b":
        if isinstance(value, (bool, np.bool_)):
            return bool(value)
        raise _wrong(signature, parameter, f"expected True or False, found {value!r}")
    if isinstance(value, SymbolicDim):
        if kind.kind == "f":
            raise _wrong(signature, parameter, f"dim {value} is symbolic, which only whole numbers can be")
        return value
    if kind.kind == "f":
        try:
            return float(value)
        except (TypeError, ValueError):
            raise _wrong(signature, parameter, f"expected a number, found {value!r}") from None
    try:
        number = operator.index(value)
    except TypeError:
        raise _wrong(signature, parameter, f"expected a whole number, found {value!r}") from None
    limits = np.iinfo(kind)
    if not limits.min <= number <= limits.max:
        raise _wrong(signature, parameter, f"{number} does not fit into {parameter.type}; declare it long long")
    return number


def _element(signature: Signature, values: list[Any]) -> str | None:
    if signature.element is None:
        return None
    chosen: np.dtype[Any] | None = None
    for parameter, value in zip(signature.parameters, values, strict=True):
        dtype = getattr(value, "dtype", None)
        if not parameter.pointer or parameter.type != signature.element or dtype is None:
            continue
        if chosen is not None and dtype != chosen:
            raise _wrong(signature, parameter, f"expected an array of {chosen} as the first one is, found {dtype}")
        chosen = dtype
    if chosen is None:
        raise KernelError(f"kernel {signature}: no array says what {signature.element} is")
    if chosen.name not in ELEMENT_TYPES:
        raise KernelError(
            f"kernel {signature}: {signature.element} cannot be {chosen}. Known: {', '.join(ELEMENT_TYPES)}.",
            dtype=chosen,
        )
    return ELEMENT_TYPES[chosen.name]


def _wrong(signature: Signature, parameter: Parameter, problem: str) -> KernelError:
    return KernelError(f"kernel {signature}: parameter `{parameter}`: {problem}", parameter=parameter.name)

"""DLPack's capsules that say of memory of the host that it lies on a GPU."""

from __future__ import annotations

import ctypes

import numpy as np

_DEVICE_TYPE, _BYTE_OFFSET = 8, 40
_CUDA = 2


def on_cuda(array, offset=0):
    """The capsule of a NumPy array, ``offset`` bytes behind where it says that it begins."""
    capsule = np.asarray(array).__dlpack__()
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    tensor = pointer(("PyCapsule_GetPointer", ctypes.pythonapi))(capsule, b"dltensor")
    ctypes.c_int32.from_address(tensor + _DEVICE_TYPE).value = _CUDA
    ctypes.c_uint64.from_address(tensor).value -= offset
    ctypes.c_uint64.from_address(tensor + _BYTE_OFFSET).value += offset
    return capsule

"""Each C type that a parameter may have: its size and limits are those of NumPy's type."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from pytrtplugins.cuda import CudaKernel
from pytrtplugins.cuda.signature import C_TYPES, ELEMENT_TYPES, _without_comments
from pytrtplugins.errors import KernelError

C: dict[str, Any] = {"float": "f4", "double": "f8", "__half": "f2", "half": "f2", "bool": ctypes.c_bool}
C |= {"char": ctypes.c_byte, "signed char": ctypes.c_byte, "unsigned char": ctypes.c_ubyte}
C |= {"short": ctypes.c_short, "unsigned short": ctypes.c_ushort}
C |= {"int": ctypes.c_int, "unsigned": ctypes.c_uint, "unsigned int": ctypes.c_uint, "size_t": ctypes.c_size_t}
C |= {"long long": ctypes.c_longlong, "long long int": ctypes.c_longlong, "unsigned long long": ctypes.c_ulonglong}
C |= {f"{sign}int{bits}_t": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
NUMBERED = list(C_TYPES)


def limits(dtype):
    if dtype.kind in "iu":
        return [np.iinfo(dtype).min, np.iinfo(dtype).max]
    return [False, True] if dtype.kind == "b" else [-np.finfo(dtype).max.item(), np.finfo(dtype).max.item()]


@pytest.fixture(scope="module")
def every():
    """A kernel that copies a number and an array of each type."""
    parameters = [f"const {c}* x{i}, {c}* y{i}, {c} v{i}" for i, c in enumerate(NUMBERED)]
    lines = [f"y{i}[0] = x{i}[0]; y{i}[1] = v{i};" for i in range(len(NUMBERED))]
    return CudaKernel.from_source(
        f"#include <cuda_fp16.h>\n__global__ void every({', '.join(parameters)}) {{ {' '.join(lines)} }}", "every"
    )


def test_every_row_is_the_type_that_a_compiler_knows():
    ours, theirs = ({name: np.dtype(kind) for name, kind in types.items()} for types in (C, C_TYPES))
    assert ours == theirs
    assert {C_TYPES[c] for c in ELEMENT_TYPES.values()} == ELEMENT_TYPES.keys()
    assert all(C_TYPES[c] == name for name, c in ELEMENT_TYPES.items())


def test_comments_are_blanked_out_line_by_line_and_texts_stay():
    source = 'a "//\\" /*" b; // c\n/* d\n e */ f \'"\' "g"\n'
    assert _without_comments(source) == 'a "//\\" /*" b;     \n    \n      f \'"\' "g"\n'


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("end", [0, 1])
def test_the_limits_of_every_type_arrive(every, end):
    kinds = [np.dtype(C[name]) for name in NUMBERED]
    x, y = [np.array([limits(kind)[end]], kind) for kind in kinds], [np.zeros(2, kind) for kind in kinds]
    every.launch([each for i, kind in enumerate(kinds) for each in (x[i], y[i], limits(kind)[end])], threads=1, block=1)
    for name, kind, array in zip(NUMBERED, kinds, y, strict=True):
        assert array.tolist() == [limits(kind)[end]] * 2, name


@pytest.mark.parametrize(
    ("name", "end"), [(name, end) for name in C for end in (0, 1) if np.dtype(C[name]).kind in "iu"]
)
def test_a_number_beyond_the_limits_is_refused(name, end):
    kernel = CudaKernel.from_source(f"__global__ void one({name} v, float* y) {{}}", "one")
    number = limits(np.dtype(C[name]))[end] + (1 if end else -1)
    with pytest.raises(KernelError, match=f"{number} does not fit into {name}"):
        kernel.launch(number, np.zeros(1, np.float32), threads=1)

"""The convolution kernels as they are, on a CPU: PTX replaced by C++, threads by fibers, a block after the other."""

import ctypes
import re
import subprocess
from pathlib import Path

import numpy as np

from pytrtplugins.cuda.backends.host import compiler
from pytrtplugins.cuda.cache import cached_file
from pytrtplugins.cuda.source import KERNELS
from pytrtplugins.engines.cuda.device.layout import FP8, KIND
from pytrtplugins.engines.cuda.device.source import kernel_text

HERE = Path(__file__).parent
FLAGS = ("-x", "c++", "-std=c++17", "-O1", "-fPIC", "-shared", "-ffp-contract=off", "-fwrapv", "-w", "-fno-gnu-unique")
PTX = (
    *("launch_dependents", "wait_for_inputs", "copy_piece", "copy_word", "cluster_sync", "shared_address"),
    *("load_shared", "load_matrices", r"multiply\((?:float|int)\*", r"multiply\(int ", "step", "pinned"),
    *("half_bits", "halves", "round_even", "codes", "fp8_codes", "fp8_halves"),
)
"""Functions of the sources that are PTX; emulated.h has those that a block without a cluster calls."""


def emulated(file, definitions, shared_bytes=16):
    """What runs a kernel that needs no cluster: its arguments, blocks, threads of a block."""
    fp8 = int(definitions["ELEMENT"] == KIND[FP8] and file == "conv_mma.cu")  # the stem multiplies halves
    kernel = file.partition(".")[0]
    code = "\n".join(
        (
            f"#define PYTRT_HOST_BARRIERS\n#define SHARED_BYTES {shared_bytes}\n#define FP8_WORDS {fp8}",
            f'#include "{KERNELS / "host_shim.h"}"',
            (HERE / "emulated.h").read_text(encoding="utf-8"),
            without_ptx(kernel_text(file, {**definitions, "DEPENDENT": 0})),
            f'extern "C" void run(const {"StemArgs" if kernel == "stem" else "ConvArgs"}* a, unsigned blocks, unsigned threads) {{',
            f"    pytrt_host::run(dim3(blocks), dim3(threads), [&] {{ {kernel}(*a); }});\n}}",
        )
    )
    library = ctypes.CDLL(str(cached_file([code, *FLAGS, compiler()[1]], ".so", lambda target: build(code, target))))
    return lambda arguments, blocks, threads: library.run(ctypes.byref(arguments), blocks, threads)


def without_ptx(text):
    """A source without the functions that emulated.h has, and without what waits for copies."""
    for name in PTX:
        opening = name if "(" in name else rf"{name}\("
        function = rf"^__device__ __forceinline__ [\w ]+ {opening}[^{{]*\{{(?: [^\n]*\}}|.*?\n\}})$"
        text = re.sub(function, "", text, flags=re.M | re.S)
    text = re.sub(r'asm\("cvt.f32.f16 [^:]*: "=f"\(v\) : "h"\((.*)\)\);', r"v = half_bits(\1);", text)
    text = re.sub(r"asm volatile\(.*?\);", "", text, flags=re.S)
    text = re.sub(r"extern __shared__ .*?char memory\[\];", "char* const memory = shared_memory;", text)
    assert not re.search(r"\basm\b", text)
    return text


def build(code, target):
    command = [compiler()[0], *FLAGS, "-", "-o", str(target)]
    done = subprocess.run(command, input=code, capture_output=True, encoding="utf-8", check=False)
    assert not done.returncode, done.stderr[:4000]


def addressed(array, room=64):
    """A copy of an array, aligned as on a GPU, and NaN or 0x7F behind it: what is read beyond its end shows; its address."""
    size = array.nbytes
    memory = np.full(size + room + 256, 0x7F, np.uint8)
    first = -memory.ctypes.data % 256
    if array.dtype == np.float32:
        memory[first + size : first + size + room].view(np.float32)[:] = np.nan
    copy = memory[first : first + size].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy, copy.ctypes.data

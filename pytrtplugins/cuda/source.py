"""A kernel's source in the form that compilers get, and their errors in the form that users see."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path

from ..errors import KernelError
from .signature import Signature

__all__ = ["KERNELS", "CompileUnit", "compile_error", "find_symbol"]

KERNELS = Path(__file__).parents[1] / "kernels"
"""The folder of this package's kernels and of the headers that each kernel may use."""


@dataclass(frozen=True)
class CompileUnit:
    """One kernel for one element type.

    Attributes:
        source: CUDA C++ of one file.
        label: What messages call it.
        signature: Its entry point.
        element: C type that stands for the type parameter; None for a kernel that is not a template.
        options: More options for the compiler.
    """

    source: str
    label: str
    signature: Signature
    element: str | None
    options: tuple[str, ...] = ()

    @property
    def instance(self) -> str:
        """The entry point in C++: ``reorg<float>``."""
        return self.signature.name if self.element is None else f"{self.signature.name}<{self.element}>"

    def device_code(self) -> str:
        """The text for NVRTC and nvcc: what kernels may use, the source, and the instance."""
        header = "#include <cuda_fp16.h>\n" if "cuda_fp16.h" in self.source else ""
        return f"{header}{_text('prelude.h')}\n{self._lines()}\n{self._instantiation()}"

    def host_code(self) -> str:
        """The text for a C++ compiler: the same with the shim, and a function that runs the grid."""
        shim = _text("host_shim.h")
        barriers = "#define PYTRT_HOST_BARRIERS\n" if "__syncthreads" in self.source else ""
        declared = ", ".join(self.typed(parameter.text) for parameter in self.signature.parameters)
        names = ", ".join(parameter.name for parameter in self.signature.parameters)
        comma = ", " if declared else ""
        return (
            f"{barriers}{shim}\n{self._lines()}\n"
            f'extern "C" void pytrt_launch(const unsigned* pytrt_grid, const unsigned* pytrt_block{comma}{declared}) {{\n'
            "    pytrt_host::run(dim3(pytrt_grid[0], pytrt_grid[1], pytrt_grid[2]),\n"
            "                    dim3(pytrt_block[0], pytrt_block[1], pytrt_block[2]),\n"
            f"                    [=] {{ {self.instance}({names}); }});\n}}\n"
        )

    def typed(self, text: str) -> str:
        """A declaration with the element type in the type parameter's place."""
        name = self.signature.element
        return re.sub(rf"\b{name}\b", self.element or "", text) if name else text

    def _lines(self) -> str:
        label = self.label.replace("\\", "/").replace('"', "'")
        return f'#line 1 "{label}"\n{self.source}'

    def _instantiation(self) -> str:
        if self.element is None:
            return ""
        types = ", ".join(self.typed(parameter.text) for parameter in self.signature.parameters)
        return f"template __global__ void {self.instance}({types});\n"


@functools.cache
def _text(name: str) -> str:
    return (KERNELS / name).read_text(encoding="utf-8").replace("#pragma once\n", "")


def find_symbol(code: bytes, name: str, label: str) -> str:
    """The linker's name of a kernel in a cubin or in PTX.

    Raises:
        KernelError: the kernel is not in it.
    """
    symbols = {match.decode() for match in re.findall(rb"\.text\.(\w+)", code) + re.findall(rb"\.entry\s+(\w+)", code)}
    mangled = re.compile(rf"_Z{len(name)}{re.escape(name)}")
    found = sorted(symbol for symbol in symbols if symbol == name or mangled.match(symbol))
    if len(found) != 1:
        raise KernelError(f"{label}: expected one kernel {name!r} in the compiled code, found {found}", path=label)
    symbol: str = found[0]
    return symbol


_COMPLAINT = re.compile(
    r"^(?P<path>[^\n]*?)(?:\((?P<a>\d+)\)|:(?P<b>\d+)(?::\d+)?):\s*(?:catastrophic |fatal )?error[^:\n]*:\s*(?P<text>.*)$",
    re.M,
)
"""What g++ (``a.cu:3:5: error: …``) and NVIDIA's compilers (``a.cu(3): error: …``) write."""


def compile_error(unit: CompileUnit, log: str, compiler: str) -> KernelError:
    """The error for a kernel that does not compile: each complaint with its line of the source."""
    lines, shown, first = unit.source.splitlines(), [], None
    for match in _COMPLAINT.finditer(log):
        number = int(match["a"] or match["b"])
        if match["path"].strip() == unit.label.replace("\\", "/") and 1 <= number <= len(lines):
            first = first or number
            shown.append(
                f"{unit.label}:{number}: {match['text'].strip()}\n    {number:4} | {lines[number - 1].rstrip()}"
            )
    body = "\n".join(shown[:5]) or log.strip()
    more = f"\n({len(shown) - 5} more)" if len(shown) > 5 else ""
    return KernelError(
        f"{unit.label}: kernel {unit.instance} does not compile ({compiler}):\n{body}{more}",
        path=unit.label,
        line=first,
        log=log,
    )

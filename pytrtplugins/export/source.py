"""Write a traced plugin as a folder of sources: C++, kernels, headers and a build script."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from ..cuda.source import KERNELS, CompileUnit
from ..errors import ExportError
from ..native import include_dir
from ._layer import kernel_names, layer_class
from ._traced import TracedPlugin

__all__ = ["images_of", "source_files"]

_STAND_IN = """// Stands in for CUDA's header of this name: TensorRT's headers need these two names of it, and nothing of CUDA is linked.
#pragma once

typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
"""
_MANGLED = {
    "float": "f", "double": "d", "__half": "6__half", "int8_t": "a", "uint8_t": "h", "int16_t": "s", "int": "i",
    "long long": "x", "bool": "b",
}  # fmt: skip


@dataclass(frozen=True)
class _Image:
    """Kernels of one source, which are compiled together."""

    units: tuple[tuple[int, CompileUnit], ...]  # with their places in TracedPlugin.kernels

    @property
    def options(self) -> tuple[str, ...]:
        """Compiler options."""
        return self.units[0][1].options

    def device_code(self) -> str:
        """The text for NVRTC and nvcc."""
        first = self.units[0][1]
        head = replace(first, element=None).device_code().rstrip("\n")
        tails = [unit.device_code().rpartition("\ntemplate __global__ ") for _, unit in self.units if unit.element]
        return "\n".join([head, *(f"template __global__ {tail}".rstrip() for _, _, tail in tails), ""])


def source_files(traced: TracedPlugin) -> dict[str, str]:
    """The text of each file, by its path in the folder.

    Raises:
        ExportError: the plugin's name cannot be a C++ class, or a kernel needs what an export does not have.
    """
    key = traced.plugin.plugin_key()
    if not re.fullmatch(r"[A-Za-z_]\w*", key.name, re.ASCII):
        raise ExportError(f"{key}: the name cannot be that of a C++ class")
    images = images_of(traced)
    files = {"plugin.cpp": _plugin(traced, images), "build.sh": _script(traced, images)}
    for number, image in enumerate(images):
        files[f"image{number}.cu"] = image.device_code()
        files[f"image{number}.host.cpp"] = _host_code(image)
    for name in ("host_shim.h", "host/cuda_fp16.h", "host/cuda_runtime.h"):
        files[f"include/kernels/{name}"] = (KERNELS / name).read_text(encoding="utf-8")
    files["include/without_cuda/cuda_runtime_api.h"] = _STAND_IN
    folder = include_dir()
    for path in sorted(folder.rglob("*.h")):
        files[f"include/{path.relative_to(folder).as_posix()}"] = path.read_text(encoding="utf-8")
    return files


def images_of(traced: TracedPlugin) -> list[_Image]:
    """The kernels by their sources; number k is compiled from ``imagek.cu``."""
    groups: dict[tuple[str, tuple[str, ...]], list[tuple[int, CompileUnit]]] = {}
    for number, unit in enumerate(traced.kernels):
        groups.setdefault((unit.source, unit.options), []).append((number, unit))
    return [_Image(tuple(units)) for units in groups.values()]


def _plugin(traced: TracedPlugin, images: list[_Image]) -> str:
    key, names = traced.plugin.plugin_key(), kernel_names(traced)
    lines = [
        f"// {key.namespace}::{key.name} version {key.version}, written in Python and exported by pytrt export-plugin.",
        "// Fields that it has as Python's class has them; each branch on them, on dims and on types is kept.",
        "#include <pytrtplugins/exported.h>",
        "#ifdef PYTRTPLUGINS_TENSORRT",
        "#include <pytrtplugins/tensorrt.h>",
        "#endif",
        "",
    ]
    declared = [f"PYTRTPLUGINS_IMAGE({number})" for number in range(len(images))]
    for number, image in enumerate(images):
        declared += [
            f'PYTRTPLUGINS_KERNEL({names[place]}, {place}, image{number}, "{unit.instance}")'
            for place, unit in image.units
        ]
    for number, array in enumerate(traced.constants):
        data = ", ".join(map(str, array.tobytes())) or "0"
        declared += [
            f"alignas(16) unsigned char const constantBytes{number}[] = {{{data}}};  // {array.dtype} {list(array.shape)}",
            f"Constant const constant{number}(constantBytes{number}, {array.nbytes});",
        ]
    return "\n".join(
        [
            *lines,
            "namespace {",
            "",
            "using namespace pytrtplugins;",
            "using namespace pytrtplugins::exported;",
            "",
            *declared,
            "",
            layer_class(traced),
            "}  // namespace",
            "",
            "#ifdef PYTRTPLUGINS_TENSORRT",
            "PYTRTPLUGINS_TENSORRT_LIBRARY",
            "#endif",
            "",
        ]
    )


def _host_code(image: _Image) -> str:
    """The kernels for a CPU; their own names stay in this file, since another source may have the same."""
    first = image.units[0][1]
    if "extern __shared__" in first.source:
        return f'#error "{first.signature.name} uses dynamic shared memory: it runs on a GPU only"\n'
    includes = re.findall(r"^[ \t]*#[ \t]*include[^\n]*", first.source, re.M)
    barriers = ["#define PYTRT_HOST_BARRIERS"] if "__syncthreads" in first.source else []
    head = [*barriers, "#include <host_shim.h>", *includes, "namespace {", f'#line 1 "{first.label}"', first.source]
    return "\n".join([*head, "}  // namespace", *(_host_entry(*pair) for pair in image.units)])


def _host_entry(number: int, unit: CompileUnit) -> str:
    values = [
        f"*static_cast<{unit.typed(str(parameter).removesuffix(parameter.name))}*>(arguments[{index}])"
        for index, parameter in enumerate(unit.signature.parameters)
    ]
    return (
        f'extern "C" void pytrtplugins_kernel_{number}(unsigned const* grid, unsigned const* block, void** arguments) {{\n'
        "    pytrt_host::run(dim3(grid[0], grid[1], grid[2]), dim3(block[0], block[1], block[2]), [=] {\n"
        f"        {unit.instance}({', '.join(values)});\n    }});\n}}\n"
    )


def _symbol_pattern(unit: CompileUnit) -> str:
    name = unit.signature.name
    mangled = f"_Z{len(name)}{name}"
    return (
        rf"{mangled}I{_MANGLED[unit.element]}E\w*"
        if unit.element
        else rf"({mangled}[A-Z a-z]\w*|{name})".replace(" ", "")
    )


def _script(traced: TracedPlugin, images: list[_Image]) -> str:
    key = traced.plugin.plugin_key()
    compiled = []
    for number, image in enumerate(images):
        options = " ".join(f"'{option}'" for option in image.options)
        compiled.append(
            f'    test -f image{number}.fatbin || "$NVCC" $nvcc_options {options} image{number}.cu -o image{number}.fatbin'
        )
        for place, unit in image.units:
            compiled.append(
                f"    grep -aoE '\\.entry {_symbol_pattern(unit)}' image{number}.fatbin | head -n 1 | cut -d ' ' -f 2 | "
                f"tr -d '\\n' > kernel{place}.symbol"
            )
            compiled.append(f"    test -s kernel{place}.symbol")
    kernels = " ".join(f"image{number}" for number in range(len(images)))
    return _SCRIPT.format(key=key, compiled="\n".join(compiled), kernels=kernels)


_SCRIPT = """#!/bin/sh
# Build the library of {key} in the folder of this script:
#
#     TENSORRT_INCLUDE=/path/to/TensorRT/include sh build.sh libplugin.so
#
# Settings, all from the environment:
#   TENSORRT_INCLUDE  folder of NvInferRuntime.h, of TensorRT 10 or 11; empty: a library for pytrtplugins.load_library alone
#   LOADABLE=1        for the registry's load_library, in place of one that registers itself when it is loaded
#   ARCHITECTURES     of the GPUs, "80 90"; others compile the kernels when they load them
#   CXX, NVCC         compilers; g++ and nvcc
#   CXXFLAGS          more options for the first
#   HOST=1            for tests: the kernels run on the CPU, on the process's own memory
set -e
output=${{1:?the name of the library is missing}}
case $output in /*) ;; *) output=$PWD/$output ;; esac
cd "$(dirname "$0")"
CXX=${{CXX:-g++}} NVCC=${{NVCC:-nvcc}}
options="-std=c++17 -O2 -ffp-contract=off -fPIC -fvisibility=hidden -Iinclude $CXXFLAGS"
objects=plugin.o
if [ -n "$HOST" ]; then
    options="$options -DPYTRTPLUGINS_HOST_KERNELS -DPYTRTPLUGINS_TENSORRT_HOST -fwrapv"
    for kernel in {kernels}; do
        "$CXX" $options -w -Iinclude/kernels -Iinclude/kernels/host -c $kernel.host.cpp -o $kernel.o
        objects="$objects $kernel.o"
    done
else
    nvcc_options="-w -fatbin --no-compress -std=c++17 -O3 -lineinfo -gencode arch=compute_75,code=compute_75"
    for architecture in ${{ARCHITECTURES:-80 90}}; do
        nvcc_options="$nvcc_options -gencode arch=compute_$architecture,code=sm_$architecture"
    done
{compiled}
fi
if [ -n "$TENSORRT_INCLUDE" ]; then
    set -- -DPYTRTPLUGINS_TENSORRT -isystem "$TENSORRT_INCLUDE" -isystem include/without_cuda
    [ -z "$LOADABLE" ] || set -- "$@" -DPYTRTPLUGINS_TENSORRT_LOADABLE
else
    set --
fi
"$CXX" $options -Wall "$@" -c plugin.cpp -o plugin.o
"$CXX" -shared $CXXFLAGS $objects -o "$output" -ldl
"""

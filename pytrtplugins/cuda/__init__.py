"""Kernels of plugins: one CUDA source that runs on GPUs and CPUs, and launches that an exporter can record.

`CudaKernel` is the way in. What exporters and engines use besides it:

- ``with record_launches() as launches: plugin.enqueue(...)`` with `SymbolicArray` inputs, outputs and workspace: each
  launch becomes a `LaunchRecord` (kernel, arguments, threads, block, shared_bytes, element, grid). A `Constant` among its
  arguments is an array of numbers to embed. ``kernel.unit(dtype).device_code()`` is the whole text for nvcc, with the
  instance; ``kernel.compile(dtype, architecture="sm_90")`` gives the cubin, ``find_symbol(cubin, kernel.name, label)`` the
  kernel's name in it.
- `launches_kernels` tells plugins whose `enqueue` needs a GPU or a C++ compiler.
- `as_cupy` and `device_array` take arrays of any library on a GPU as they are.
- `pinned_empty` makes arrays of the host that a GPU copies by itself.
- ``pytrtplugins/kernels/`` holds the package's own kernels, and for C++ prelude.h (what a kernel's source may use),
  launch.h (``PYTRT_LAUNCH``) and host_shim.h (CUDA's names for a C++ compiler).

`import pytrtplugins.cuda` needs NumPy only.
"""

from .backends.gpu import gpu_reason
from .bindings import DeviceArray, as_cupy, device_array, is_device_array
from .kernel import CudaKernel, launches_kernels
from .pinned import pinned_empty
from .record import Constant, LaunchRecord, SymbolicArray, record_launches
from .signature import Parameter, Signature
from .source import CompileUnit, find_symbol

__all__ = [
    "CompileUnit",
    "Constant",
    "CudaKernel",
    "DeviceArray",
    "LaunchRecord",
    "Parameter",
    "Signature",
    "SymbolicArray",
    "as_cupy",
    "device_array",
    "find_symbol",
    "gpu_reason",
    "is_device_array",
    "launches_kernels",
    "pinned_empty",
    "record_launches",
]

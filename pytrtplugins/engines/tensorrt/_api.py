"""TensorRT's Python packages, and every difference between 10, 11 and TensorRT for RTX, and between the full, lean and dispatch ones."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from ...errors import MissingExtraError, UnavailableError
from ...tensor import DType
from ...utils.optional import require
from .rtx import load_module

__all__ = ["MODULES", "RTX", "Api", "load"]

MODULES = ("tensorrt", "tensorrt_lean", "tensorrt_dispatch")
RTX = "tensorrt_rtx"
"""Name of TensorRT for RTX's package, and of its engine."""
_MAJORS = (10, 11)
_DTYPES = {
    "FLOAT": DType.FLOAT32,
    "HALF": DType.FLOAT16,
    "BF16": DType.BFLOAT16,
    "INT8": DType.INT8,
    "UINT8": DType.UINT8,
    "INT32": DType.INT32,
    "INT64": DType.INT64,
    "BOOL": DType.BOOL,
}
_LAYOUTS = {"LINEAR": "linear", "HWC": "nhwc"}
_CALIBRATORS = {
    "EntropyCalibration2": "IInt8EntropyCalibrator2",
    "MinMaxCalibration": "IInt8MinMaxCalibrator",
    "EntropyCalibration": "IInt8EntropyCalibrator",
    "LegacyCalibration": "IInt8LegacyCalibrator",
}


class Api:
    """One of TensorRT's Python packages, which is ``trt``; TensorRT for RTX has the interface of TensorRT 11, and other version numbers.

    Raises:
        UnavailableError: its major version is neither 10 nor 11.
    """

    def __init__(self, module: ModuleType) -> None:
        self.trt: Any = module
        self.version = str(module.__version__)
        self.is_rtx = str(module.__name__).partition("_bindings")[0] == RTX
        self.major = _MAJORS[-1] if self.is_rtx else int(self.version.partition(".")[0])
        if self.major not in _MAJORS:
            raise UnavailableError(
                f"{module.__name__} {self.version}: plugins written in Python need TensorRT 10 or 11.\n"
                'Do: pip install "tensorrt>=10.3,<12"',
                version=self.version,
            )
        trt = self.trt
        self._dtypes = {getattr(trt.DataType, name): dtype for name, dtype in _DTYPES.items()}
        self._types = {dtype: value for value, dtype in self._dtypes.items()}

    @property
    def name(self) -> str:
        """The package's name."""
        return str(self.trt.__name__).partition("_bindings")[0]

    @property
    def title(self) -> str:
        """Product and version, for messages."""
        return f"{'TensorRT for RTX' if self.is_rtx else 'TensorRT'} {self.version}"

    @property
    def builds(self) -> bool:
        """Whether it can build engines; the lean and dispatch packages only run them."""
        return hasattr(self.trt, "Builder")

    @property
    def cache_version(self) -> str:
        """The version as calibration caches name it."""
        return ".".join(self.version.split(".")[:3])

    # -- plugins -----------------------------------------------------------------------------------------------------

    def creators(self) -> list[Any]:
        """The creators in the plugin registry; asking it for one that is not there would log an error."""
        registry = self.trt.get_plugin_registry()
        return list(registry.all_creators if hasattr(registry, "all_creators") else registry.plugin_creator_list)

    @property
    def has_v2(self) -> bool:
        """Whether IPluginV2DynamicExt is offered: in 10; 11 has it only for old code."""
        return self.major == _MAJORS[0]

    def dtype(self, value: Any) -> DType | None:
        """Ours for a ``DataType``; None for types that plugins do not get, such as FP8."""
        return self._dtypes.get(value)

    def data_type(self, dtype: DType) -> Any:
        """The ``DataType`` for ours."""
        return self._types[dtype]

    def has_type(self, dtype: DType) -> bool:
        """Whether it has a ``DataType`` for ours."""
        return dtype in self._types

    def layout(self, desc: Any) -> str:
        """Layout of a ``PluginTensorDesc``: ``"linear"``, ``"nhwc"``, or TensorRT's own name in lower case.

        The lean package has no ``TensorFormat``: there the answer is ``"linear"``, the only one that it can mean.
        """
        try:
            name: str = desc.format.name
        except TypeError:
            return "linear"
        return _LAYOUTS.get(name, name.lower())

    def dims_exprs(self, exprs: list[Any]) -> Any:
        """``DimsExprs`` of dimension expressions."""
        return self.trt.DimsExprs(exprs)

    # -- building ----------------------------------------------------------------------------------------------------

    def require_builder(self) -> None:
        """Require the package that builds."""
        if not self.builds:
            raise UnavailableError(
                f"{self.name} {self.version} runs engines and cannot build them.\n"
                f'Do: pip install "tensorrt=={self.version}"',
                package=self.name,
            )

    def network_flags(self, typed: bool) -> int:
        """Flags of a network; from 11 on every network is strongly typed.

        Raises:
            UnavailableError: a network without types of its own is asked for, and this is TensorRT 11.
        """
        if self.major == _MAJORS[0]:
            return (1 << int(self.trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)) if typed else 0
        if not typed:
            raise UnavailableError(
                f"{self.title} has no implicit quantization.\n"
                'Do: leave out quantization="implicit": the scales then become Q/DQ nodes'
            )
        return 0

    def calibrator_base(self, algorithm: str) -> Any:
        """TensorRT's calibrator class of an algorithm, as cache headers name it.

        Raises:
            UnavailableError: this TensorRT has no calibrators.
        """
        base = getattr(self.trt, _CALIBRATORS[algorithm], None)
        if base is None:
            raise UnavailableError(
                f"{self.name} {self.version} has no calibrators (TensorRT 11 dropped them).\n"
                'Do: leave out quantization="implicit": the scales then become Q/DQ nodes'
            )
        return base

    def allow_plugins_with_standard_names(self, parser: Any) -> None:
        """Let plugins win over built-in operators of the same name, where the parser can."""
        flag = getattr(getattr(self.trt, "OnnxParserFlag", None), "ENABLE_PLUGIN_OVERRIDE", None)
        if flag is not None:
            parser.set_flag(flag)


@functools.cache
def load(package: str) -> Api:
    """The first of `MODULES` that is installed, or TensorRT for RTX where that is asked for.

    Raises:
        MissingExtraError: none is.
        UnavailableError: it cannot be loaded, or is neither 10 nor 11.
    """
    errors = []
    for module in (RTX,) if package == RTX else MODULES:
        try:
            if module == RTX:
                return Api(load_module())
            return Api(require(module, extra="tensorrt", feature="engine 'tensorrt'"))
        except MissingExtraError as error:
            errors.append(error)
        except OSError as error:  # its libraries are loaded by ctypes
            raise UnavailableError(f"the package {module} cannot be loaded: {error}", package=module) from error
    raise errors[0]

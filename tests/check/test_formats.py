"""Kernels that are wrong in one element type, layout or combination alone: each is found by name, whatever the type."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.check import formats
from pytrtplugins.check.cases import Case
from pytrtplugins.check.formats import accepted_cases, other_formats
from pytrtplugins.cuda import CudaKernel
from pytrtplugins.errors import UsageError
from pytrtplugins.tensor import PLUGIN_DTYPES, DType, check_rank
from tests.broken_kernels import NEEDED
from tests.small_process import in_small_process

pytestmark = NEEDED
COPY = "y[i] = x[i];"
DEFECTS = {
    "a wrong value": ("y[i] = i ? x[i] : x[n - 1];", "differ"),
    "the last is not written": ("if (i + 1 < n) y[i] = x[i];", "not written"),
    "one is written behind the end": ("y[i] = x[i]; if (i + 1 == n) y[i + 1] = x[i];", "out-of-bounds write"),
    "an input is read behind its end": ("y[i] = x[i + 1 < n ? i : i + 1];", "out-of-bounds read"),
    "an input is written": ("y[i] = x[i]; const_cast<T*>(x)[i] = T(1);", "write to an input"),
}
"""What a kernel of one type does instead of copying, and how the check calls it."""


def kernel(body):
    head = "template <typename T>\n__global__ void copy(const T* x, T* y, int n) {\n"
    index = "    const int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i >= n) return;\n"
    return CudaKernel.from_source(f"{head}{index}    {body}\n}}\n", "copy")


class Copy(ptp.Plugin):
    """Right in all types; subclasses have another kernel for one of them."""

    right: ClassVar[CudaKernel] = kernel(COPY)
    wrong: ClassVar[CudaKernel] = right
    of: ClassVar[DType | None] = None

    def output_dims(self, x):
        return x

    def compute(self, x):
        return x.copy()

    def supports_format(self, position, descs):
        return descs[position].layout == "linear" and descs[position].dtype == descs[0].dtype

    def enqueue(self, inputs, outputs, workspace, stream):
        (x,), (y,) = inputs, outputs
        chosen = self.wrong if DType.of(x) is self.of else self.right
        if DType.of(x) is DType.BFLOAT16:  # which kernels have no name for
            x, y = x.view(np.int16), y.view(np.int16)
        chosen.launch(x, y, x.size, threads=x.size, block=64, stream=stream)


def broken(base=Copy, **members):
    name = f"{base.__name__}{len(made)}"
    made.append(name)
    return ptp.plugin(namespace="formats")(type(name, (base,), {"__module__": __name__, **members}))


made: list[str] = []


def failed(cls):
    report = ptp.check_plugin(cls, engines=[], shapes=[(1, 2, 2, 3), (2, 3, 4, 4)])
    return {entry.name: entry.detail for entry in report.failed}, report


@in_small_process
def test_what_is_right_in_all_types_passes_and_the_report_counts_them():
    found, report = failed(broken())
    assert found == {}, str(report)
    tried = report["enqueue in other types"].tried
    assert tried.startswith(f"{len(PLUGIN_DTYPES) - 1} sets of types x 1 layout x 2 shapes: float16 -> float16")


def defects_by_type():
    """A wrong value in each type, and one of the other defects by turns; all of them are slow."""
    first, *others = DEFECTS
    for number, dtype in enumerate(PLUGIN_DTYPES):
        for defect in DEFECTS:
            usual = defect in (first, others[number % len(others)])
            yield pytest.param(dtype, defect, id=f"{dtype}-{defect}", marks=() if usual else pytest.mark.slow)


@pytest.mark.parametrize(("dtype", "defect"), list(defects_by_type()))
@in_small_process
def test_a_defect_in_one_type_is_found_there_and_named(dtype, defect):
    body, name = DEFECTS[defect]
    found, report = failed(broken(wrong=kernel(body), of=dtype))
    assert len(found) == 1, str(report)
    (detail,) = found.values()
    assert name in detail
    assert f"on {dtype}[" in detail


@pytest.mark.parametrize("dtype", [dtype for dtype in PLUGIN_DTYPES if dtype is not DType.FLOAT32], ids=str)
@in_small_process
def test_compute_that_fails_in_one_accepted_type_is_found(dtype):
    def compute(self, x):
        if DType.of(x) is dtype:
            raise TypeError("not this one")
        return x.copy()

    found, _ = failed(broken(compute=compute))
    assert found.keys() == {"formats"}
    assert f"supports_format accepts {dtype}, compute does not: TypeError" in found["formats"]


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16], ids=str)
@in_small_process
def test_sums_in_half_precision_are_found(dtype):
    def total(self, x):
        sums = np.zeros(x.shape[:-1], x.dtype)
        for index in range(x.shape[-1]):  # one after the other, in the type
            sums = (sums + x[..., index] * x[..., index]).astype(x.dtype)
        return sums

    cls = broken(
        Plain,
        output_dims=lambda self, x: x[:-1],
        compute=total,
        supports_format=lambda self, position, descs: (
            descs[position].dtype in (DType.FLOAT32, dtype)
            and descs[position].dtype == descs[0].dtype
            and descs[position].layout == "linear"
        ),
    )
    report = ptp.check_plugin(cls, engines=[], shapes=[(2, 4000)])
    assert [entry.name for entry in report.failed] == ["half precision"], str(report)
    assert f"{dtype} -> {dtype}: output 0 is off by more than" in report["half precision"].detail


class Plain(ptp.Plugin):
    """Without an enqueue."""

    def output_dims(self, x):
        return x

    def compute(self, x):
        return x.copy()


class Mixed(ptp.Plugin):
    """Two inputs of types of their own."""

    right: ClassVar[CudaKernel] = kernel(COPY)
    wrong: ClassVar[CudaKernel] = right
    of: ClassVar[tuple[DType, DType] | None] = None

    def output_dims(self, x, index):
        return x

    def compute(self, x, index):
        return x.copy()

    def supports_format(self, position, descs):
        allowed = ((DType.FLOAT32, DType.FLOAT16), (DType.INT32, DType.INT64), (descs[0].dtype,))[position]
        return descs[position].layout == "linear" and descs[position].dtype in allowed

    def enqueue(self, inputs, outputs, workspace, stream):
        (x, index), (y,) = inputs, outputs
        chosen = self.wrong if (DType.of(x), DType.of(index)) == self.of else self.right
        chosen.launch(x, y, x.size, threads=x.size, block=64, stream=stream)


@pytest.mark.parametrize("of", [(x, i) for x in ("float32", "float16") for i in ("int32", "int64")], ids=str)
@in_small_process
def test_a_defect_in_one_combination_of_types_is_found(of):
    kinds = tuple(map(DType, of))
    report = ptp.check_plugin(
        broken(Mixed, wrong=kernel("y[i] = T(99);"), of=kinds), engines=[], shapes=[((1, 2, 2, 2), (3,))]
    )
    (entry,) = report.failed
    assert entry.name == ("enqueue" if of == ("float32", "int32") else "enqueue in other types")
    assert f"on {of[0]}[1, 1, 1, 1], {of[1]}[" in entry.detail


class Channels(Copy):
    """Adds a number to each channel, in both layouts and any mixture of them."""

    kernel: ClassVar[CudaKernel] = CudaKernel.from_source(
        """template <typename T>
        __global__ void channels(const T* x, T* y, int n, int c, int pixels, bool from_nhwc, bool to_nhwc) {
            const int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i >= n) return;
            const int image = i / (c * pixels), channel = i / pixels % c, pixel = i % pixels;
            const int nhwc = (image * pixels + pixel) * c + channel;
            y[to_nhwc ? nhwc : i] = x[from_nhwc ? nhwc : i] + T(channel);
        }""",
        "channels",
    )
    fooled: ClassVar[tuple[str, str] | None] = None

    def output_dims(self, x):
        check_rank(x, 4, "x")
        return x

    def compute(self, x):
        return x + np.arange(x.shape[1]).astype(x.dtype).reshape(-1, 1, 1)

    def supports_format(self, position, descs):
        kinds = (DType.FLOAT32, DType.FLOAT16)
        return len(descs[0].dims) == 4 and descs[position].dtype in kinds and descs[position].dtype == descs[0].dtype

    def configure(self, inputs, outputs):
        self.layouts = (inputs[0].layout, outputs[0].layout)

    def enqueue(self, inputs, outputs, workspace, stream):
        (x,), (y,) = inputs, outputs
        layouts = ("linear", "linear") if self.layouts == self.fooled else self.layouts
        _, c, h, w = x.shape
        self.kernel.launch(x, y, x.size, c, h * w, *(each == "nhwc" for each in layouts), threads=x.size, stream=stream)


@in_small_process
def test_all_mixtures_of_layouts_are_run():
    report = ptp.check_plugin(broken(Channels), engines=[])
    assert report.ok, str(report)
    assert report["layouts"].tried.startswith("2 sets of types x 3 layouts x 3 shapes: float32 -> float32 nhwc")


@pytest.mark.parametrize("fooled", [("nhwc", "linear"), ("linear", "nhwc")], ids=str)
@in_small_process
def test_a_wrong_stride_in_one_mixture_of_layouts_is_found(fooled):
    report = ptp.check_plugin(broken(Channels, fooled=fooled), engines=[])
    (entry,) = report.failed
    assert entry.name == "layouts"
    assert "wrong stride for NHWC" in entry.detail
    assert "float32 nhwc -> float32" in entry.detail or "float32 -> float32 nhwc" in entry.detail


def test_what_is_accepted_and_not_run_is_said(monkeypatch):
    monkeypatch.setattr(formats, "MOST", 3)
    _, report = failed(broken())
    assert report["enqueue in other types"].detail.startswith("accepted, not run: 4 more, as ")
    case = Case(broken()(), ((2, 3),), (DType.FLOAT32,))
    roles = [one.role for one in other_formats([case])]
    assert roles == ["other format"] * 3 + ["not run"] * 4


def test_a_question_that_raises_is_no_acceptance():
    def supports_format(self, position, descs):
        if descs[0].dtype is DType.INT32:
            raise UsageError("never")
        return descs[position].dtype == descs[0].dtype

    case = Case(broken(supports_format=supports_format)(), ((2, 3),), (DType.FLOAT32,))
    assert DType.INT32 not in {one.dtypes[0] for one in accepted_cases(case)}


class Rectified(Copy):
    """Relu on codes with scales of their own."""

    int8: ClassVar[str] = "requantize"
    codes: ClassVar[str] = "fminf(rintf(fmaxf(x[i] * from, 0.0f) / to), 127.0f)"

    def compute(self, x):
        assert x.dtype != np.int8, "codes mean nothing without a scale"
        return np.maximum(x, 0)

    def supports_format(self, position, descs):
        kinds = (DType.FLOAT32, DType.INT8)
        return (
            descs[position].layout == "linear"
            and descs[position].dtype in kinds
            and descs[position].dtype == descs[0].dtype
        )

    def configure(self, inputs, outputs):
        self.scales = (inputs[0].scale, outputs[0].scale)

    def enqueue(self, inputs, outputs, workspace, stream):
        (x,), (y,) = inputs, outputs
        if x.dtype == np.float32:
            kernel("y[i] = x[i] > T(0) ? x[i] : T(0);").launch(x, y, x.size, threads=x.size, block=64, stream=stream)
            return
        text = f"""extern "C" __global__ void codes(const signed char* x, signed char* y, int n, float from, float to) {{
            const int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) y[i] = static_cast<signed char>({self.codes});
        }}"""
        CudaKernel.from_source(text, "codes").launch(x, y, x.size, *self.scales, threads=x.size, stream=stream)


@in_small_process
def test_codes_with_scales_of_their_own_are_what_compute_gives_in_float():
    found, report = failed(broken(Rectified))
    assert found == {}, str(report)
    assert report["enqueue in other types"].tried.startswith("1 set of types x 1 layout x 2 shapes: int8 -> int8")


@pytest.mark.parametrize(
    "codes",
    [
        "99",
        "fmaxf(x[i], 0.0f)",
        "rintf(fmaxf(x[i] * from, 0.0f) / from)",
        "fminf(rintf(fmaxf(x[i] * from, 0.0f) / to) + 2, 127.0f)",
        "static_cast<int>(rintf(fmaxf(x[i] * from, 0.0f) / to))",
    ],
)
@in_small_process
def test_wrong_codes_are_found_with_the_scales(codes):
    found, report = failed(broken(Rectified, codes=codes))
    assert found.keys() == {"enqueue in other types"}, str(report)
    assert "on int8[" in found["enqueue in other types"]
    assert "for scales 0.03 -> 0.0" in found["enqueue in other types"]


def test_codes_that_pass_through_have_one_scale():
    seen: list[tuple[float | None, float | None]] = []

    def configure(self, inputs, outputs):
        seen.extend((inputs[0].scale, outputs[0].scale) for desc in inputs if desc.dtype is DType.INT8)

    case = Case(broken(int8="pass_through", configure=configure)(), ((2, 3),), (DType.INT8,))
    with case.runner():
        pass
    assert seen == [(0.03, 0.03)]

"""TensorRT for RTX computes in the low type what our Q/DQ nodes quantize: convolutions and products of small networks, counted."""

import itertools

import pytest

from benchmarks.node_tests import PASSED
from benchmarks.tensorrt_builds.build import build
from benchmarks.tensorrt_builds.products import Products
from benchmarks.tensorrt_builds.subjects import Subject

from .rtx_builds import needs_rtx
from .small_networks import MODELS, path_of

pytestmark = needs_rtx
COUNTS = {
    "residual": (5, 4, 3),
    "residual behind a pool": (4, 3, 2),
    "partial residual behind a pool": (6, 5, 4),
    "depthwise": (4, 3, 2),
    "branches": (5, 4, 3),
    "connected": (4, 3, 2),
    "yolov2-animals": (23, 22, 21),
}
"""Convolutions and products of each network; those that are quantized in INT8 (the last is not), and in FP8 (the first is not either)."""


BUILDS = list(itertools.product(COUNTS, ("fp16", "bf16", "int8", "fp8")))


@pytest.mark.parametrize(("name", "precision"), BUILDS)
def test_every_product_that_is_to_run_in_the_low_type_does(name, precision, tmp_path):
    outcome = build(Subject(name, precision, path_of(name, tmp_path)))
    assert outcome.kind == PASSED, outcome.reason
    assert outcome.values.warnings == ()
    count, int8, fp8 = COUNTS[name]
    intended = {"int8": int8, "fp8": fp8}.get(precision, count)
    assert outcome.values.products == Products(count, intended, intended, ())


def test_a_low_type_makes_the_plan_smaller(tmp_path):
    sizes = {
        precision: build(Subject("animals", precision, MODELS / "yolov2-animals.cfg")).values.plan_bytes
        for precision in ("fp32", "fp16", "int8")
    }
    assert sizes["int8"] < sizes["fp16"] < sizes["fp32"]

"""ONNX's own tests of its operators on a GPU, all in one process."""

from dataclasses import replace

import pytest

from benchmarks.node_tests import PASSED, run_case
from tests.engines.cuda.operators.test_operators import CASES

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]


@pytest.mark.parametrize("operator", sorted(CASES))
def test_an_operator_passes_onnxs_tests_on_a_gpu(operator):
    more = {"atol": 1e-6} if operator == "DFT" else {}  # cuFFT gives 0 for 2e-7
    cases = [replace(case, **more) for case in CASES[operator]]
    found = {case.name: run_case(case, "cuda") for case in cases}
    assert {name: outcome.reason for name, outcome in found.items() if outcome.kind != PASSED} == {}

"""Forms of operators on a GPU: a few of each version, and what only a GPU computed wrongly."""

import logging

import pytest

pytest.importorskip("onnxruntime")

from benchmarks.forms.families import BUILDERS
from benchmarks.forms.form import draw_form
from tests.benchmarks.drawn_forms import faults, few

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]
PARTS = 16
FOUND = (
    *(
        "Attention-23/5",
        "Attention-24/20",
        "Attention-25/6",
        "com.microsoft.MultiHeadAttention-1/16",
    ),  # constant keys were NaN
    *("Pow-12/3", "Pow-12/16", "Pow-13/23", "Pow-15/22"),  # CUDA's pow(3, 1) is below 3
    "Clip-12/3",  # CuPy took the least float16 for minus infinity
)


@pytest.fixture(autouse=True)
def no_messages(caplog):
    caplog.set_level(logging.CRITICAL)


@pytest.mark.parametrize("part", range(PARTS))
def test_the_first_forms_of_each_version_are_right_or_refused_by_name_on_a_gpu(part):
    assert list(faults(few(sorted(BUILDERS)[part::PARTS]), ["cuda"])) == []


def test_forms_that_only_a_gpu_computed_wrongly_are_right():
    assert list(faults(map(draw_form, FOUND), ["cuda"])) == []

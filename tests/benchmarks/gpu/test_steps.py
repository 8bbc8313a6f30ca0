"""Each optimization is shown on a network where it has something to do."""

import re
from pathlib import Path

import pytest

from benchmarks.gpu.blocks import BLOCKS
from benchmarks.gpu.test_steps import CASES, SHOWN_ON, YOLO
from pytrtplugins.engines.cuda.lower.pipeline import OPTIONAL_STEPS, lower


def test_all_steps_have_a_row():
    assert {step for step, _, _ in CASES} == set(OPTIONAL_STEPS)
    assert {name for _, name, _ in CASES} == {YOLO, *BLOCKS}
    assert set(SHOWN_ON) <= set(OPTIONAL_STEPS)


def test_the_pages_record_names_steps_of_the_engine():
    page = (Path(__file__).parents[3] / "docs" / "lab" / "benchmarks.md").read_text("utf-8")
    table = page.partition("\n| step | network (batch 1) |")[2].partition("\n\n")[0]
    shown = re.findall(r"^\| `(.*?)` \|", table, re.MULTILINE)
    assert shown
    assert set(shown) <= set(OPTIONAL_STEPS)


@pytest.mark.parametrize(
    "step",
    ["attention", "dead-layers", "residuals", "horizontal-fusion", "activations", "int8-epilogues", "squeeze-excite"],
)
def test_without_the_step_its_network_has_more_nodes(step):
    name, precision = SHOWN_ON[step]
    model = BLOCKS[name].quantized() if precision == "int8" else BLOCKS[name].model()
    assert len(lower(model, (step,)).graph) > len(lower(model).graph)

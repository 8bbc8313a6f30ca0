"""Squeeze-and-excitation blocks within networks on a GPU, through a CUDA graph and an engine file."""

import pytest

import pytrtplugins as ptp
from tests.engines.cuda.host import assert_near, assert_same
from tests.engines.cuda.lower.test_squeeze_excite import BLOCKS, by_onnxruntime, finished, gated, image

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]
BOUNDS = {"fp32": 2e-6, "fp16": 4e-3}


@pytest.mark.parametrize("precision", BOUNDS)
@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
def test_a_block_gives_onnxruntimes_numbers(block, precision, tmp_path):
    model = finished(gated(**block))
    engine = ptp.build(model, engine="cuda", precision=precision, settings={"disable": ["tactics"], "batch": [2]})
    wanted = by_onnxruntime(model, image())
    with engine.create_context() as context:
        for _ in range(3):  # the first is captured
            found = context.run(image())
            assert_near(found, wanted, BOUNDS[precision])
        if "squeeze-excite" not in engine.disabled:
            assert "SqueezeExcite" in [step.op for step in next(iter(context._ready.values())).execution.plan.steps]
    engine.save(tmp_path / "block.engine")
    with ptp.load_engine(tmp_path / "block.engine").create_context() as context:
        assert_same(context.run(image()), found)

"""Networks of float16 tensors on a GPU: convolutions read and write linear arrays of the caller."""

import numpy as np
import pytest

import pytrtplugins as ptp
from tests.engines.cuda.host import assert_close, by_reference
from tests.engines.cuda.lower.test_pipeline import half_convolution

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]


@pytest.mark.parametrize("disable", [[], ["tactics"], ["handwritten-kernels"], ["outputs"]], ids=str)
@pytest.mark.parametrize(
    ("size", "dims", "filters"), [(1, (1, 64, 28, 28), 64), (3, (2, 40, 15, 13), 72), (1, (2, 3, 9, 9), 5)]
)
def test_linear_arrays_of_float16(size, dims, filters, disable):
    model, inputs = half_convolution(size, dims, filters)
    wanted = by_reference(model, inputs)
    engine = ptp.build(model, engine="cuda", precision="fp16", settings={"disable": disable})
    with engine.create_context() as context:
        for _ in range(3):  # the first is captured
            found = context.run(inputs)
            assert found["y"].dtype == np.float16
            assert_close(found, wanted, 1e-2)

"""Plugins on engine `cuda`, planned and run on the host: what they read and give, constants of the model too."""

import numpy as np
import pytest

from pytrtplugins.passes import prepare
from pytrtplugins.tensor import DType
from tests.engines.cuda.host import run_on_host, run_shuffled
from tests.engines.plugin_models import PLACES, X


def inputs_of(model):
    constants = {tensor.name for tensor in model.graph.initializer}
    return {info.name: X for info in model.graph.input if info.name not in constants}


@pytest.mark.parametrize("float_type", [DType.FLOAT32, DType.FLOAT16])
@pytest.mark.parametrize("place", PLACES)
def test_a_plugin_reads_and_gives_every_kind_of_tensor(place, float_type):
    model, expected = PLACES[place]
    prepared = prepare(model)
    found, execution = run_on_host(prepared, inputs_of(prepared), float_type)
    runs = [found, *(run_shuffled(execution, inputs_of(prepared), seed)[0] for seed in range(3))]
    for outputs in runs:  # the second run finds its constants again, in memory that the first one wrote
        assert outputs.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_array_equal(outputs[name], value)  # quarters below 100 are exact in float16

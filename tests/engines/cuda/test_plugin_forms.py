"""Engine `cuda`, on the host, runs a plugin in the form that the policy, or the user, chooses."""

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.layers import Reorg
from pytrtplugins.passes import prepare
from pytrtplugins.plugin.policy import FORMS
from tests.engines.cuda.host import run_on_host
from tests.engines.networks import Affine, Complete, Launching, NeedsDims, Witness, conv_net, image
from tests.passes.nets import Net


@pytest.fixture(autouse=True)
def calls():
    Witness.calls.clear()


def run(plugin, requested, batch=1):
    found, execution = run_on_host(prepare(conv_net(plugin, batch=batch)), {"data": image()}, requested=requested)
    with ptp.build(conv_net(Affine(3.0)), engine="reference").create_context() as context:
        np.testing.assert_allclose(found["y"], context.run({"data": image()})["y"], rtol=1e-5, atol=1e-5)
    return set(Witness.calls), [step.capturable for step in execution.plan.steps if step.kind == "plugin"]


@pytest.mark.parametrize("cls", [Complete, Launching])
def test_the_form_that_is_asked_for_runs_and_compute_is_in_no_graph(cls):
    captured = {"enqueue": [True], "decomposition": [], "compute": [False]}
    for form in FORMS:
        Witness.calls.clear()
        assert run(cls(), {f"test.engines::{cls.__name__}": form}) == ({form}, captured[form])
    Witness.calls.clear()
    assert run(cls(), {}) == ({"enqueue"}, [True])


def test_where_free_dims_are_needed_the_next_form_runs():
    assert run(NeedsDims(), {"test.engines::NeedsDims": "decomposition"}, batch="N")[1] == [True]
    assert Witness.calls["enqueue"] == 1


@pytest.mark.parametrize("form", FORMS)
def test_a_reorg_that_is_asked_for_is_no_part_of_a_convolution(form):
    net = Net(channels=8, size=12)
    side = net.conv("data", "side", 16, kernel=1)
    plain, requested = net.model(net.plugin(Reorg(stride=2), side, "moved")), {"darknet::Reorg": form}
    plain.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    model = prepare(plain)
    inputs = {"data": np.random.default_rng(0).standard_normal((1, 8, 12, 12)).astype(np.float32)}
    found, execution = run_on_host(model, inputs, requested=requested)
    assert [step.op for step in execution.plan.steps if step.kind == "plugin"] == ["Reorg"] * (form != "decomposition")
    np.testing.assert_array_equal(found["moved"], run_on_host(model, inputs)[0]["moved"])

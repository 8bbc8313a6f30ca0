"""What the engines for CPUs make of a model that others have, too."""

import numpy as np
import pytest

from pytrtplugins.calibration import CalibrationTable
from pytrtplugins.engines.base.types import BuildOptions
from pytrtplugins.engines.registry import engine_class
from pytrtplugins.passes import prepare, quantize
from pytrtplugins.passes.prepare import in_opset_of_precision
from tests.engines.networks import Affine, Complete, conv_net, image


def quantized(*plugins, precision="int8"):
    model = in_opset_of_precision(prepare(conv_net(*plugins)), precision)
    infos = (*model.graph.input, *model.graph.value_info, *model.graph.output)
    table = CalibrationTable({info.name: 0.01 for info in infos})
    return quantize(model, table, float_first=False, float_last=False, precision=precision)


MODELS = {
    "plain": ("fp32", lambda: prepare(conv_net())),
    "plugin": ("fp32", lambda: prepare(conv_net(Affine(2.0)))),
    "decomposition": ("fp32", lambda: prepare(conv_net(Complete()))),
    "codes": ("int8", quantized),
    "codes around a plugin": ("int8", lambda: quantized(Affine(2.0))),
    "codes without dims": ("fp8", lambda: quantized(precision="fp8")),
}
CASES = [
    (name, form)
    for name in ("cpu", "onnxruntime", "reference")
    for form, (precision, _) in MODELS.items()
    if precision in engine_class(name).precisions
]


@pytest.mark.parametrize(("name", "form"), CASES)
def test_engines_and_their_runs_leave_the_model_that_they_share_as_it_is(name, form):
    precision, make = MODELS[form]
    model = make()
    before = model.SerializeToString(deterministic=True)
    engine = engine_class(name)(model, BuildOptions(precision, threads=1))
    with engine.create_context() as context:
        context.run({"data": image()})
        context.run({"data": np.full_like(image(), np.nan)})  # on `cpu` onnxruntime computes it
        assert engine.model is model
    assert model.SerializeToString(deterministic=True) == before


def test_a_model_is_not_copied_where_no_plugin_runs_by_its_decomposition():
    cls = engine_class("cpu")
    for plugins, is_own in (((), True), ((Affine(2.0),), True), ((Complete(),), False)):
        engine = cls(prepare(conv_net(*plugins)), BuildOptions(threads=1))
        assert (engine._written_out() is engine.model) == is_own

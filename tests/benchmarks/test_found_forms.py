"""Forms that an engine computed wrongly, or refused without a name, when the whole campaign was run: right or refused by name now."""

import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")

from benchmarks.forms.form import draw_form
from benchmarks.forms.runners import run_form
from benchmarks.node_tests import PASSED, REFUSED
from pytrtplugins.cuda.backends import host as host_backend
from tests.benchmarks.drawn_forms import judged

FOUND = {
    "com.microsoft.MultiHeadAttention-1/27": "cpu",
    "com.microsoft.DynamicQuantizeLSTM-1/4 of seed 7": "cpu",
    "com.microsoft.QGemm-1/4": "cpu",
    "com.microsoft.QLinearGlobalAveragePool-1/4": "cpu",
    "DequantizeLinear-21/6": "cpu",
    "com.microsoft.NhwcMaxPool-1/5": "cpu",
    "com.microsoft.Gelu-1/13": "onnxruntime",
    "RMSNormalization-23/5": "cuda",
    "Clip-11/11": "cuda",
    "Clip-12/4": "cuda",
    "Shrink-9/44": "cuda",
    "Cast-28/11": "cuda",
    "QuantizeLinear-28/30": "cuda",
    "STFT-17/3": "onnxruntime",
    "DFT-20/37": "cuda",
    "Attention-23/5": "cuda",
    "Attention-23/7": "cuda",
    "Attention-24/25": "onnxruntime",
    "Attention-24/3": "cuda",
    "ConvTranspose-11/21": "reference",
    "GroupNormalization-21/0": "cpu",
    "Pad-2/13": "onnxruntime",
    "Resize-11/30": "onnxruntime",
    "MaxPool-11/1": "onnxruntime",
    "Gather-11/27 of seed 1": "cpu",
    "com.microsoft.SkipSimplifiedLayerNormalization-1/0 of seed 2": "cpu",
}
"""Name of a form → the engine."""
LACKED = {"com.microsoft.Gelu-1/13", "Cast-28/11", "QuantizeLinear-28/30"}
"""Those of types for which the engine has no kernel."""


@pytest.fixture(scope="module")
def forms():
    parts = {name: name.partition(" of seed ") for name in FOUND}
    drawn = [draw_form(short, int(seed or 0)) for short, _, seed in parts.values()]
    return dict(zip(parts, judged(drawn), strict=True))


@pytest.mark.parametrize("name", FOUND)
def test_it_is_right_or_refused_by_name(name, forms):
    if FOUND[name] == "cuda" and not host_backend.available():
        pytest.skip("kernels on host arrays need a C++ compiler")
    outcome = run_form(forms[name], FOUND[name])
    if name in LACKED:
        assert (outcome.kind, outcome.values) == (REFUSED, None), outcome
    else:
        assert outcome.kind == PASSED, outcome

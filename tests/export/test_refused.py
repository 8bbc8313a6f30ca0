"""What cannot be exported is refused with the line of the user's code; values that tracing meets."""

import ast
import math
import sys
from pathlib import Path

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.errors import ExportError, FieldError, UnavailableError, UsageError
from pytrtplugins.export._explore import Fork, Raised, Returned, explore, leaves
from pytrtplugins.export._values import Expr, Opaque, TracedBool, TracedFloat, TracedInt, TracedText
from pytrtplugins.export.plugin import export_plugin
from pytrtplugins.export.trace import trace_plugin
from pytrtplugins.layers import Region, Reorg
from pytrtplugins.utils.cpp_literals import float_literal, int_literal, text_literal

from . import refused_layers as refused
from .layers import Repeat, Scale

K = TracedInt(Expr("field", ("k",), "i"))
X = TracedFloat(Expr("field", ("x",), "f"))
FLAG = TracedBool(Expr("field", ("flag",), "b"))
TEXT = TracedText(Expr("field", ("text",), "s"))


@pytest.mark.parametrize(
    ("plugin", "method", "reason", "line"),
    [
        (refused.BranchesOnValues, "enqueue", r"shape\[3\]\] has no values.*there is no .max", "if inputs[0].max() > 0:"),
        (refused.CallsNumpy, "enqueue", "has no values", "np.multiply(inputs[0], 2, out=outputs[0])"),
        (refused.AssignsElements, "enqueue", "item assignment", "outputs[0][...] = 0"),
        (refused.WaitsForTheStream, "enqueue", "the stream is not known", "stream.synchronize()"),
        (refused.UsesTheClock, "enqueue", "does not do the same each time", "self._launch(inputs[0], outputs[0], 2.0 if faster else 1.0)"),
        (refused.WrongArgument, "enqueue", "missing: long long n", "self.kernel.launch(inputs[0], outputs[0], threads=1)"),
        (refused.ReadsAScale, "configure", "a float of Python needs the number", "self._scale = float(inputs[0].scale or 1)"),
        (Repeat, "enqueue", r"counting, as range\(\)", "for _ in range(self.times):  # the loop"),
    ],
)  # fmt: skip
def test_the_line_of_the_users_code_is_named(plugin, method, reason, line):
    with pytest.raises(ExportError, match=reason) as caught:
        trace_plugin(plugin)
    message, path = str(caught.value), sys.modules[plugin.__module__].__file__
    assert caught.value.path == path
    assert Path(path).read_text().splitlines()[caught.value.line - 1].strip() == line
    assert message.startswith(f"{plugin.__name__}.{method} cannot be exported: ")
    assert f"{path}:{caught.value.line}\n    {line}\nDo: " in message


@pytest.mark.parametrize(
    ("plugin", "reason"),
    [
        (refused.NonZero, r"NonZero.output_dims .*dim 'count' is not made of the inputs' dims.*values\.\nDo: give the output its largest"),
        (refused.CountsCalls, r"CountsCalls.enqueue .*something else when it is called again\.\nDo: "),
        (refused.ForgetsAnOutput, r"ForgetsAnOutput.enqueue .*output 0 to no kernel"),
        (refused.OnlyComputes, r"OnlyComputes has no enqueue of its own.*\nDo: write a kernel"),
        (refused.AnyNumber, r"AnyNumber takes any number of inputs"),
    ],
)  # fmt: skip
def test_what_has_no_one_line_is_named(plugin, reason):
    with pytest.raises(ExportError, match=reason):
        trace_plugin(plugin)


def test_a_table_made_of_fields_asks_for_their_values():
    with pytest.raises(ExportError, match="the value of anchors is not known") as caught:
        trace_plugin(Region)
    assert "--set NAME=VALUE" in str(caught.value)


def test_fixed_fields_are_checked():
    with pytest.raises(UsageError, match=r"Reorg has no field 'size'. Fields: stride, reverse."):
        trace_plugin(Reorg, {"size": 2})
    with pytest.raises(FieldError, match="expected int"):
        trace_plugin(Reorg, {"stride": "two"})
    with pytest.raises(FieldError, match="at least 1"):
        trace_plugin(Reorg, {"stride": 0, "reverse": False})


def test_a_name_that_is_no_class_of_cpp_is_refused(tmp_path):
    odd = ptp.plugin(namespace="test.export", name="Odd-name")(type("Odd", (Scale,), {}))
    with pytest.raises(ExportError, match="cannot be that of a C"):
        export_plugin(odd, tmp_path / "sources", source_only=True)


def test_sources_are_written_without_a_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("TENSORRT_INCLUDE", raising=False)
    written = export_plugin(Reorg, tmp_path / "sources", source_only=True)
    files = {path.relative_to(written.path).as_posix() for path in written.path.rglob("*") if path.is_file()}
    assert {
        "plugin.cpp",
        "build.sh",
        "image0.cu",
        "include/pytrtplugins/tensorrt.h",
        "include/pytrtplugins/exported.h",
    } <= files
    code = (written.path / "image0.cu").read_text()
    kernels = Path(Reorg.kernel.label)
    assert Reorg.kernel.source in code
    assert kernels.name == "reorg.cu"
    for instance in ("reorg<float>", "reorg_nhwc<__half>", "reorg<int8_t>"):
        assert f"template __global__ void {instance}(" in code
    assert written.formats[:2] == ("float32, float32", "float32 nhwc, float32 nhwc")
    with pytest.raises(UsageError, match="there already"):
        export_plugin(Reorg, tmp_path / "sources", source_only=True)
    with pytest.raises(UnavailableError, match=r"C\+\+ compiler is not installed[\s\S]*--source-only"):
        export_plugin(Reorg, tmp_path / "libreorg.so")


def test_headers_that_are_none_are_refused(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match=r"holds no NvInferRuntime.h"):
        export_plugin(Reorg, tmp_path / "libreorg.so", tensorrt_include=tmp_path)
    monkeypatch.delenv("TENSORRT_INCLUDE", raising=False)
    with pytest.raises(UsageError, match=r"loadable[\s\S]*--tensorrt-include"):
        export_plugin(Reorg, tmp_path / "libreorg.so", loadable=True)


# -- tracing -----------------------------------------------------------------------------------------------------------


def test_both_answers_of_each_question_are_followed_and_asked_once():
    def function():
        first = 1 if K > 3 else 2
        return (first, 10 if K > 3 else 20, bool(FLAG and TEXT == "a"))

    tree = explore(function, "f")
    assert isinstance(tree, Fork)
    assert [leaf.value for leaf in leaves(tree)] == [(1, 10, True), (1, 10, False), (1, 10, False), (2, 20, True), (2, 20, False),
                                                     (2, 20, False)]  # fmt: skip


def test_branches_that_make_no_difference_vanish():
    assert explore(lambda: [int(K % 2 == 0) * 0, 5][1], "f") == Returned(5)
    assert explore(lambda: K == K, "f") == Returned(True)
    assert explore(lambda: [K * 1 is K, K + 0 is K, K // 1 is K, K * 0, K % 1], "f") == Returned(
        [True, True, True, 0, 0]
    )


def test_errors_of_the_plugin_are_kept_with_what_their_message_shows():
    def function():
        raise FieldError(f"k is {K}, x is {X:.2f}, {TEXT!r}")

    assert explore(function, "f") == Raised("FieldError", ("k is ", K.expr, ", x is ", X.expr, ", ", TEXT.expr))


@pytest.mark.parametrize(
    "use",
    [
        lambda: int(K), lambda: range(K), lambda: float(X), lambda: [0] * K, lambda: np.zeros(K), lambda: math.sqrt(X),
        lambda: K**K, lambda: {TEXT: 1}, lambda: np.asarray(K), lambda: len(Opaque("it")), lambda: Opaque("it").shape,
        lambda: Opaque("it")[0], lambda: bool(Opaque("it")), lambda: list(Opaque("it")),
        lambda: X * np.float32(0.1), lambda: np.float16(0.1) < X, lambda: K + 2**63,
    ],
)  # fmt: skip
def test_what_needs_a_number_is_refused(use):
    with pytest.raises(ExportError):
        explore(use, "f")


def test_too_many_branches_are_refused():
    many = [TracedBool(Expr("field", (f"flag{index}",), "b")) for index in range(10)]
    with pytest.raises(ExportError, match=r"more than 512 ways[\s\S]*--set"):
        explore(lambda: [bool(flag) for flag in many], "f")


def test_literals_are_read_by_cpp_as_they_are_meant():
    assert text_literal('a"\\\n\tä\0?') == '"a\\"\\\\\\n\\t\\303\\244\\000?"'
    for text in map(chr, range(300)):  # literals of C++ and Python's bytes are the same here
        assert ast.literal_eval("b" + text_literal(text)) == text.encode()
        assert text_literal(text).isprintable()
    assert int_literal(-(2**63)) == "(-9223372036854775807 - 1)"
    assert float_literal(0.1, "f") == "0.1f"
    assert float_literal(float(np.float32(0.3))) == repr(float(np.float32(0.3)))
    assert float_literal(1e20, "f") == "1e+20f"
    assert "infinity" in float_literal(-math.inf, "f")
    assert "quiet_NaN" in float_literal(math.nan)


# -- the command -------------------------------------------------------------------------------------------------------


def command(capsys, *words):
    from pytrtplugins.cli import main

    with pytest.raises(SystemExit) as end:
        main(["export-plugin", *words])
    return end.value.code, capsys.readouterr()


def test_the_command_gives_fields_their_values(tmp_path, capsys):
    values = ["classes=3", "num=2", "softmax=true", "anchors=1,2,3,4", "coords=4", "background=false", "tree="]
    words = [word for value in values for word in ("--set", value)]
    code, shown = command(capsys, "pytrtplugins.layers:Region", "-o", str(tmp_path / "region"), "--source-only", *words)
    assert (code, shown.err) == (0, "")
    assert shown.out.splitlines()[:3] == [
        f"{tmp_path / 'region'}: darknet::Region version 1, source",
        "types:   float32, float32; float32 nhwc, float32 nhwc; float16, float16; float16 nhwc, float16 nhwc",
        "kernels: head<float>, head<__half>",
    ]
    assert "Region.anchors: this library was exported for (1.0, 2.0, 3.0, 4.0) alone" in (
        tmp_path / "region" / "plugin.cpp"
    ).read_text("utf-8")


def test_the_command_refuses_without_a_traceback(tmp_path, capsys):
    code, shown = command(capsys, "pytrtplugins.layers:Region", "-o", str(tmp_path / "region"), "--source-only")
    assert code == 2
    assert "the value of anchors is not known" in shown.err.replace("\n", " ")
    code, shown = command(capsys, "pytrtplugins.layers:Reorg", "-o", str(tmp_path / "reorg"), "--set", "stride")
    assert code == 2
    assert "--set stride: expected FIELD=VALUE" in shown.err
    assert not list(tmp_path.iterdir())

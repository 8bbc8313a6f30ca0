"""With ``--json`` standard output is one JSON text, whatever plugins and libraries write, and when; each command is a process."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import onnx
import pytest

from pytrtplugins.cli import command

if sys.platform == "win32":
    pytest.skip("it has other names for the library of C", allow_module_level=True)

LOUD = """
import atexit, ctypes, os, sys
import pytrtplugins as ptp

libc = ctypes.CDLL(None)


def shout(where):
    print("printed", where)
    os.write(1, b"written\\n")
    libc.printf(b"of C\\n")
    sys.__stdout__.write("around\\n")


shout("import")
atexit.register(shout, "at the end")


@ptp.plugin(namespace="jsoncli")
class Loud(ptp.Plugin):
    def output_dims(self, x):
        shout("output_dims")
        return x

    def compute(self, x):
        shout("compute")
        return x * x.dtype.type(2)
"""
PLUGINS = ("--plugins", "loud.py")
CALLS = {
    "inspect": ("net.onnx", *PLUGINS),
    "build": ("net.onnx", *PLUGINS, "--engine", "reference", "-o", "net.engine"),
    "calibrate": ("net.onnx", *PLUGINS, "--calibration", "arrays", "--cache", "net.cache"),
    "quantize": ("net.onnx", *PLUGINS, "--calibration", "arrays", "-o", "int8.onnx"),
    "convert": ("net.onnx", *PLUGINS, "--precision", "fp16", "-o", "half.onnx"),
    "equalize": ("net.onnx", *PLUGINS, "--calibration", "arrays", "-o", "equal.onnx"),
    "bench": ("net.onnx", *PLUGINS, "--engine", "reference", "--rounds", "1", "--seconds", "0.001"),
    "check-plugin": ("loud.py:Loud",),
    "replace": ("net.onnx", "relu", "loud.py:Loud", *PLUGINS, "-o", "other.onnx"),
    "extract": ("net.onnx", *PLUGINS, "--outputs", "y", "-o", "part.onnx"),
    "embed": ("net.onnx", *PLUGINS, "-o", "embedded.onnx"),
    "compare": ("net.onnx", "net.onnx", *PLUGINS, "--engine", "reference", "--engine-b", "reference"),
    "run": ("net.onnx", *PLUGINS, "--engine", "reference"),
    "precision search": ("net.onnx", *PLUGINS, "--data", "arrays", "--engine", "reference", "-o", "layers.yaml"),
    "export-plugin": ("loud.py:Loud", "--source-only", "-o", "source"),
    "export-triton": ("net.onnx", *PLUGINS, "--name", "net", "-o", "models"),
    "profile": ("net.onnx", *PLUGINS),
    "table": ("net.onnx", *PLUGINS, "--data", "arrays"),
    "evaluate": ("net.onnx", *PLUGINS, "--data", "arrays"),
    "data compare": ("arrays", "arrays", *PLUGINS),
}  # fmt: skip
"""Of every command that imports plugins; some refuse the network, and their standard output is empty then."""
REFUSE = {"equalize", "export-plugin", "export-triton", "profile", "table", "evaluate", "data compare"}


@pytest.fixture
def folder(tmp_path):
    text = """<ir_version: 9, opset_import: ["": 17, "jsoncli": 1]> g (float[1, 3, 4, 4] x) => (float[1, 3, 4, 4] y) {
        [loud] h = jsoncli.Loud <plugin_namespace = "jsoncli", plugin_version = "1"> (x)
        [relu] y = Relu (h)
    }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "net.onnx")
    (tmp_path / "loud.py").write_text(LOUD)
    (tmp_path / "arrays").mkdir()
    np.savez(tmp_path / "arrays/a.npz", x=np.ones((1, 3, 4, 4), np.float32))
    return tmp_path


def run(folder, *words):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sys.path))}
    command = [sys.executable, "-m", "pytrtplugins", *words]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def with_plugins(group, path=()):
    for name in group.commands:
        part = group.commands[name]
        if hasattr(part, "commands"):
            yield from with_plugins(part, (*path, name))
        elif any("--plugins" in each.opts for each in part.params) or part.name in ("check-plugin", "export-plugin"):
            yield " ".join((*path, name))


def test_every_command_that_imports_plugins_is_called():
    assert set(with_plugins(command())) - {"serve"} == set(CALLS)  # a server gives no JSON while it runs


@pytest.mark.parametrize("name", CALLS)
def test_a_command_with_a_plugin_that_writes_whenever_it_can(folder, name):
    done = run(folder, *name.split(), *CALLS[name], "--json")
    if done.returncode == 2:
        assert name in REFUSE, done.stderr
        assert done.stdout == ""
    else:
        assert list(json.loads(done.stdout)) == ["command", "version", "ok", "options", "result"]
    for word in ("printed import", "written", "of C", "around", "printed at the end"):
        assert word in done.stderr


@pytest.mark.parametrize("words", [("-q", "--json"), ("--json", "-q")], ids=" ".join)
def test_quiet_json_is_json_too(folder, words):
    assert json.loads(run(folder, "run", *CALLS["run"], *words).stdout)["ok"]


def test_what_libraries_write_while_python_is_taken_down_is_dropped(folder):
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no compiler of C")
    source = (
        '#include <stdio.h>\n__attribute__((destructor)) static void end(void) { fputs("leaked function", stderr); }\n'
    )
    (folder / "leaky.c").write_text(source)
    subprocess.run([compiler, "-shared", "-fPIC", "leaky.c", "-o", "leaky.so"], cwd=folder, check=True)
    (folder / "loud.py").write_text(
        f"import ctypes, sys\nctypes.CDLL({str(folder / 'leaky.so')!r})\nprint('loaded', file=sys.stderr)\n"
    )
    done = run(folder, "inspect", "net.onnx", *PLUGINS)
    assert "loaded" in done.stderr
    assert "leaked" not in done.stderr

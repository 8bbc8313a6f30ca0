"""One class drives a plugin through its life, whoever has the memory."""

import ast
from pathlib import Path

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.errors import DimsError
from pytrtplugins.plugin.runner import PluginRunner
from pytrtplugins.tensor import DType, TensorDesc
from tests.user_plugins import Copy

DESC = TensorDesc("x", (2, 3), DType.FLOAT32)
X = np.ones((2, 3), np.float32)


@ptp.plugin(namespace="test.runner")
class Noting(Copy):
    """x + 1; it writes down what is called, and which workspace and stream it gets."""

    def compute(self, x):
        self.log.append("compute")
        return x + 1

    def configure(self, inputs, outputs):
        self.log = [*getattr(self, "log", []), f"configure {inputs[0].name}"]

    def workspace_size(self, inputs, outputs):
        self.log.append("workspace_size")
        return 8

    def initialize(self):
        self.log.append("initialize")

    def enqueue(self, inputs, outputs, workspace, stream):
        self.log.append("enqueue")
        self.given = workspace, stream
        np.add(inputs[0], 1, out=outputs[0])

    def terminate(self):
        self.log.append("terminate")


@ptp.plugin(namespace="test.runner")
class Wrong(Copy):
    """Computes other dims than it says."""

    def compute(self, x):
        return x[:1]


CONFIGURED = ["configure x", "workspace_size", "initialize"]


def test_the_steps_of_a_life_come_in_order():
    runner, y = PluginRunner(Noting()), np.zeros_like(X)
    runner.prepare([DESC], [DESC])
    runner.enqueue([X], [y])
    runner.prepare([DESC], [DESC])
    runner.close()
    runner.close()
    assert runner.plugin.log == [*CONFIGURED, "enqueue", *CONFIGURED[:2], "terminate"]
    np.testing.assert_array_equal(y, X + 1)


def test_the_workspace_comes_from_where_the_caller_says():
    sizes = []

    def allocate(size):
        sizes.append(size)
        return "memory"

    runner = PluginRunner(Noting(), allocate=allocate)
    runner.prepare([DESC], [DESC])
    runner.enqueue([X], [X.copy()], "stream")
    assert (sizes, runner.workspace_bytes, runner.plugin.given) == ([8], 8, ("memory", "stream"))
    theirs = PluginRunner(Noting(), allocate=None)
    theirs.prepare([DESC], [DESC])
    theirs.enqueue([X], [X.copy()], workspace="theirs")
    assert theirs.plugin.given == ("theirs", None)


def test_compute_runs_where_it_is_asked_for():
    runner = PluginRunner(Noting(), "node", form="compute")
    np.testing.assert_array_equal(runner.run([X])[0], X + 1)
    assert runner.plugin.log == ["configure node.input0", *CONFIGURED[1:], "compute"]


def test_a_plugin_that_was_never_initialized_is_not_terminated():
    runner = PluginRunner(Noting())
    runner.plugin.log = []
    runner.close()
    assert not runner.plugin.log


@pytest.mark.parametrize(("name", "start"), [("layer", "node 'layer': "), ("", "Wrong()")])
def test_an_error_names_the_node_where_it_is_known(name, start):
    with pytest.raises(DimsError) as caught:
        PluginRunner(Wrong(), name).run([X])
    assert str(caught.value).startswith(start)


def test_nothing_else_calls_the_methods_of_a_plugins_life():
    steps = {"configure", "workspace_size", "initialize", "enqueue", "terminate"}
    hosts = ("runner", "handle", "host", "_host(self)", "PluginRunner(plugin, allocate=None)", "self", "context")
    # self: its own; context: an engine's, whose enqueue is no plugin's
    package = Path(ptp.__file__).parent
    texts = {path: path.read_text(encoding="utf-8") for path in package.rglob("*.py")}
    calls = {
        f"{path.relative_to(package)}: {ast.unparse(node.func)}"
        for path, text in texts.items()
        if any(step in text for step in steps)  # others need not be parsed
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in steps
        if not ast.unparse(node.func.value).endswith(hosts)
    }
    runner = str(Path("plugin", "runner.py"))
    assert calls == {f"{runner}: self.plugin.{step}" for step in steps - {"enqueue"}}

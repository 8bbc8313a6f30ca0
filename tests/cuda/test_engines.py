"""Plugins with kernels in the engines of a CPU."""

import numpy as np
import pytest

from pytrtplugins import Plugin, check_plugin, plugin
from pytrtplugins.cuda import launches_kernels
from pytrtplugins.cuda.backends import host as host_backend
from pytrtplugins.layers import Region, Reorg, Yolo
from pytrtplugins.plugin.policy import HOST_FORMS, RUNNING, chosen_form
from pytrtplugins.plugin.runner import PluginRunner
from tests.broken_kernels import Twice, kernel


@plugin(namespace="test.cuda")
class Written(Plugin):
    """Queues its work without a kernel."""

    def output_dims(self, x):
        return x

    def compute(self, x):
        return x + x

    def enqueue(self, inputs, outputs, workspace, stream):
        np.add(inputs[0], inputs[0], out=outputs[0])
        self.written = True


def runner_on_a_cpu(made):
    return PluginRunner(made.clone(), "node", form=chosen_form(type(made), HOST_FORMS, among=RUNNING))


def test_plugins_with_kernels_are_told_from_others():
    with_kernels = [cls for cls in (Twice, Written, Reorg, Region, Yolo) if launches_kernels(cls)]
    assert with_kernels == [Twice, Reorg, Region, Yolo]


@pytest.mark.parametrize("made", [Twice(), Reorg(stride=2), Region(classes=2)])
def test_on_a_cpu_a_plugin_with_kernels_computes_and_needs_no_compiler(made, monkeypatch):
    monkeypatch.setattr(host_backend, "compiler", lambda: ("", ""))
    x = np.random.default_rng(0).standard_normal((2, 28 if isinstance(made, Reorg) else 7, 4, 4)).astype(np.float32)
    runner = runner_on_a_cpu(made)
    np.testing.assert_array_equal(runner.run([x])[0], made.compute(x))
    runner.close()


def test_on_a_cpu_another_plugin_is_enqueued():
    runner = runner_on_a_cpu(Written())
    x = np.ones((1, 3), np.float32)
    np.testing.assert_array_equal(runner.run([x])[0], 2 * x)
    assert runner.plugin.written


def test_without_a_compiler_check_plugin_skips_the_kernel_and_says_what_to_install(monkeypatch):
    monkeypatch.setattr(host_backend, "compiler", lambda: ("", ""))
    monkeypatch.setattr(Twice, "kernel", kernel("    if (i < n) y[i] = x[i] * 2;"))  # which no test has loaded
    report = check_plugin(Twice, engines=[])
    report.raise_if_failed()
    assert report["enqueue"].skipped
    assert "apt-get install g++" in report["enqueue"].detail

"""The table of what the host adds, with an engine on the CPU in the GPU's place."""

import re

import numpy as np
import pytest

import pytrtplugins as ptp
from benchmarks.gpu import host_split
from tests.engines.networks import conv_net


class Engine:
    """An engine with what the table asks engine cuda for."""

    def __init__(self):
        self.inner = ptp.build(conv_net(), engine="onnxruntime")
        self.inputs = self.inner.inputs

    def create_context(self):
        context = self.inner.create_context()
        context.step_times = lambda inputs: (7.0, [], None)
        return context

    def stream(self, source):
        return self.inner.stream(source)


@pytest.fixture
def few_calls(monkeypatch):
    for name, value in {"CALLS": 4, "WARM_UP": 2, "DISTINCT": 3, "MANY": 20}.items():
        monkeypatch.setattr(host_split, name, value)
    monkeypatch.setattr(host_split, "pinned_copy", np.copy)
    monkeypatch.setattr(host_split, "pinned_empty", np.empty)


@pytest.mark.usefixtures("few_calls")
def test_every_row_has_its_figures(capsys):
    host_split.split_run(Engine())
    lines = capsys.readouterr().out.splitlines()
    assert re.search(r"network, on the GPU +7\.0 \(7\.0, 7\.0\)", lines[0])
    for line in lines[1:6]:
        least, most = map(float, re.search(r"\((.*), (.*)\)", line).groups())
        assert 0 < least <= most
    assert [line.partition(":")[0] for line in lines[6:]] == [
        "ordinary arrays, one run after the other",
        "ordinary arrays, stream",
    ]


def test_files_of_other_engines_are_refused(tmp_path, monkeypatch, capsys):
    path = tmp_path / "net.engine"
    ptp.build(conv_net(), engine="onnxruntime").save(path)
    monkeypatch.setattr("sys.argv", ["host_split", str(path)])
    with pytest.raises(SystemExit):
        host_split.main()
    assert "expected a file of engine cuda, found one of onnxruntime" in capsys.readouterr().err

"""When cuDNN's frontend is imported: in a process of its own, with packages of the test's making."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[4]
FRONTEND = """
import torch
__version__ = "of the module"
class cudnnGraphNotSupportedError(Exception): pass
class Anything:
    def __getattr__(self, name): return Anything()
def backend_version(): return 91900
def create_handle(): return 1
def pygraph(**options): raise RuntimeError("not supported")
data_type = heur_mode = numerical_note = Anything()
"""
START = """
import sys
import pytrtplugins as ptp
from pytrtplugins.engines.cuda import engine as module
from pytrtplugins.engines.cuda.conv.cudnn import CudnnProvider
from tests.engines.cuda.test_engine_file import Device, run
from tests.passes.nets import Net
module.CudaDevice = Device
def note(event): print(event, *sorted({"cudnn", "torch"} & sys.modules.keys()), sep=", ")
"""
BUILD = """
net, settings = Net(), {"disable": ["handwritten-kernels", "tactics"]}
engine = ptp.build(net.model(net.conv("data", "a", channels=24)), engine="cuda", settings=settings, progress=False)
note("asked for plans")
engine.save(sys.argv[1])
"""
LOAD = """
engine = ptp.load_engine(sys.argv[1])
note("loaded")
run(engine, 1)
note("run")
engine.save(sys.argv[1])
note("saved")
facts = engine._cache().device
note("looked for choices")
print(facts["cudnn-frontend"], facts["cudnn"])
"""


@pytest.fixture
def packages(tmp_path):
    """A folder with a frontend that imports PyTorch, as versions before 1.27 do, and a cuDNN."""
    folder = tmp_path / "packages"
    folder.mkdir()
    (folder / "cudnn.py").write_text(FRONTEND)
    (folder / "torch.py").write_text("")
    for name, version in (("nvidia-cudnn-frontend", "1.26.0"), ("nvidia-cudnn-cu13", "9.19.0.56")):
        info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return folder


def python(packages, program, *arguments):
    """The lines that a program prints that finds these packages first."""
    path = os.pathsep.join(map(str, (packages, REPOSITORY)))
    command = [sys.executable, "-c", START + program, *map(str, arguments)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return done.stdout.splitlines()


def test_an_engine_file_without_cudnns_kernels_never_imports_the_frontend(packages, tmp_path):
    file = tmp_path / "net.engine"
    assert python(packages, BUILD, file) == ["asked for plans, cudnn, torch"]
    assert python(packages, LOAD, file) == ["loaded", "run", "saved", "looked for choices", "1.26.0 91900"]


def test_a_cudnn_that_pip_did_not_install_is_asked_for_its_version(packages):
    program = """
from pytrtplugins.engines.cuda.conv import cudnn_frontend
cudnn_frontend._LIBRARIES = ("nvidia-cudnn-cu0",)
print(cudnn_frontend.cudnn_versions())
"""
    assert python(packages, program) == ["{'cudnn-frontend': 'of the module', 'cudnn': '91900'}"]

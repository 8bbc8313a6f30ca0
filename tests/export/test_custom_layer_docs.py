"""Pages of a layer of your own, walked through as a new user would: each program and each command that needs no GPU."""

import os
import sys

import onnx
import pytest

from pytrtplugins import _native_build, native
from pytrtplugins.errors import ExportError
from pytrtplugins.export.plugin import export_plugin
from tests.export.conftest import builds_kept
from tests.model.networks import network, node
from tests.pages import Reader, texts

PAGES = ("docs/how-to/custom_layer.md", "docs/how-to/custom_layer_export.md")
CLASS, ENQUEUE, PLACE, ENGINES, LIBRARY, WRONG = texts(PAGES, "python")
CHECK, CHECK_AGAIN, REPLACE, SOURCES, HOST = (text.strip() for text in texts(PAGES, "sh"))
(KERNEL,) = texts(PAGES, "cuda")
EXPORT, BUILD, REFUSAL = (text.strip() for text in texts(PAGES, "text"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A new user's folder, with a network of theirs."""
    path = tmp_path_factory.mktemp("walk")
    onnx.save(
        network([node("Relu", "x", "a", "relu"), node("Sigmoid", "a", "y", "mix")], ("N", 8, 4, 4)), path / "model.onnx"
    )
    return path


@pytest.fixture
def shell(folder, monkeypatch):
    """Gives what a command prints in the folder."""
    monkeypatch.delenv("TENSORRT_INCLUDE", raising=False)
    return Reader(folder).shell


@pytest.fixture
def program(folder, shell):
    """Gives what a program prints in the folder."""

    def run(text):
        (folder / "program.py").write_text(text, "utf-8")
        return shell("python program.py")

    return run


def require_native():
    if lacking := _native_build.missing():
        pytest.skip(f"plugins in C++ cannot be built here. Do: {' and then '.join(lacking)}")
    if not native.available():
        pytest.skip("the native part is not built. Do: make native")


def test_the_class_and_then_its_kernel_pass_the_check(folder, shell):
    (folder / "mylayers.py").write_text(CLASS, "utf-8")
    before = shell(CHECK)
    (folder / "shuffle.cu").write_text(KERNEL, "utf-8")
    (folder / "mylayers.py").write_text(CLASS + "\n" + ENQUEUE, "utf-8")
    assert CHECK_AGAIN == CHECK
    assert "ChannelShuffle" in before
    assert "ChannelShuffle" in shell(CHECK_AGAIN)


def test_the_layer_goes_into_the_network_and_runs_in_the_engines(folder, shell, program):
    pytest.importorskip("openvino")
    (folder / "mylayers.py").write_text(CLASS + "\n" + ENQUEUE, "utf-8")
    (folder / "shuffle.cu").write_text(KERNEL, "utf-8")
    (folder / "place.py").write_text(PLACE, "utf-8")
    shell(REPLACE)
    (found,) = [item for item in onnx.load(folder / "shuffled.onnx").graph.node if item.domain == "acme"]
    assert {item.name for item in found.attribute} == {"groups", "plugin_namespace", "plugin_version"}
    assert program(ENGINES).splitlines() == ["reference {'y': (2, 8, 4, 4)}", "cpu {'y': (2, 8, 4, 4)}"]


def test_the_exported_sources_build_a_library_that_passes_the_same_check(folder, shell, program):
    require_native()
    (folder / "mylayers.py").write_text(CLASS + "\n" + ENQUEUE, "utf-8")
    (folder / "shuffle.cu").write_text(KERNEL, "utf-8")
    assert "acme::ChannelShuffle version 1, source" in shell(SOURCES)
    assert (folder / BUILD.split()[2]).is_file()
    with builds_kept(os.environ.get("CXXFLAGS", "")):
        assert "acme::ChannelShuffle version 1, neutral" in shell(HOST)
    assert program(LIBRARY).splitlines()[-1] == "ChannelShuffle(groups=4) acme::ChannelShuffle version 1"


def test_the_command_for_tensorrt_differs_from_the_tested_one_by_its_options_alone():
    export, trtexec = EXPORT.splitlines()
    assert export.split()[:5] == ["pytrt", "export-plugin", "mylayers.py:ChannelShuffle", "-o", "libacme.so"]
    assert export.split()[5:] == ["--tensorrt-include", "TensorRT/include"]
    assert trtexec == "trtexec --onnx=shuffled.onnx --staticPlugins=./libacme.so"


def test_the_refusal_is_what_the_page_shows(folder, tmp_path, monkeypatch):
    from pytrtplugins.cli.shared.loading import import_plugin

    (tmp_path / "mylayers.py").write_text(
        f"{CLASS.replace('acme', 'acme.wrong')}\n{ENQUEUE.splitlines()[0]}\n\n{WRONG}", "utf-8"
    )
    (tmp_path / "shuffle.cu").write_text(KERNEL, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "mylayers", raising=False)
    with pytest.raises(ExportError) as caught:
        export_plugin(import_plugin("mylayers.py:ChannelShuffle"), "acme", source_only=True)
    assert f"ExportError: {caught.value}".replace(str(tmp_path) + os.sep, "") == REFUSAL

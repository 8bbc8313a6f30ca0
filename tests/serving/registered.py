"""A registry for servers, whose version K multiplies by K; the last one has other outputs."""

import shutil

import pytest

from pytrtplugins import build
from pytrtplugins.mlops.registry import ModelRegistry, facts
from pytrtplugins.serving import ModelSpec

PHOTOS = "ab" * 32
"""Digest of the data that all versions were made of."""
OTHER = 4
"""The version whose output is a row longer."""


@pytest.fixture(scope="session")
def engine_files(tmp_path_factory):
    """Engine files, the version's number in their names."""
    onnx = pytest.importorskip("onnx")
    folder, found = tmp_path_factory.mktemp("engines"), []
    head, scale = (
        '<ir_version: 10, opset_import: ["": 18]> scale (float[n, 2] x)',
        "<float k = {%d}> { %s = Mul (x, k) %s }",
    )
    for number in range(1, OTHER + 1):
        text = f"{head} => (float[n, 2] y) {scale % (number, 'y', '')}"
        if number == OTHER:
            more = "a = Constant <value_ints = [0]> () y = Unsqueeze (m, a)"
            text = f"{head} => (float[1, n, 2] y) {scale % (number, 'm', more)}"
        model = onnx.parser.parse_model(text)
        found.append(folder / f"scale{number}.engine")
        build(model, engine="reference").save(found[-1])
    return found


@pytest.fixture(scope="session")
def filled_folder(tmp_path_factory, engine_files):
    """A registry with all versions, the first in production."""
    made = ModelRegistry(tmp_path_factory.mktemp("filled") / "registry")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(facts, "environment", lambda: ({}, {}))
        for path in engine_files:
            made.add(path, name="scale", data={"shards": PHOTOS}, run="run 7")
    made.promote("scale", 1)
    return made.folder.path


@pytest.fixture
def registry(tmp_path, filled_folder):
    """A copy of it."""
    return ModelRegistry(shutil.copytree(filled_folder, tmp_path / "registry"))


def registered(registry, target="registry:scale@production", **options):
    """What a server is to serve."""
    return ModelSpec("scale", target, registry=str(registry.folder.path), max_delay_ms=0.0, **options)

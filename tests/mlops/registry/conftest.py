"""A registry in a folder of its own, and engine files for it."""

import pytest

from pytrtplugins.engines.base.engine_file import write_engine_file
from pytrtplugins.mlops.registry import ModelRegistry, facts


@pytest.fixture
def engine_file(tmp_path, monkeypatch):
    """Makes engine files that differ; to look at the machine takes longer than all else."""
    monkeypatch.setattr(facts, "environment", lambda: ({"processor": "a CPU"}, {"numpy": "2.0"}))

    def make(name="scale", model=b"model", precision="fp32"):
        path = tmp_path / f"{name}.engine"
        write_engine_file(
            path, {"engine": "reference", "options": {"precision": precision}, "built_with": "NumPy"}, model
        )
        return path

    return make


@pytest.fixture
def registry(tmp_path):
    return ModelRegistry(tmp_path / "registry")


@pytest.fixture
def filled(registry, engine_file):
    """With three versions of one model."""
    for number in (1, 2, 3):
        registry.add(engine_file(f"scale{number}", b"model %d" % number), name="scale")
    return registry

"""Pipelines that are exported."""

import functools

import pytest

from pytrtplugins.mlops.pipeline.argo import load_live
from tests.mlops.pipeline.argo.exports import PIPELINE


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    """Loads a pipeline of this text, each once."""

    @functools.cache
    def load(text=PIPELINE):
        path = tmp_path_factory.mktemp("pipeline") / "pipeline.yaml"
        path.write_text(text)
        return load_live(path)

    return load

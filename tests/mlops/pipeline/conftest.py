"""Runs of a pipeline in a folder of its own."""

import pytest

from pytrtplugins.mlops.pipeline import Pipeline
from pytrtplugins.mlops.pipeline.run import run_pipeline
from pytrtplugins.mlops.pipeline.selection import Selection
from tests.mlops.pipeline.plain_store import PlainStore


@pytest.fixture
def run(tmp_path):
    (tmp_path / "in.txt").write_text("1\n")

    def ran(*steps, selection=Selection(), **options):  # noqa: B008
        pipeline_options = {key: options.pop(key) for key in ("on_exit", "parameters") if key in options}
        pipeline = Pipeline("demo", steps, folder=tmp_path, **pipeline_options)
        return run_pipeline(pipeline, selection, store=PlainStore.opened, **options)

    ran.folder = tmp_path / ".pytrt/pipelines/demo"
    ran.base = tmp_path
    return ran

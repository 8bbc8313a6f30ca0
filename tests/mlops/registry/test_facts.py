"""Figures of a model from the tables of other commands."""

import json

import pytest

from pytrtplugins.errors import ModelRegistryError
from pytrtplugins.mlops.registry.facts import read_figures


def test_the_row_of_a_table_is_that_of_the_engine_and_the_precision(tmp_path):
    variants = [("cpu", "fp32"), ("cuda", "fp32"), ("cuda", "fp16")]
    rows = [
        {"variant": {"engine": engine, "precision": precision}, "figures": {"map50": number}}
        for number, (engine, precision) in enumerate(variants)
    ]
    path = tmp_path / "table.json"
    path.write_text(json.dumps({"rows": rows}))
    for number, variant in enumerate(variants):
        assert read_figures(path, *variant)["map50"] == number
    with pytest.raises(
        ModelRegistryError, match="no row for engine cpu in fp16; it has cpu fp32, cuda fp32, cuda fp16"
    ):
        read_figures(path, "cpu", "fp16")

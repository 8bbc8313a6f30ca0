"""Python plugins that were exported as C++: the engine that Python built runs without it."""

from __future__ import annotations

import numpy as np
import pytest

from pytrtplugins.engines.tensorrt.creators import unregister
from pytrtplugins.export.plugin import export_plugin
from pytrtplugins.layers import Reorg

from .user_plugins import Bias


@pytest.mark.parametrize(("plugin", "dims"), [(Reorg(stride=2), (2, 8, 4, 6)), (Bias(by=0.25), (3, 5))], ids=repr)
def test_an_exported_plugin_lives_as_the_python_one(driver, headers, tmp_path, plugin, dims):
    library = tmp_path / "libexported.so"
    export_plugin(type(plugin), library, loadable=True, tensorrt_include=headers, host=True)
    x = np.random.default_rng(0).standard_normal(dims).astype(np.float32)
    with driver.offered(type(plugin), "python"):
        built = driver.build(plugin, [x])
    unregister(type(plugin))
    with driver.library(library):
        (found,) = driver.run(plugin, built, [x])
        again = driver.build(plugin, [x])
    np.testing.assert_array_equal(found, plugin.compute(x))
    assert [item[:2] for item in again.fields] == [item[:2] for item in built.fields]
    assert again.workspace == built.workspace

"""Public names: sorted, importable, documented."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil

import pytest

import darknet2caffe
import pytrtplugins

PACKAGES = (pytrtplugins, darknet2caffe)
SUBMODULES = {m.name for package in PACKAGES for m in pkgutil.walk_packages(package.__path__, package.__name__ + ".")}
MODULES = ["pytrtplugins", "darknet2caffe", *sorted(name for name in SUBMODULES if "__main__" not in name)]


@pytest.mark.parametrize("name", MODULES)
def test_all_lists_sorted_names_that_exist_and_are_documented(name):
    module = importlib.import_module(name)
    assert module.__doc__, f"{name} has no docstring"
    if not hasattr(module, "__all__"):
        return
    assert len(set(module.__all__)) == len(module.__all__)
    for public in module.__all__:
        value = getattr(module, public)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), f"{name}.{public} has no docstring"


def test_the_version_is_the_installed_one():
    from importlib.metadata import version

    assert version("pytrtplugins") == pytrtplugins.__version__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing_here"):
        _ = pytrtplugins.nothing_here


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_are_true(name):
    module = importlib.import_module(name)
    names = {"np": importlib.import_module("numpy"), "ptp": pytrtplugins, **vars(module)}
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for found in doctest.DocTestFinder().find(module, name, extraglobs=names):
        if found.examples:
            runner.run(found)
    assert runner.failures == 0

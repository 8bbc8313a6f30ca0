"""Public names: sorted, importable, documented, and listed on their page."""

import doctest
import importlib
import inspect
import pkgutil
import re
import runpy
import typing
from pathlib import Path

import pytest

import darknet2caffe
import pytrtplugins
from tests import public_defaults
from tests.pages import ROOT, blocks, read

PACKAGES = {"pytrtplugins": pytrtplugins, "darknet2caffe": darknet2caffe}
FOUND = [m.name for name, package in PACKAGES.items() for m in pkgutil.iter_modules(package.__path__, f"{name}.")]
by_room = pytest.mark.parametrize("room", [*PACKAGES, *(name for name in FOUND if "__main__" not in name)])


def modules(room):
    """Names of a room's modules; a package is a room without the others in it."""
    folders = [] if room in PACKAGES else getattr(importlib.import_module(room), "__path__", [])
    below = (found.name for found in pkgutil.walk_packages(folders, f"{room}."))
    return [room, *sorted(name for name in below if "__main__" not in name)]


def undocumented(name):
    """What is wrong with the public names of a module."""
    module = importlib.import_module(name)
    if not module.__doc__:
        yield f"{name} has no docstring"
    names = getattr(module, "__all__", [])
    if len(set(names)) != len(names):
        yield f"{name}.__all__ has a name twice"
    for public in names:
        if not hasattr(module, public):
            yield f"{name}.{public} does not exist"
            continue
        value = getattr(module, public)
        is_alias = typing.get_origin(value) is not None  # which is a class to Python 3.10
        if (inspect.isclass(value) or inspect.isfunction(value)) and not is_alias and not inspect.getdoc(value):
            yield f"{name}.{public} has no docstring"


@by_room
def test_all_lists_names_that_exist_and_are_documented(room):
    wrong = [line for name in modules(room) for line in undocumented(name)]
    assert not wrong, "\n".join(wrong)


PUBLIC = runpy.run_path(str(ROOT / ".ci/docs/public_names.py"))
LISTED = {"pytrtplugins", *(f"pytrtplugins.{name}" for name in PUBLIC["MODULES"])}


def test_the_page_of_public_names_is_up_to_date():
    page = PUBLIC["page"]()
    assert not re.findall(r"^\| .* \|  \|", page, re.MULTILINE), "a public name has no docstring"
    assert read(PUBLIC["PAGE"].relative_to(ROOT)) == page, "Do: python .ci/docs/public_names.py"


def test_defaults_of_public_functions_are_those_that_are_listed():
    public_defaults.check_listed()


def imported_modules(page):
    """The modules of the package from which programs on a page import names."""
    programs = "\n".join(block.text for block in blocks(page) if block.kind in ("py", "python"))
    return {
        name or other
        for name, other in re.findall(r"from (pytrtplugins[\w.]*) import|import (pytrtplugins[\w.]*)", programs)
    }


def test_programs_on_pages_import_public_modules_alone():
    pages = [path.relative_to(ROOT) for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]]
    used = {page.as_posix(): imported_modules(page) - LISTED for page in pages}
    assert {page: names for page, names in used.items() if names} == {}
    assert set().union(*map(imported_modules, pages)) & LISTED


def test_the_version_is_the_installed_one():
    from importlib.metadata import version

    assert version("pytrtplugins") == pytrtplugins.__version__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing_here"):
        _ = pytrtplugins.nothing_here


def failed_examples(name):
    """How many examples in a module's docstrings print something else than they say; what they print is shown."""
    module = importlib.import_module(name)
    if b">>>" not in Path(module.__file__).read_bytes():
        return 0
    names = {"np": importlib.import_module("numpy"), "ptp": pytrtplugins, **vars(module)}
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for found in doctest.DocTestFinder().find(module, name, extraglobs=names):
        if found.examples:
            runner.run(found)
    return runner.failures


@by_room
def test_examples_in_docstrings_are_true(room):
    assert not [name for name in modules(room) if failed_examples(name)]

"""Check every plugin of a library: ``python check.py build/libacme.so``; ``ctest --test-dir build`` runs it."""

from __future__ import annotations

import sys

import pytrtplugins as ptp

for plugin in ptp.load_library(sys.argv[1]).plugins:
    ptp.check_plugin(plugin).raise_if_failed()
    print(f"{plugin.__name__}: ok")

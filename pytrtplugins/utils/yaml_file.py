"""YAML that people write, with the lines of its keys and items, which errors name."""

from __future__ import annotations

from pathlib import Path

from .files import read_regular
from .placed_file import PlacedFile
from .text_formats import MAX_YAML_BYTES, parse_placed_yaml

__all__ = ["YamlFile"]


class YamlFile(PlacedFile):
    """A YAML file that was read."""

    @classmethod
    def read(cls, path: Path) -> YamlFile:
        """Read a file that holds keys and values.

        Raises:
            FormatError: it is not YAML, uses what `parse_yaml` refuses, is too large, or holds something else.
            MissingExtraError: PyYAML is missing.
            OSError: it cannot be read.
        """
        data, lines = parse_placed_yaml(read_regular(path, MAX_YAML_BYTES), path)
        made = cls(path, data if isinstance(data, dict) else {}, lines)
        if not isinstance(data, dict):
            raise made.error((), "expected keys and values, such as name: animals.")
        return made

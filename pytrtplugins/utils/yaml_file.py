"""Read YAML that people write, with the line number of each key and item, for error messages."""

from __future__ import annotations

from pathlib import Path

from .file_with_lines import FileWithLines
from .files import read_regular
from .text_formats import MAX_YAML_BYTES, parse_yaml_with_lines

__all__ = ["YamlFile"]


class YamlFile(FileWithLines):
    """A parsed YAML file."""

    @classmethod
    def read(cls, path: Path) -> YamlFile:
        """Read and parse a file whose top level is a mapping.

        Raises:
            FormatError: it is not YAML, uses what `parse_yaml` refuses, is too large, or holds something else.
        """
        data, lines = parse_yaml_with_lines(read_regular(path, MAX_YAML_BYTES), path)
        file = cls(path, data if isinstance(data, dict) else {}, lines)
        if not isinstance(data, dict):
            raise file.error((), "expected keys and values, such as name: animals.")
        return file

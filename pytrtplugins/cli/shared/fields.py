"""Parse a plugin from the command line: a class or an instance, values of its fields, and its inputs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ...errors import FormatError, UsageError
from ...plugin.base import Plugin
from ...plugin.field_values import value_origin
from ...plugin.fields import FieldSpec
from ...utils.text_formats import parse_json
from . import loading, option_values

__all__ = ["open_plugin", "read_fields", "read_samples", "read_shapes"]

_EXPECTED = "FIELD=VALUE, such as groups=4, anchors=10,13,16,30 or slope=@slope.npy"


def open_plugin(target: str, pairs: Sequence[str] | None = None) -> type[Plugin] | Plugin:
    """A plugin written as ``module:Class`` or ``module:INSTANCE``, with fields that have the values of ``--set``.

    Raises:
        UsageError: the text has another form, the module cannot be imported, or there is no such field or file.
        RegistryError: the module has no such plugin.
        FieldError: a value does not fit its field, or a field without a default has none.
    """
    plugin = loading.import_plugin(target, instances=True)
    values = read_fields(pairs, plugin if isinstance(plugin, type) else type(plugin))
    if not values:
        return plugin
    return plugin(**values) if isinstance(plugin, type) else type(plugin)(**{**plugin.fields(), **values})


def read_fields(pairs: Sequence[str] | None, cls: type[Plugin]) -> dict[str, Any]:
    """Values of fields written as ``name=value``: numbers, lists such as ``1,8,16``, JSON, text, or ``@FILE.npy``.

    Raises:
        UsageError: one has another form, names no field, or its file cannot be read.
        FieldError: a value does not fit its field.
    """
    specs = {spec.name: spec for spec in cls.field_specs()}
    values: dict[str, Any] = {}
    for name, text in option_values.read_pairs(pairs, "--set", _EXPECTED, empty=True).items():
        if name not in specs:
            raise UsageError(f"--set {name}: {cls.__name__} has no such field. Fields: {', '.join(specs) or 'none'}.")
        with value_origin(f"--set {name}={text[:80]}"):
            values[name] = specs[name].convert(_parse_value(specs[name], text), cls.__name__)
    return values


def read_samples(pairs: Sequence[str] | None) -> dict[str, Any] | None:
    """A plugin's inputs written as ``x=@FILE.npy`` or ``index=0..9``; None where there are none.

    Raises:
        UsageError: one has another form, or its file cannot be read.
    """
    samples: dict[str, Any] = {}
    for name, text in option_values.read_pairs(pairs, "--input", "NAME=@FILE.npy or NAME=LOW..HIGH").items():
        if text.startswith("@") or text.endswith(".npy"):
            samples[name] = option_values.read_array(text.removeprefix("@"), f"--input {name}={text}")
            continue
        bounds = tuple(map(option_values.read_value, text.split("..")))
        if len(bounds) != 2 or any(type(bound) not in (int, float) for bound in bounds):
            raise UsageError(
                f"--input {name}={text[:80]}: expected NAME=@FILE.npy or NAME=LOW..HIGH, such as index=0..9."
            )
        samples[name] = bounds
    return samples or None


def read_shapes(texts: Sequence[str] | None) -> dict[str, tuple[int, ...]] | None:
    """Dims of a plugin's inputs written as ``x=1x8x6x6``, or several with commas between them; None where there are none."""
    if not texts:
        return None
    shapes: dict[str, tuple[int, ...]] = {}
    for part in ",".join(texts).split(","):
        name, _, dims = part.partition("=")
        if not name or not re.fullmatch(r"\d{1,9}(x\d{1,9}){0,7}", dims) or name in shapes:
            raise UsageError(f"--shape {part[:80]}: expected NAME=DIMS, once for each input, such as x=1x8x6x6.")
        shapes[name] = tuple(map(int, dims.split("x")))
    return shapes


def _parse_value(spec: FieldSpec, text: str) -> Any:
    """Parse a typed value: text as it is or in JSON, numbers, or the contents of a file."""
    kind = spec.field_kind
    if kind.quotes and not text.startswith(kind.quotes):
        return kind.split_text(text)
    if kind.quotes:
        try:
            return parse_json(text, f"--set {spec.name}")
        except FormatError as error:
            raise UsageError(f"--set {spec.name}={text[:80]}: {error}") from error
    if text.startswith("@") or (kind.file_ending and text.endswith(kind.file_ending)):
        return option_values.read_array(text.removeprefix("@"), f"--set {spec.name}={text}")
    return option_values.read_value(text)

"""The report of `check_plugin`."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from ..errors import ConformanceError
from ..utils.notebook import object_html

__all__ = ["Entry", "Remark", "Report"]

_ORDER = {"FAILED": 0, "WARNING": 1}
"""States that are printed first."""


class Remark(str):
    """A remark of a rule that passed: its entry becomes a warning."""


@dataclass(frozen=True)
class Entry:
    """The result of one check.

    Attributes:
        name: What was checked.
        ok: False when the plugin broke the rule; a skipped check is not a failure.
        detail: What failed, at the smallest failing shape; why it was skipped; or a remark.
        tried: What the check ran on.
        skipped: Whether it could not be tried.
        warning: Whether no engine fails on what was tried, and yet the plugin should be changed, as the detail says.
    """

    name: str
    ok: bool
    detail: str = ""
    tried: str = ""
    skipped: bool = False
    warning: bool = False

    @property
    def blocked(self) -> bool:
        """Whether the check did not run because another check failed."""
        return self.skipped and self.detail.endswith(", which failed")

    @property
    def state(self) -> str:
        """``ok``, ``FAILED``, ``WARNING`` or ``skipped``."""
        return "skipped" if self.skipped else "FAILED" if not self.ok else "WARNING" if self.warning else "ok"


@dataclass(frozen=True)
class Report:
    """The results of all checks; when printed, failures come first.

    Attributes:
        plugin: The class that was checked.
        entries: The checks, in order.
    """

    plugin: str
    entries: tuple[Entry, ...]

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return all(entry.ok for entry in self.entries)

    @property
    def failed(self) -> tuple[Entry, ...]:
        """The checks that failed."""
        return tuple(entry for entry in self.entries if not entry.ok)

    def __getitem__(self, name: str) -> Entry:
        """The entry of this name."""
        return next(entry for entry in self.entries if entry.name == name)

    def junit_xml(self) -> str:
        """The report for continuous integration: a test suite of the plugin, with a test case for each check."""
        from xml.etree import ElementTree  # which takes longer to import than the rest of this file

        facts = {"name": self.plugin, "tests": str(len(self.entries)), "failures": str(len(self.failed)), "errors": "0"}
        suite = ElementTree.Element("testsuite", facts, skipped=str(sum(entry.skipped for entry in self.entries)))
        for entry in self.entries:
            case = ElementTree.SubElement(suite, "testcase", classname=self.plugin, name=entry.name)
            if entry.warning:
                ElementTree.SubElement(case, "system-out").text = _printable(entry.detail)
            elif entry.skipped or not entry.ok:
                outcome = ElementTree.SubElement(
                    case, "skipped" if entry.skipped else "failure", message=_printable(entry.detail.partition("\n")[0])
                )
                outcome.text = _printable(entry.detail)
        ElementTree.indent(suite)
        return ElementTree.tostring(suite, "unicode", xml_declaration=True) + "\n"

    def raise_if_failed(self) -> None:
        """Raise an error if a check failed.

        Raises:
            ConformanceError: with the table as message and this report as ``.report``.
        """
        if not self.ok:
            raise ConformanceError(f"{self.plugin} does not keep its contract:\n{self}", report=self)

    def _repr_html_(self) -> str:
        rows = [(entry.name, entry.state, entry.detail or entry.tried) for entry in self.entries]
        rows.sort(key=lambda row: _ORDER.get(row[1], len(_ORDER)))
        return object_html(self._title, ("check", "result", "why, or on what"), rows)

    @property
    def _title(self) -> str:
        warnings = sum(entry.state == "WARNING" for entry in self.entries)
        result = "ok" if self.ok else f"{len(self.failed)} of {len(self.entries)} checks failed"
        return f"{self.plugin}: {result}" + (f", {warnings} warning{'s' * (warnings > 1)}" if warnings else "")

    def __str__(self) -> str:
        """Failures, remarks, and one line for all checks that passed or were skipped; `table` has each check."""
        first = sorted(
            (entry for entry in self.entries if entry.state in _ORDER), key=lambda entry: _ORDER[entry.state]
        )
        width = max((len(entry.name) for entry in first), default=0)
        lines = [self._title]
        for entry in first:
            between = "\n" if "\n" in entry.detail else "; "
            text = between.join(filter(None, (entry.detail, entry.tried and f"tried {entry.tried}")))
            lines.append(f"  {entry.name:<{width}}  {entry.state:<7}  {text}".replace("\n", "\n    "))
        passed = [entry for entry in self.entries if entry.state == "ok"]
        lines += [f"  {entry.name}: {entry.detail}".replace("\n", "\n    ") for entry in passed if entry.detail]
        tried = list(dict.fromkeys(entry.tried for entry in passed if entry.tried))
        names = ", ".join(entry.name for entry in passed)
        lines += [f"  {len(passed)} passed: {names}" + "".join(f"\n    on {text}" for text in tried)] if passed else []
        blocked, skipped = sum(entry.blocked for entry in self.entries), sum(entry.skipped for entry in self.entries)
        others = f", {blocked} of them since another check failed" if blocked else ""
        lines += [f"  {skipped} skipped{others} (report.table(), or --verbose, says why)"] if skipped else []
        return "\n".join(lines)

    def table(self) -> str:
        """All checks, a line each."""
        width = max((len(entry.name) for entry in self.entries), default=0)
        lines = [self._title]
        cases, reasons = (
            dict[str, str](),
            dict[str, str](),
        )  # of what was tried or skipped → the first check of that kind
        blocked = Counter(entry.detail for entry in self.entries if entry.blocked)
        for entry in self.entries:
            first = reasons.setdefault(entry.detail, entry.name) if entry.skipped else entry.name
            if entry.blocked and first != entry.name:
                continue
            others = blocked[entry.detail] - 1 if entry.blocked else 0
            detail = _text_or_reference(entry.detail, f"as for {first!r}", first == entry.name)
            detail += f"; so do {others} more" if others > 1 else "; so does one more" if others else ""
            tried = f"tried {entry.tried}" if entry.tried else ""
            first = cases.setdefault(tried, entry.name)
            tried = _text_or_reference(tried, f"on the cases of {first!r}", first == entry.name)
            between = "\n" if "\n" in detail else "; "
            text = between.join(filter(None, (detail, tried)))
            lines.append(f"  {entry.name:<{width}}  {entry.state:<7}  {text}".rstrip().replace("\n", "\n    "))
        return "\n".join(lines)


def _printable(text: str) -> str:
    """Without what XML cannot hold."""
    return re.sub("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]", "?", text)


def _text_or_reference(text: str, reference: str, first: bool) -> str:
    """The text at its first occurrence; later a reference to it, if that is shorter."""
    return text if first or len(text) <= len(reference) else reference

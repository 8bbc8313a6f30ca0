"""What check_plugin found."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ConformanceError

__all__ = ["Entry", "Report"]


@dataclass(frozen=True)
class Entry:
    """One check.

    Attributes:
        name: What was checked.
        ok: False when the plugin broke the rule; a skipped check is not a failure.
        detail: What failed, at the smallest failing shape; why it was skipped; or a remark.
        tried: What the check ran on.
        skipped: Whether it could not be tried.
    """

    name: str
    ok: bool
    detail: str = ""
    tried: str = ""
    skipped: bool = False

    @property
    def state(self) -> str:
        """``ok``, ``FAILED`` or ``skipped``."""
        return "skipped" if self.skipped else "ok" if self.ok else "FAILED"


@dataclass(frozen=True)
class Report:
    """The entries of all checks, in order; printed, it is a table."""

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

    def raise_if_failed(self) -> None:
        """Raise if a check failed.

        Raises:
            ConformanceError: with the table as message and this report as ``.report``.
        """
        if not self.ok:
            raise ConformanceError(f"{self.plugin} does not keep its contract:\n{self}", report=self)

    def __str__(self) -> str:
        width = max((len(entry.name) for entry in self.entries), default=0)
        lines = [f"{self.plugin}: {'ok' if self.ok else f'{len(self.failed)} of {len(self.entries)} checks failed'}"]
        for entry in self.entries:
            between = "\n" if "\n" in entry.detail else "; "
            text = between.join(part for part in (entry.detail, entry.tried and f"tried {entry.tried}") if part)
            lines.append(f"  {entry.name:<{width}}  {entry.state:<7}  {text}".rstrip().replace("\n", "\n    "))
        return "\n".join(lines)

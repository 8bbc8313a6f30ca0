"""Print the results of the commands ``pytrt models ...``."""

from __future__ import annotations

from ...cli.shared.tables import print_texts
from ..registry import Change, Comparison, RegistryCheck
from ..registry.card import figure_text, rows, size_text
from .models_facts import Added, Card, Changed, Listed, Traced

__all__ = [
    "print_added",
    "print_card",
    "print_changed",
    "print_checked",
    "print_comparison",
    "print_listed",
    "print_traced",
]

_SHOWN = 20  # figures and tensors
_DIGITS = 12  # of a digest


def print_added(added: Added) -> None:
    """Print the new version's name and number."""
    stage = f", in {added.stage}" if added.stage else ""
    print(f"{added.name}:{added.version}: {size_text(added.bytes)}, sha256 {added.digest}{stage}")
    if not added.stage:
        print(f"Do: pytrt models promote {added.name}:{added.version} --stage staging")


def print_listed(listed: Listed) -> None:
    """Print one row per version."""
    if not listed.versions:
        print("no versions")
        return
    print_texts(
        ("version", "stage", "engine", "size", "created", "digest", "licence", "note"),
        [
            (
                str(entry.version),
                entry.stage or "",
                f"{entry.version.engine} {entry.version.precision}",
                size_text(entry.version.bytes),
                entry.version.created,
                entry.version.digest[:_DIGITS],
                entry.version.licence,
                entry.version.note[:60],
            )
            for entry in listed.versions
        ],
    )


def print_card(card: Card) -> None:
    """Print all facts of a version."""
    print_texts((str(card.version), ""), rows(card.version, card.stage))
    figures = list(card.version.figures.items())
    if figures:
        print_texts(("figure", "value"), [(name, figure_text(value)) for name, value in figures[:_SHOWN]])
    if figures[_SHOWN:]:
        print(f"and {len(figures) - _SHOWN:,} figures more: --json shows all")
    if card.history:
        name = card.version.name
        print_texts(
            ("time", "what", "who", "why"),
            [(change.time, _change_text(name, change), change.who, change.why) for change in card.history],
        )
    if card.page:
        print(f"written: {card.page}")


def print_changed(changed: Changed) -> None:
    """Print the change of a stage."""
    print(_change_text(changed.name, changed.change))


def print_comparison(comparison: Comparison) -> None:
    """Print the differences of two versions."""
    if comparison.facts:
        print_texts(("", comparison.a, comparison.b), [(name, a, b) for name, (a, b) in comparison.facts.items()])
    print_texts(
        ("file", comparison.a, comparison.b, "change"),
        [
            (role, size_text(a), size_text(b), f"{b / a - 1:+.1%}" if a and b else "")
            for role, (a, b) in comparison.sizes.items()
        ],
    )
    figures = [
        (name, figure_text(a), figure_text(b), _gain(a, b)) for name, (a, b) in comparison.figures.items() if a != b
    ]
    if figures:
        print_texts(("figure", comparison.a, comparison.b, "change"), figures[:_SHOWN])
    if figures[_SHOWN:]:
        print(f"and {len(figures) - _SHOWN:,} figures more: --json shows all")
    if comparison.tensors is None:
        print("calibration: one of the two has no calibration cache")
    else:
        print(f"calibration: {len(comparison.calibration)} tensors differ, {comparison.tensors} are in both tables")
        changes = [
            (change.tensor, figure_text(change.a), figure_text(change.b), figure_text(change.ratio or None))
            for change in comparison.calibration
        ]
        if changes:
            print_texts(("tensor", f"amax {comparison.a}", f"amax {comparison.b}", "ratio"), changes[:_SHOWN])
        if changes[_SHOWN:]:
            print(f"and {len(changes) - _SHOWN:,} tensors more: --json shows all")


def print_traced(traced: Traced) -> None:
    """Print the origins of a version, one version at a time."""
    for lineage in traced.found:
        print_texts((str(lineage.version), ""), rows(lineage.version, lineage.stage))
        if lineage.ancestors:
            lines = [(str(before), before.created, before.digest[:_DIGITS], before.run) for before in lineage.ancestors]
            print_texts(("it followed", "created", "digest", "run"), lines)


def print_checked(report: RegistryCheck) -> None:
    """Print the problems of a registry, or that there are none."""
    for problem in report.removed:
        print(f"removed: {problem.path}: {problem.text}")
    for problem in report.problems:
        print(f"{problem.path}: {problem.text}")
    if any(problem.left_over for problem in report.problems):
        print("Do: pytrt models check --repair")
    state = "whole" if report.whole else "not whole"
    print(
        f"{report.folder}: {state}: {report.models} models, {report.versions} versions, {report.files} files, {size_text(report.bytes)}"
    )


def _change_text(name: str, change: Change) -> str:
    where = {"promote": f"is in {change.stage}", "rollback": f"is back in {change.stage}", "remove": "was removed"}
    return f"{name}:{change.version} {where[change.action]}"


def _gain(a: float | None, b: float | None) -> str:
    return "" if a is None or b is None else f"{b - a:+.6g}"

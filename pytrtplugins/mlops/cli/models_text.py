"""What the commands ``pytrt models ...`` print."""

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


def print_added(found: Added) -> None:
    """What it is called now."""
    stage = f", in {found.stage}" if found.stage else ""
    print(f"{found.name}:{found.version}: {size_text(found.bytes)}, sha256 {found.digest}{stage}")
    if not found.stage:
        print(f"Do: pytrt models promote {found.name}:{found.version} --stage staging")


def print_listed(found: Listed) -> None:
    """One row per version."""
    if not found.versions:
        print("no versions")
        return
    print_texts(
        ("version", "stage", "engine", "size", "created", "digest", "licence", "note"),
        [
            (
                str(each.version),
                each.stage or "",
                f"{each.version.engine} {each.version.precision}",
                size_text(each.version.bytes),
                each.version.created,
                each.version.digest[:_DIGITS],
                each.version.licence,
                each.version.note[:60],
            )
            for each in found.versions
        ],
    )


def print_card(found: Card) -> None:
    """All that is known."""
    print_texts((str(found.version), ""), rows(found.version, found.stage))
    figures = list(found.version.figures.items())
    if figures:
        print_texts(("figure", "value"), [(name, figure_text(value)) for name, value in figures[:_SHOWN]])
    if figures[_SHOWN:]:
        print(f"and {len(figures) - _SHOWN:,} figures more: --json shows all")
    if found.history:
        name = found.version.name
        print_texts(
            ("time", "what", "who", "why"),
            [(each.time, _said(name, each), each.who, each.why) for each in found.history],
        )
    if found.page:
        print(f"written: {found.page}")


def print_changed(found: Changed) -> None:
    """What was done."""
    print(_said(found.name, found.change))


def print_comparison(found: Comparison) -> None:
    """What differs."""
    if found.facts:
        print_texts(("", found.a, found.b), [(name, a, b) for name, (a, b) in found.facts.items()])
    print_texts(
        ("file", found.a, found.b, "change"),
        [
            (role, size_text(a), size_text(b), f"{b / a - 1:+.1%}" if a and b else "")
            for role, (a, b) in found.sizes.items()
        ],
    )
    figures = [(name, figure_text(a), figure_text(b), _gain(a, b)) for name, (a, b) in found.figures.items() if a != b]
    if figures:
        print_texts(("figure", found.a, found.b, "change"), figures[:_SHOWN])
    if figures[_SHOWN:]:
        print(f"and {len(figures) - _SHOWN:,} figures more: --json shows all")
    if found.tensors is None:
        print("calibration: one of the two has no calibration cache")
    else:
        print(f"calibration: {len(found.calibration)} tensors differ, {found.tensors} are in both tables")
        changes = [
            (each.tensor, figure_text(each.a), figure_text(each.b), figure_text(each.ratio or None))
            for each in found.calibration
        ]
        if changes:
            print_texts(("tensor", f"amax {found.a}", f"amax {found.b}", "ratio"), changes[:_SHOWN])
        if changes[_SHOWN:]:
            print(f"and {len(changes) - _SHOWN:,} tensors more: --json shows all")


def print_traced(found: Traced) -> None:
    """The way back, a version at a time."""
    for each in found.found:
        print_texts((str(each.version), ""), rows(each.version, each.stage))
        if each.ancestors:
            lines = [(str(before), before.created, before.digest[:_DIGITS], before.run) for before in each.ancestors]
            print_texts(("it followed", "created", "digest", "run"), lines)


def print_checked(found: RegistryCheck) -> None:
    """What is wrong, or that nothing is."""
    for problem in found.removed:
        print(f"removed: {problem.path}: {problem.text}")
    for problem in found.problems:
        print(f"{problem.path}: {problem.text}")
    if any(problem.left_over for problem in found.problems):
        print("Do: pytrt models check --repair")
    state = "whole" if found.whole else "not whole"
    print(
        f"{found.folder}: {state}: {found.models} models, {found.versions} versions, {found.files} files, {size_text(found.bytes)}"
    )


def _said(name: str, change: Change) -> str:
    where = {"promote": f"is in {change.stage}", "rollback": f"is back in {change.stage}", "remove": "was removed"}
    return f"{name}:{change.version} {where[change.action]}"


def _gain(a: float | None, b: float | None) -> str:
    return "" if a is None or b is None else f"{b - a:+.6g}"

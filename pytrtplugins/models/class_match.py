"""Match the classes of a data set with those of a detector by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from ..errors import UsageError

__all__ = ["ClassMatch", "match_classes"]


@dataclass(frozen=True)
class ClassMatch:
    """The classes that are evaluated: rows of the result.

    Attributes:
        names: Of the rows: the name in the data, or the detector's where several classes of the data are measured as one.
        detected: The detector's class → row.
        labelled: The data's class → row.
        ignored: Names of the data's other classes.
    """

    names: tuple[str, ...]
    detected: dict[int, int]
    labelled: dict[int, int]
    ignored: tuple[str, ...]


def match_classes(names: Sequence[str], classes: Sequence[str], class_map: Mapping[str, str]) -> ClassMatch:
    """Match the classes of the data with those of a detector, by name."""
    unknown = [name for name in class_map if name not in classes]
    if unknown:
        raise UsageError(f"evaluate: class_map: {unknown} are not classes of the data: {', '.join(classes)}.")
    exact = set(names).intersection(name for name in classes if name not in class_map)
    groups: dict[str, list[int]] = {}
    for number, name in enumerate(classes):
        target = _same_name(class_map.get(name, name), names, exact if name not in class_map else set())
        if target is not None:
            groups.setdefault(target, []).append(number)
        elif name in class_map:
            raise UsageError(
                f"evaluate: class_map: {class_map[name]!r}, for {name!r}, is no class of the detector: {', '.join(names[:20])}."
            )
    for target, numbers in groups.items():
        likened = [classes[n] for n in numbers if classes[n] != target and classes[n] not in class_map]
        if len(likened) > 1:
            raise UsageError(
                _ambiguous_text(
                    f"the classes {', '.join(map(repr, likened))} of the data are", f"{target!r} of the detector"
                )
            )
    if not groups:
        raise UsageError(
            f"evaluate: the detector and the data share no class.\nDetector: {', '.join(names[:20])}.\nData: {', '.join(classes[:20])}.\n"
            "Do: give the detector the right names (pytrt: --names FILE), or say which are the same: "
            "class_map={'name in the data': 'name of the detector'} (pytrt: --class-map DATA=MODEL)"
        )
    rows = {target: row for row, target in enumerate(sorted(groups, key=lambda target: groups[target][0]))}
    labelled = {number: rows[target] for target, numbers in groups.items() for number in numbers}
    return ClassMatch(
        tuple(classes[groups[target][0]] if len(groups[target]) == 1 else target for target in rows),
        {number: rows[name] for number, name in enumerate(names) if name in rows},
        labelled,
        tuple(name for number, name in enumerate(classes) if number not in labelled),
    )


def _same_name(name: str, names: Sequence[str], taken: Set[str]) -> str | None:
    """Return the detector's class with this name, else the one that differs only in case; None if there is none."""
    if name in names:
        return name
    matches = {candidate for candidate in names if candidate.casefold() == name.casefold()} - taken
    if len(matches) > 1:
        raise UsageError(
            _ambiguous_text(
                f"{name!r} of the data is", f"one of {', '.join(map(repr, sorted(matches)))} of the detector"
            )
        )
    return next(iter(matches), None)


def _ambiguous_text(data: str, detector: str) -> str:
    return (
        f"evaluate: except for upper and lower case, {data} {detector}.\n"
        "Do: say what is what: class_map={'name in the data': 'name of the detector'} (pytrt: --class-map DATA=MODEL)"
    )

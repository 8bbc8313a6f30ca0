"""What docs/reference/tensorrt_builds.md shows of builds, as a record, and what must not be among them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from ..node_tests import CRASHED, FAILED, HUNG, PASSED, REFUSED, Outcome
from .build import Build
from .reasons import BUILDER, PACKAGE, PARSER, general_reason, refused_by
from .subjects import Subject

__all__ = ["Results", "faults", "record"]

Results = Sequence[tuple[Subject, Outcome]]


def record(group: str, results: Results) -> dict[str, Any]:
    """Return what the page shows of a group of models: a record without versions."""
    kinds = Counter(outcome.kind for _, outcome in results)
    refused = [(subject, outcome.reason) for subject, outcome in results if outcome.kind == REFUSED]
    parts = Counter(refused_by(reason) for _, reason in refused)
    builds = [outcome.values for _, outcome in results if outcome.kind == PASSED]
    networks: dict[str, dict[str, Any]] = defaultdict(dict)
    operators: dict[str, Counter[str]] = defaultdict(Counter)
    for subject, outcome in results:
        if hasattr(subject.source, "operator"):
            operators[_label(subject)][outcome.kind] += 1
        else:
            networks[subject.name][subject.precision] = _plan(outcome)
    return {
        "subject": "builds",
        "counts": {
            "models": group, "builds": len(results), "built": kinds[PASSED], **{part: parts[part] for part in (PARSER, BUILDER, PACKAGE)},
            "failed": kinds[FAILED], "crashed": kinds[CRASHED] + kinds[HUNG], "warnings": sum(len(build.warnings) for build in builds),
        },
        "reasons": _reasons(refused),
        "networks": [{"name": name, "builds": plans} for name, plans in networks.items()],
        "missing": [
            {"network": subject.name, "precision": subject.precision, "nodes": list(outcome.values.products.missing)}
            for subject, outcome in results
            if outcome.kind == PASSED and outcome.values.products is not None and outcome.values.products.missing
        ],
        "operators": [
            {"name": name, "built": counts[PASSED], "tests": counts.total()} for name, counts in sorted(operators.items())
        ],
    }  # fmt: skip


def _reasons(refused: Sequence[tuple[Subject, str]]) -> list[dict[str, Any]]:
    """Return why models are refused, the part that refuses most models for one reason first."""
    rows: dict[tuple[str, str], list[str]] = defaultdict(list)
    for subject, reason in refused:
        rows[refused_by(reason), general_reason(reason)].append(_label(subject))
    return [
        {"part": part, "reason": reason, "builds": len(labels), "names": sorted(set(labels))}
        for (part, reason), labels in sorted(rows.items(), key=lambda row: (row[0][0], -len(row[1]), row[0][1]))
    ]


def _plan(outcome: Outcome) -> str | dict[str, int]:
    """Return a plan's size, and its products in the low type; what came of the build where there is no plan."""
    if outcome.kind != PASSED:
        return outcome.kind
    build: Build = outcome.values
    products = build.products
    counted = {} if products is None else {"low": products.low, "intended": products.intended, "all": products.all}
    return {"bytes": build.plan_bytes, **counted}


def faults(results: Results) -> list[str]:
    """What must not be: crashes, errors that are not this package's, warnings that it causes, products that miss the low type."""
    lines = []
    for subject, outcome in results:
        where = f"{subject.name} ({subject.precision})"
        if outcome.kind not in (PASSED, REFUSED):
            lines.append(f"{where}: {outcome.kind}: {outcome.reason}")
            continue
        build = outcome.values
        if isinstance(build, Build):
            lines += [f"{where}: warning: {text}" for text in build.warnings]
            if build.products is not None and build.products.missing:
                lines.append(f"{where}: not in the low type: {', '.join(build.products.missing)}")
    return lines


def _label(subject: Subject) -> str:
    return subject.name if not hasattr(subject.source, "operator") else str(subject.source.operator)

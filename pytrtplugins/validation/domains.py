"""Normalize the spelling of operator domains, and add the version that onnxruntime assumes if a model imports none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..utils.optional import onnx
from .dataflow import walk
from .operators import standard_domain

__all__ = ["plain_domains"]

_DEFAULT_VERSIONS = {"com.microsoft": 1, "ai.onnx.ml": 3}
"""Domain → version for a model that uses its operators and does not import it: onnxruntime runs such models."""


def plain_domains(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with ``ai.onnx`` written as the empty text, and with each domain imported whose default version is known.

    Of several imports of one domain, as skl2onnx writes them, the last counts: onnxruntime takes it.
    """
    scopes = [model, *model.functions]
    if not any(
        item.domain == "ai.onnx" for scope in scopes for item in (*scope.opset_import, *_nodes(scope))
    ) and not any(_missing_imports(scope) or _has_repeated_imports(scope) for scope in scopes):
        return model
    copy = type(model)()
    copy.CopyFrom(model)
    for scope in (copy, *copy.functions):
        for domain, version in _missing_imports(scope).items():
            scope.opset_import.add(domain=domain, version=version)
        for item in (*scope.opset_import, *_nodes(scope)):
            item.domain = standard_domain(item.domain)
        imports = {item.domain: item.version for item in scope.opset_import}
        del scope.opset_import[:]
        for domain, version in imports.items():
            scope.opset_import.add(domain=domain, version=version)
    for function in copy.functions:
        function.domain = standard_domain(function.domain)
    return copy


def _nodes(scope: Any) -> Iterator[onnx.NodeProto]:
    return walk(scope.graph.node if hasattr(scope, "graph") else scope.node)


def _has_repeated_imports(scope: Any) -> bool:
    return len({item.domain for item in scope.opset_import}) < len(scope.opset_import)


def _missing_imports(scope: Any) -> dict[str, int]:
    """Domain → version of what a model, or a function, uses and does not import."""
    imported = {standard_domain(item.domain) for item in scope.opset_import}
    used = {standard_domain(node.domain) for node in _nodes(scope)} - imported
    return {domain: version for domain, version in _DEFAULT_VERSIONS.items() if domain in used}

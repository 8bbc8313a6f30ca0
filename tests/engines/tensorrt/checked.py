"""The full package where it cannot build: every call is held against the real bindings' signatures.

Attributes are looked up in the real classes, so what does not exist there is an AttributeError here; arguments are bound
to the signatures in the real docstrings, by number, name and type. What a call gives follows from its signature, or
from the ``answers`` of a test: what TensorRT would say.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

_MADE = ("Builder", "OnnxParser", "Runtime")
_SIGNATURE = re.compile(r"^(?:\d+\. )?(\w+)\((.*)\) -> (.*)$", re.MULTILINE)
_BUILTIN = {"str": str, "bool": bool, "tuple": tuple, "list": list}


class SignatureError(AssertionError):
    """A call that the real bindings would refuse."""


class HostMemory(bytes):
    """What IHostMemory gives: a buffer."""


class CheckedModule:
    """Stands for the package.

    Args:
        module: The real one, over stub libraries.
        answers: ``"Class.member"`` → a value, or a function of the call's arguments.
    """

    def __init__(self, module: Any, answers: dict[str, Any]) -> None:
        self._module, self._answers = module, answers
        self.calls: list[str] = []
        self.made: dict[str, list[Proxy]] = {}

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        if name not in _MADE:
            return value

        def make(*args: Any, **kwargs: Any) -> Proxy:
            _check(self._module, name, value.__init__, args, kwargs)
            return self.proxy(name)

        return make

    def proxy(self, name: str) -> Proxy:
        made = Proxy(self, name)
        self.made.setdefault(name, []).append(made)
        return made


class Proxy:
    """Stands for an object that only TensorRT can make."""

    def __init__(self, owner: CheckedModule, name: str) -> None:
        self.__dict__.update(owner=owner, name_=name, cls=getattr(owner._module, name), set_={})

    def __getattr__(self, member: str) -> Any:
        real = getattr(self.cls, member)
        path = f"{self.name_}.{member}"
        answer = self.owner._answers.get(path)
        if isinstance(real, property):
            return self.set_.get(member, answer() if callable(answer) else answer)

        def call(*args: Any, **kwargs: Any) -> Any:
            returns = _check(self.owner._module, path, real, args, kwargs)
            self.owner.calls.append(path)
            if answer is not None:
                return answer(*args, **kwargs) if callable(answer) else answer
            return self._result(returns)

        return call

    def __setattr__(self, member: str, value: Any) -> None:
        real = getattr(self.cls, member)
        if not (isinstance(real, property) and real.fset is not None):
            raise SignatureError(f"{self.name_}.{member} cannot be set")
        self.owner.calls.append(f"{self.name_}.{member}=")
        self.set_[member] = value

    def _result(self, returns: str) -> Any:
        name = returns.rpartition(".")[2].rpartition("::")[2]
        if name == "IHostMemory":
            return HostMemory(b"made by TensorRT")
        plain: dict[str, Any] = {"None": None, "bool": True, "int": 0, "str": "", "list[str]": []}
        return plain[name] if name in plain else self.owner.proxy({"IParserError": "ParserError"}.get(name, name))


def _check(module: Any, path: str, real: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """What the call returns, by the first signature that takes the arguments."""
    problems = []
    for _, parameters, returns in _SIGNATURE.findall(real.__doc__ or ""):
        if parameters == "*args, **kwargs":
            continue
        signature, types = _parse(parameters)
        try:
            bound = signature.bind(None, *args, **kwargs)
        except TypeError as error:
            problems.append(f"{error} of ({parameters})")
            continue
        wrong = [
            f"{name}: expected {types[name]}, found {value!r}"
            for name, value in bound.arguments.items()
            if name != "self" and not _fits(module, types[name], value)
        ]
        if not wrong:
            return str(returns).strip()
        problems += wrong
    raise SignatureError(f"{path}: {'; '.join(problems) or 'no signature'}")


def _parse(text: str) -> tuple[inspect.Signature, dict[str, str]]:
    parts, depth, begin = [], 0, 0
    for index, letter in enumerate(text):
        depth += (letter in "([<") - (letter in ")]>")
        if letter == "," and depth == 0:
            parts.append(text[begin:index])
            begin = index + 1
    parts.append(text[begin:])
    parameters, types = [], {}
    for part in parts:
        name, _, rest = part.strip().partition(": ")
        kind, equals, _ = rest.partition(" = ")
        types[name] = kind
        default = ... if equals else inspect.Parameter.empty
        parameters.append(inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default))
    return inspect.Signature(parameters), types


def _fits(module: Any, kind: str, value: Any) -> bool:
    if kind in _BUILTIN:
        return type(value) is _BUILTIN[kind]
    if kind == "typing.SupportsInt":
        return hasattr(value, "__int__") and not isinstance(value, (bool, str))
    if kind.endswith(".Buffer"):
        try:
            return memoryview(value) is not None
        except TypeError:
            return False
    name = kind.rpartition(".")[2].rpartition("::")[2]
    real = getattr(module, name, None)
    return real is None or isinstance(value, real) or (isinstance(value, Proxy) and value.name_ == name)


Answer = Callable[..., Any]

"""A loaded model with its queue and its thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...errors import PytrtpluginsError, UsageError
from ...utils.user_module import import_user_module
from ..model.model import Model
from ..model.registered import Source, is_registered, resolve
from ..model.signature import Signature
from ..model.spec import ModelSpec
from .batcher import Batcher, client_error
from .queue import BatchQueue, Deliver

__all__ = ["Replica", "front_model", "model_class", "names_code"]


class Replica:
    """A loaded model with its queue and its thread.

    Args:
        spec: What to load.
        device: Where: the engine's own name for a device; None: its default.
        deliver: Takes requests that are done; called in the thread.
        watch: Takes the number of waiting requests whenever it changes.
        lost: Called where the model is not usable any more; see `Batcher`.
        begin: Takes requests that are about to be computed.
        immediate: Whether a model that is `Model.immediate` may be without a thread; who puts requests into its queue has to call
            ``batcher.compute`` then.

    Attributes:
        source: The version of a registry that it is; None: it is none.
        load: The host's own number for it.
        immediate: Whether it has no thread.

    Raises:
        UsageError: there is no such file or class, or its `load` failed.
        ModelRegistryError: the registry has no such version, or its file is damaged.
        PytrtpluginsError: the engine cannot be had.
    """

    def __init__(
        self,
        spec: ModelSpec,
        device: str | None,
        deliver: Deliver,
        watch: Callable[[int], object] | None = None,
        lost: Callable[[], object] | None = None,
        begin: Deliver | None = None,
        *,
        immediate: bool = False,
    ) -> None:
        self.spec = spec
        self.source: Source | None = None
        self.load = 0
        if is_registered(spec.target):
            path, self.source = resolve(spec.target, spec.registry)
            spec = replace(spec, target=str(path))
        self.model = _load(spec, device)
        self.signature = Signature.of(self.model, spec.max_batch, spec.sizes)
        self.queue = BatchQueue(
            self.signature.max_batch, self.signature.sizes, spec.max_delay_ms / 1000, spec.queue, watch, spec.name
        )
        self.immediate = immediate and self.model.immediate
        self.batcher = Batcher(
            self.model, self.queue, deliver, lost, begin, joined=self.signature.joined, threaded=not self.immediate
        )
        self.batcher.start()

    def check_replaces(self, old: Replica | None) -> None:
        """Require the same inputs and outputs as the version that this one replaces, since clients do not choose the version."""
        new = self.signature
        if (
            old is None
            or self.source is None
            or (old.signature.inputs, old.signature.outputs) == (new.inputs, new.outputs)
        ):
            return
        self.close()
        sides = [
            f"({', '.join(map(str, signature.inputs))}) -> ({', '.join(map(str, signature.outputs))})"
            for signature in (old.signature, new)
        ]
        raise UsageError(
            f"version {self.source.version} has other inputs or outputs than the one that is served: {sides[1]}, and not {sides[0]}.\n"
            f"Do: serve it under another name, such as pytrt serve new=registry:NAME:{self.source.version}"
        )

    def close(self, timeout_s: float | None = 30.0) -> None:
        """Finish queued requests, then release the model."""
        self.queue.close()
        if self.batcher.join(timeout_s):
            try:
                self.model.close()
            except (Exception, SystemExit) as error:  # whatever the user's model does
                client_error(self.model, "close", error)


def names_code(target: str) -> bool:
    """Whether a target is ``module:Class``, and not a file or a version in a registry."""
    if is_registered(target):
        return False
    module, colon, name = target.rpartition(":")
    return bool(colon and module) and name.isidentifier()


def model_class(target: str) -> type[Model]:
    """The class that ``module:Class`` or ``path/to/file.py:Class`` names.

    Raises:
        UsageError: there is none, or it is not a Model.
    """
    module_name, _, name = target.rpartition(":")
    module = import_user_module(module_name)
    cls = getattr(module, name, None)
    if isinstance(cls, type) and issubclass(cls, Model):
        return cls
    classes = [
        key
        for key, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Model) and value is not Model
    ]
    raise UsageError(
        f"{target}: {module_name} has no class {name!r} that inherits pytrtplugins.serving.Model. "
        f"It has: {', '.join(classes) or 'none'}."
    )


def front_model(spec: ModelSpec, signature: Signature) -> Model:
    """The object that preprocesses and postprocesses, with the facts of the one that is loaded."""
    if names_code(spec.target):
        model = _instantiate(spec.target)
    else:
        from ..model.defaults import Detector, Tensors  # engines take longer to import than all else here

        model = Detector() if signature.detects else Tensors()
    model.facts = dict(signature.facts)
    return model


def _load(spec: ModelSpec, device: str | None) -> Model:
    if not names_code(spec.target):
        from ..model.defaults import default_model  # as above

        return default_model(spec, device)
    model = _instantiate(spec.target)
    try:
        model.load(device)
    except PytrtpluginsError:
        raise
    except (Exception, SystemExit) as error:  # whatever the user's model does
        raise _load_error(spec.target, "load", f".load({device!r})", error) from error
    return model


def _instantiate(target: str) -> Model:
    cls = model_class(target)
    try:
        return cls()
    except (Exception, SystemExit) as error:  # whatever the user's model does
        raise _load_error(target, "__init__", "", error) from error


def _load_error(target: str, method: str, call: str, error: BaseException) -> UsageError:
    module, _, name = target.rpartition(":")
    return UsageError(
        f"{target}: {method} raised {type(error).__name__}: {error}\n"
        f'Do: python -c "import {module} as m; m.{name}(){call}", for the whole traceback'
    )

"""Base class of the user's models, and the request that it handles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ...tensor import TensorDesc
from ...vision.image import decode_image
from .tensors import TensorSpec

__all__ = ["Arrays", "Model", "Request"]

Arrays = dict[str, npt.NDArray[Any]]
"""Arrays by the names of a model's inputs or outputs."""


@dataclass(frozen=True)
class Request:
    """A request over plain HTTP, for `Model.preprocess` and `Model.postprocess`.

    Attributes:
        body: What was sent: of a form (multipart) its first file.
        content_type: What the client says of it, such as ``image/jpeg``; empty where it says nothing.
        query: What stands behind the question mark of the address.
        id: Of this request: the client's, or a new one; it is in the answer and in logs.
        max_image_bytes: Memory that an image may take while it is decoded.
        kept: What `Model.preprocess`, or `Model.encoded`, keeps for `Model.postprocess`.
    """

    body: bytes
    content_type: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    id: str = ""
    max_image_bytes: int = 1 << 28
    kept: dict[str, Any] = field(default_factory=dict)


class Model:
    """A model to serve: subclass it, and write `load` and `predict`.

    Each method runs where its work belongs. `load` and `predict` run where the engine is; one thread calls `predict`. `preprocess` and
    `postprocess` run in threads beside the network code, in other processes where there are several, on an object whose `load` was not
    called: what they need of it goes through `facts`. Requests of the Open Inference Protocol bring tensors, and go to `predict` only;
    or files (`file_input`), which go through `preprocess` too.

    Attributes:
        name: In addresses; None: the class's name in lower case.
        detects: Whether it takes images, and answers ``POST /v1/detect``.
        file_input: Name under which requests of the Open Inference Protocol may send files instead of tensors: as strings (``BYTES``), of
            which `preprocess` gets each as a request's body. None: they cannot.
        inputs: Name, dims and dtype of each input, for clients that send tensors; strings as ``TensorSpec("text", "BYTES", (-1,))``, whose
            arrays have bytes as their elements. `load` may set it; where it is empty, and ``self.engine`` is an engine, they are the
            engine's.
        outputs: The same of the outputs.
        decodes: Whether `predict` also takes files as `encoded` gives them, and its device decodes them. It gives ``{}`` for a file
            that the device cannot decode: `preprocess` gets the request then.
        stacked: Whether requests are joined along their first axis, the batch. If not, `predict` gets a list of arrays by name, one for
            each request, and gives such a list: for inputs of any size.
        independent_rows: Whether each row of the outputs follows from the same row of the inputs alone. If not, requests to a model that
            is ``stacked`` are computed alone.
        max_batch: Most rows of a run. None: as the server is told, else 32 where the batch is free, and requests alone where it is not.
        immediate: Whether `predict` takes microseconds. Where the model is in a process that speaks HTTP (``pytrt serve --local`` or
            ``--gpu 0``), it is then computed in the thread of the network code, which does nothing else meanwhile. To give it to another
            thread takes longer. `load` runs in another thread all the same.
        sizes: Batches that the engine is fastest with, or has alone: a batch is one of these, the last rows of it zeros where
            requests do not fill the smallest. Empty: any.
        facts: What `preprocess` and `postprocess` need of what was loaded, such as names of classes; `load` sets it. It travels
            as JSON.

    Example:
        >>> from pytrtplugins import SymbolicDim
        >>> class Double(Model):
        ...     inputs = (TensorDesc("x", (SymbolicDim("N"), 2)),)
        ...     outputs = (TensorDesc("y", (SymbolicDim("N"), 2)),)
        ...
        ...     def predict(self, batch):
        ...         return {"y": 2 * batch["x"]}
        >>> Double().predict({"x": np.ones((1, 2))})["y"].tolist()
        [[2.0, 2.0]]
    """

    name: ClassVar[str | None] = None
    detects: ClassVar[bool] = False
    file_input: ClassVar[str | None] = None
    inputs: Sequence[TensorDesc | TensorSpec] = ()
    outputs: Sequence[TensorDesc | TensorSpec] = ()
    decodes: bool = False
    stacked: bool = True
    independent_rows: bool = True
    max_batch: int | None = None
    immediate: bool = False
    sizes: Sequence[int] = ()

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}

    def load(self, device: str | None) -> None:
        """Make ready to predict: load an engine, read files. Called once, before the first request.

        Args:
            device: The engine's own name for a device; None: the default one.
        """

    def preprocess(self, request: Request) -> Arrays:
        """Turn what a client sent into inputs: by default an image into ``image``, (height, width, 3) uint8, RGB, upright.

        Where requests are joined, the first axis of each array is the batch.

        Raises:
            RequestError: the client sent something else; its status and message are the answer.
            ImageError: it is not an image: the client is told so.
        """
        return {"image": decode_image(request.body, exif=True, max_bytes=request.max_image_bytes)}

    def encoded(self, request: Request) -> Arrays | None:
        """Inputs with the encoded file, which the engine's device decodes; None if `preprocess` has to.

        It is called where the model `decodes` and the device should, and not in a thread: requests wait until it returns. So it looks at
        the head of the file, and no further.

        Raises:
            RequestError: the client sent something else; its status and message are the answer.
        """
        return None

    def predict(self, batch: Any) -> Any:
        """Compute the outputs of a batch.

        Args:
            batch: Arrays by name, whose first axis is the batch; or a list of arrays by name, if not ``stacked``. They are valid until the
                outputs are there: copy what is kept longer.

        Returns:
            Outputs by name, with as many rows as the inputs; or a list of them. Their arrays must not change afterwards: a later call of
            `predict` must not write into them. Or a `concurrent.futures.Future` of these, such as that of
            ``context.run_async``: the next batch is then handed over before this one is done.
        """
        raise NotImplementedError(f"{type(self).__name__} has no predict")

    def postprocess(self, outputs: Arrays, request: Request) -> Any:
        """Turn the outputs of a request into its answer: by default lists of numbers by the outputs' names.

        Returns:
            What JSON can say; or bytes with their type, such as ``(data, "image/png")``.
        """
        return {name: np.asarray(value).tolist() for name, value in outputs.items()}

    def quick(self, request: Request) -> bool:
        """Whether `postprocess` takes only microseconds: then it runs in no thread, and other requests wait for it.

        To give it to a thread takes longer than to make a little JSON. By default a thread runs it.
        """
        return False

    def usable(self) -> bool:
        """Whether the model can still compute, called after `predict` has raised: by default asks ``self.engine``, if it is an engine.

        An engine process with a model that is not usable, such as after an illegal address on a GPU, ends without an answer. Another
        one, or its replacement, computes its requests.
        """
        usable = getattr(getattr(self, "engine", None), "usable", None)
        return usable is None or bool(usable())

    def close(self) -> None:
        """Release what `load` took; called before the model is unloaded."""

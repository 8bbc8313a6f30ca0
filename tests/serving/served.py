"""Models for the tests of `pytrtplugins.serving`."""

from __future__ import annotations

import io
import threading
import time
from concurrent.futures import Future

import numpy as np

from pytrtplugins import DType, SymbolicDim, TensorDesc
from pytrtplugins.errors import RequestError
from pytrtplugins.serving import Model, TensorSpec
from pytrtplugins.utils.optional import require

N = SymbolicDim("N")


class Double(Model):
    """Doubles rows; negative ones are its poison."""

    inputs = (TensorDesc("x", (N, 2)),)
    outputs = (TensorDesc("y", (N, 2)),)

    def __init__(self):
        super().__init__()
        self.batches = []

    def load(self, device):
        self.facts = {"names": ["left", "right"], "device": device}

    def preprocess(self, request):
        if request.body == b"teapot":
            raise RequestError("no coffee", status=418)
        return {"x": np.array([[float(part) for part in request.body.split()]], np.float32)}

    def predict(self, batch):
        self.batches.append(batch["x"].copy())
        if (batch["x"] < 0).any():
            raise ValueError("poison")
        return {"y": 2 * batch["x"]}

    def postprocess(self, outputs, request):
        if request.query.get("as") == "bytes":
            return outputs["y"].tobytes(), "application/x-rows"
        if request.query.get("as") == "nothing":
            raise KeyError("answer")
        return {"rows": outputs["y"].tolist(), "names": self.facts["names"], "id": request.id}


class OtherRows(Double):
    """Gives as many rows as its first number says."""

    def predict(self, batch):
        return {"y": np.zeros((int(batch["x"][0, 0]), 2), np.float32)}


class Immediate(Double):
    """Computed where requests are read; says in which thread."""

    immediate = True

    def predict(self, batch):
        if (batch["x"] < 0).any():
            raise ValueError("poison")
        return {"y": np.full((len(batch["x"]), 2), threading.get_ident(), np.float64).astype(np.float32)}


class Triple(Double):
    """Another version of it."""

    def predict(self, batch):
        return {"y": 3 * batch["x"]}


class Loads(Double):
    """Counts how many are loaded at a time; class attributes, since there is one for each load."""

    loading = most = loads = closed = 0
    lock = threading.Lock()
    broken = False

    def load(self, device):
        if Loads.broken:
            raise OSError("no weights")
        with self.lock:
            Loads.loading += 1
            Loads.most = max(Loads.most, Loads.loading)
        time.sleep(0.01)
        with self.lock:
            Loads.loading -= 1
            Loads.loads += 1

    def close(self):
        with self.lock:
            Loads.closed += 1


class Later(Double):
    """The same, with futures."""

    def predict(self, batch):
        future: Future = Future()
        try:
            future.set_result(super().predict(batch))
        except ValueError as error:
            future.set_exception(error)
        return future


class Timed(Double):
    """The same; each method takes a time by the clock of a test: 1/32 s, 1/8 s, and 1/64 s."""

    clock = None

    def preprocess(self, request):
        Timed.clock.now += 1 / 32
        return super().preprocess(request)

    def predict(self, batch):
        Timed.clock.now += 1 / 8
        return super().predict(batch)

    def postprocess(self, outputs, request):
        Timed.clock.now += 1 / 64
        return super().postprocess(outputs, request)


class Files(Double):
    """The same, of files of numbers too."""

    file_input = "rows"


class Lost(Double):
    """Cannot compute any more once something has failed, as after an illegal address on a GPU."""

    def usable(self):
        return False


class Slow(Double):
    """Waits until it is let go."""

    entered, go = threading.Event(), threading.Event()

    def predict(self, batch):
        self.entered.set()
        self.go.wait(20)
        return super().predict(batch)


class Hangs(Double):
    """Never comes back from a row of -7."""

    def predict(self, batch):
        if (batch["x"] == -7).any():
            threading.Event().wait()
        return super().predict(batch)


class Gated(Double):
    """Preprocesses a request for each permit that a test gives."""

    permits = threading.Semaphore(0)
    entered = done = 0
    lock = threading.Lock()

    def preprocess(self, request):
        with self.lock:
            Gated.entered += 1
        self.permits.acquire()
        with self.lock:
            Gated.done += 1
        return super().preprocess(request)


class Noted(Double):
    """Says when it begins to preprocess."""

    began = threading.Event()

    def preprocess(self, request):
        self.began.set()
        return super().preprocess(request)


class Lists(Model):
    """Requests of any size, not joined: sums."""

    stacked = False
    max_batch = 8
    inputs = (TensorDesc("x", (SymbolicDim("any"),), DType.INT64),)
    outputs = (TensorDesc("sum", (), DType.INT64),)

    def predict(self, batch):
        return [{"sum": np.int64(item["x"].sum())} for item in batch]


class Shout(Model):
    """Strings, in capitals; bytes that are no text as they are."""

    inputs = (TensorSpec("text", "BYTES", (-1, 1)),)
    outputs = (TensorSpec("loud", "BYTES", (-1, 1)), TensorDesc("length", (N, 1), DType.INT64))

    def predict(self, batch):
        texts = batch["text"]
        return {"loud": np.char.upper(texts.astype(bytes)), "length": np.vectorize(len, otypes=[np.int64])(texts)}


class Broken(Model):
    """Cannot be loaded."""

    def load(self, device):
        raise OSError("no weights")


class Wrong(Double):
    """Gives what is asked of it, and that is wrong."""

    def predict(self, batch):
        kind = int(batch["x"][0, 0])
        return [None, {"y": batch["x"][:0]}, {"z": batch["x"]}, {"y": np.float32(1)}][kind]


class Painter(Model):
    """Answers an image with its negative, and other bytes with themselves."""

    stacked = False
    inputs = (TensorDesc("x", (SymbolicDim("bytes"),), DType.UINT8),)
    outputs = inputs

    def preprocess(self, request):
        request.kept["image"] = request.content_type.startswith("image/")
        pixels = (
            super().preprocess(request)["image"] if request.kept["image"] else np.frombuffer(request.body, np.uint8)
        )
        request.kept["shape"] = pixels.shape
        return {"x": pixels.ravel()}

    def predict(self, batch):
        return [{"x": 255 - item["x"]} for item in batch]

    def postprocess(self, outputs, request):
        if not request.kept["image"]:
            return outputs["x"].tobytes(), "application/x-negative"
        file = io.BytesIO()
        require("PIL.Image", extra="vision").fromarray(outputs["x"].reshape(request.kept["shape"])).save(file, "PNG")
        return file.getvalue(), "image/png"


class Finder(Model):
    """Finds three things on an image; how big they are depends on its first pixel."""

    detects, stacked = True, False
    inputs = (TensorDesc("image", (SymbolicDim("height"), SymbolicDim("width"), 3), DType.UINT8),)
    outputs = (
        TensorDesc("boxes", (3, 4), DType.FLOAT32),
        TensorDesc("scores", (3,), DType.FLOAT32),
        TensorDesc("classes", (3,), DType.INT64),
    )

    def preprocess(self, request):
        arrays = super().preprocess(request)
        request.kept["shape"] = arrays["image"].shape
        return arrays

    def predict(self, batch):
        return [self._found(each["image"]) for each in batch]

    def postprocess(self, outputs, request):
        height, width, _ = request.kept["shape"]
        rows = zip(outputs["classes"].tolist(), outputs["scores"].tolist(), outputs["boxes"].tolist(), strict=True)
        found = [{"label": f"thing {k}", "class_id": k, "score": score, "box": box} for k, score, box in rows]
        return {"width": width, "height": height, "detections": found}

    def _found(self, image):
        size = 4 + image[0, 0].sum() / 64
        boxes = np.array([[4, 4, 4 + size, 4 + size], [8, 8, 20.5, 20.5], [1, 1, 30, 30]], np.float32)
        return {"boxes": boxes, "scores": np.array([0.9, 0.6, 0.3], np.float32), "classes": np.array([0, 1, 2])}

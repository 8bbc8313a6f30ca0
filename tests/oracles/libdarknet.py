"""Debian's libdarknet through ctypes: the oracle for darknet networks.

A library that was built for a GPU computes there; the headers of CUDA are then looked for in `CUDA_HOME`, or /usr/local/cuda.
Struct layouts are never guessed: a small C shim is compiled against the library's own darknet.h and hides every struct.
`DARKNET_LIBRARY` names another library; its darknet.h is looked for beside it, or in `DARKNET_INCLUDE`.

Darknet ends the process on errors, so paths are checked first.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

DEFAULT_LIBRARY = "/usr/lib/darknet/libdarknet.so"
DATA = Path("/usr/share/darknet")

FloatArray = npt.NDArray[np.float32]

_SHIM = Path(__file__).with_name("darknet_shim.c").read_text()


class DarknetUnavailableError(RuntimeError):
    """The library, its header or a C compiler is missing; the message says which."""


@dataclass(frozen=True)
class DarknetDetection:
    """One box as `darknet detect` would print it; ``xyxy`` in pixels of the image, not clipped to it."""

    class_id: int
    score: float
    xyxy: tuple[float, float, float, float]


class LibDarknet:
    """The library.

    Args:
        library: Path of libdarknet.so; by default `DARKNET_LIBRARY`, then Debian's.
        prints_to: A descriptor for what darknet prints; by default it goes nowhere.

    Attributes:
        on_gpu: Whether it was built for a GPU.

    Raises:
        DarknetUnavailableError: it cannot be used on this machine.
    """

    def __init__(self, library: str | Path | None = None, prints_to: int | None = None) -> None:
        self.path = Path(library or os.environ.get("DARKNET_LIBRARY", DEFAULT_LIBRARY)).resolve()
        self._shim = _declare(ctypes.CDLL(str(_compile(self.path))))
        self.on_gpu = bool(_options(self.path))
        self._libc, self._prints_to = ctypes.CDLL(None), prints_to

    def load(self, cfg: str | Path, weights: str | Path | None = None, batch: int = 1) -> DarknetNetwork:
        """Load a network for a batch, at most the cfg's own; without weights darknet draws random ones."""
        for path in (cfg, *([] if weights is None else [weights])):
            if not Path(path).is_file():
                raise FileNotFoundError(path)
        with self.quiet():
            pointer = self._shim.shim_load(os.fsencode(cfg), None if weights is None else os.fsencode(weights), batch)
        if not pointer:
            raise ValueError(
                f"{cfg} is not for a batch of {batch}; write batch={batch} and subdivisions=1 into its [net]"
            )
        return DarknetNetwork(self, pointer, batch)

    def load_image(self, path: str | Path) -> FloatArray:
        """Darknet's own decoding of an image: (3, H, W), 0..1, RGB."""
        if not Path(path).is_file():
            raise FileNotFoundError(path)
        w, h, c = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        with self.quiet():
            data = self._shim.shim_load_image(os.fsencode(path), w, h, c)
        return self._taken(data, (c.value, h.value, w.value))

    def letterbox_image(self, image: FloatArray, width: int, height: int) -> FloatArray:
        """Darknet's letterbox of a (C, H, W) image into (C, height, width)."""
        image = np.ascontiguousarray(image, np.float32)
        c, h, w = image.shape
        return self._taken(self._shim.shim_letterbox(_pointer(image), w, h, c, width, height), (c, height, width))

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Keep what darknet prints from standard output and error."""
        self._libc.fflush(None)
        saved = [os.dup(descriptor) for descriptor in (1, 2)]
        target = os.open(os.devnull, os.O_WRONLY) if self._prints_to is None else os.dup(self._prints_to)
        try:
            for descriptor in (1, 2):
                os.dup2(target, descriptor)
            yield
        finally:
            self._libc.fflush(None)
            for descriptor, copy in zip((1, 2), saved, strict=True):
                os.dup2(copy, descriptor)
                os.close(copy)
            os.close(target)

    def _taken(self, data: Any, shape: tuple[int, ...]) -> FloatArray:
        copy = np.ctypeslib.as_array(data, shape).copy()
        self._shim.shim_free_floats(data)
        return copy


class DarknetNetwork:
    """A network inside libdarknet; use it as a context manager, or `close` it."""

    def __init__(self, library: LibDarknet, pointer: int, batch: int = 1) -> None:
        self._library, self._shim, self._net, self.batch = library, library._shim, pointer, batch
        chw = (ctypes.c_int * 3)()
        self._shim.shim_input(self._net, chw)
        self.input_dims: tuple[int, int, int] = (chw[0], chw[1], chw[2])

    def __enter__(self) -> DarknetNetwork:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return int(self._shim.shim_layers(self._net))

    @property
    def input_size(self) -> tuple[int, int]:
        """Width and height of the input."""
        return self.input_dims[2], self.input_dims[1]

    def close(self) -> None:
        """Free the network; a second call does nothing."""
        if self._net:
            self._shim.shim_free(self._net)
            self._net = 0

    def predict(self, x: FloatArray, quiet: bool = True) -> FloatArray:
        """Run one (C, H, W) input, or a (N, C, H, W) batch; returns the last layer's output, flat.

        ``quiet=False`` leaves out what keeps darknet from printing, which a timing would count.
        """
        x = np.ascontiguousarray(x, np.float32)
        dims = (self.batch, *self.input_dims)
        if x.shape != dims and (self.batch > 1 or x.shape != self.input_dims):
            raise ValueError(f"expected an input of {dims if self.batch > 1 else self.input_dims}, found {x.shape}")
        with self._library.quiet() if quiet else contextlib.nullcontext():
            output = self._shim.shim_predict(self._net, _pointer(x))
        return np.ctypeslib.as_array(output, (self.batch * int(self._shim.shim_outputs(self._net)),)).copy()

    def layer_shape(self, index: int) -> tuple[int, ...]:
        """(C, H, W) of a layer's output, or (outputs,) where darknet keeps no map."""
        c, h, w, outputs, _ = self._layer(index)
        return (c, h, w) if c * h * w == outputs else (outputs,)

    def layer_output(self, index: int) -> FloatArray:
        """A copy of a layer's output after `predict`, flat."""
        outputs = self.batch * self._layer(index)[3]
        return np.ctypeslib.as_array(self._shim.shim_layer_output(self._net, index), (outputs,)).copy()

    def detections(
        self, image: str | Path | FloatArray, threshold: float = 0.5, hier: float = 0.5, nms: float = 0.45
    ) -> list[DarknetDetection]:
        """What `darknet detect` finds in an image, or in a (3, H, W) image of 0..1; best first."""
        pixels = np.ascontiguousarray(
            image if isinstance(image, np.ndarray) else self._library.load_image(image), np.float32
        )
        c, h, w = pixels.shape
        most = 100_000
        rows = np.zeros((most, 6), np.float32)
        with self._library.quiet():
            found = self._shim.shim_detect(
                self._net, _pointer(pixels), w, h, c, threshold, hier, nms, _pointer(rows), most
            )
        if found > most:
            raise ValueError(f"{found} detections; raise the threshold")
        boxes = [DarknetDetection(int(row[0]), float(row[1]), tuple(map(float, row[2:]))) for row in rows[:found]]
        return sorted(boxes, key=lambda box: -box.score)

    def image_rows(
        self, image: npt.NDArray[np.uint8], threshold: float, nms: float, hier: float = 0.5, most: int = 10_000
    ) -> FloatArray:
        """The same from the bytes of a (H, W, 3) image, with no more than darknet's own work: class, score, corners in pixels.

        What darknet prints is printed. Of more than ``most`` boxes the first.
        """
        h, w, _ = image.shape
        rows = np.empty((most, 6), np.float32)
        found = self._shim.shim_detect_image(
            self._net, image.ctypes.data, w, h, threshold, hier, nms, _pointer(rows), most
        )
        return rows[: min(found, most)]

    def _layer(self, index: int) -> tuple[int, ...]:
        if not 0 <= index < len(self):
            raise IndexError(f"layer {index} of {len(self)}")
        facts = (ctypes.c_int * 5)()
        self._shim.shim_layer(self._net, index, facts)
        return tuple(facts)


def unavailable_reason() -> str:
    """Why the oracle cannot be used here; empty when it can."""
    try:
        LibDarknet()
    except DarknetUnavailableError as error:
        return str(error)
    return ""


def _compile(library: Path) -> Path:
    """Compile the shim against the library's header; the result is kept in the temporary directory."""
    if not library.is_file():
        raise DarknetUnavailableError(f"{library} is missing (apt install darknet, or set DARKNET_LIBRARY)")
    folders = [os.environ.get("DARKNET_INCLUDE"), library.parent / "include", library.parent.parent / "include"]
    include = next((Path(folder) for folder in folders if folder and (Path(folder) / "darknet.h").is_file()), None)
    if include is None:
        raise DarknetUnavailableError(f"darknet.h is not beside {library}; set DARKNET_INCLUDE to its folder")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise DarknetUnavailableError("no C compiler (apt install gcc)")
    options = _options(library)
    text = "\0".join([_SHIM, str(library), (include / "darknet.h").read_text(), *options])
    key = hashlib.sha256(text.encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"darknet-shim-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise DarknetUnavailableError(f"{folder} belongs to another user")
    shim = folder / f"shim-{key}.so"
    if not shim.exists():
        with tempfile.TemporaryDirectory(dir=folder) as work:
            source, built = Path(work) / "shim.c", Path(work) / "shim.so"
            source.write_text(_SHIM)
            command = [compiler, "-shared", "-fPIC", "-O2", f"-I{include}", *options, str(source), str(library)]
            command += [f"-Wl,-rpath,{library.parent}", "-o", str(built)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise DarknetUnavailableError(
                    f"the shim does not compile against {include}/darknet.h: {done.stderr[-500:]}"
                )
            built.replace(shim)
    return shim


def _options(library: Path) -> list[str]:
    """What the library was compiled with, which decides how its structs lie."""
    data = library.read_bytes()
    if b"\0cuda_make_array\0" not in data:
        return []
    cuda = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include"
    return ["-DGPU", *(["-DCUDNN"] if b"\0cudnn_handle\0" in data else []), f"-I{cuda}"]


def _declare(shim: Any) -> Any:
    floats, number, text, net = ctypes.POINTER(ctypes.c_float), ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p
    into = ctypes.POINTER(ctypes.c_int)
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "shim_load": (net, [text, text, number]),
        "shim_free": (None, [net]),
        "shim_input": (None, [net, into]),
        "shim_layers": (number, [net]),
        "shim_outputs": (number, [net]),
        "shim_layer": (None, [net, number, into]),
        "shim_layer_output": (floats, [net, number]),
        "shim_predict": (floats, [net, floats]),
        "shim_load_image": (floats, [text, into, into, into]),
        "shim_letterbox": (floats, [floats, *[number] * 5]),
        "shim_free_floats": (None, [floats]),
        "shim_detect": (number, [net, floats, *[number] * 3, *[ctypes.c_float] * 3, floats, number]),
        "shim_detect_image": (number, [net, ctypes.c_void_p, *[number] * 2, *[ctypes.c_float] * 3, floats, number]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(shim, name)
        function.restype, function.argtypes = result, arguments
    return shim


def _pointer(array: FloatArray) -> Any:
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_float))

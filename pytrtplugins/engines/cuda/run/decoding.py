"""JPEG files decoded on the GPU, by NVIDIA's nvImageCodec."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....utils.optional import require
from ....vision.device_images import DeviceImage
from ....vision.image import Image
from ..device.device import Device

__all__ = ["GpuImage", "JpegDecoder"]


class _Memory:
    """Images of nvImageCodec that wait to be used again, and their stream, on which their memory is freed: before it ends."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.free = stream, deque[Any]()

    def __del__(self) -> None:
        self.free.clear()


class GpuImage(DeviceImage):
    """An image that nvImageCodec holds. Its memory is used again for another when nobody holds this object any more.

    Args:
        held: nvImageCodec's image.
        memory: Where it goes then.
        device: Where its memory is.
    """

    def __init__(self, held: Any, memory: _Memory, device: Device) -> None:
        self._held, self._memory, self._device = held, memory, device
        facts = held.__cuda_array_interface__
        self.shape, self._address = facts["shape"], facts["data"][0]
        self._pitch = (facts.get("strides") or (3 * self.shape[1],))[0]

    def copy_to(self, memory: Any, stream: Any) -> None:
        """Queue a copy, row by row where rows are padded."""
        self._device.copy_rows(self._address, self._pitch, memory, 3 * self.shape[1], self.shape[0], stream)

    def download(self) -> Image:
        """A copy on the host."""
        return np.array(np.asarray(self._held.cpu()))

    def __del__(self) -> None:
        self._memory.free.append(self.__dict__.pop("_held"))


class JpegDecoder:
    """nvImageCodec on a GPU: its JPEG engines, then, for what these refuse, all of its decoders. One thread at a time may call it.

    A decoder of all kinds would share each batch between the engines and threads of the CPU, whatever this costs there. EXIF's
    orientation is undone. Pixels may differ from the host's by a few steps, and more at sharp edges of colour, where chroma is interpolated
    otherwise.

    Args:
        device: The GPU.
        kinds: Names of nvImageCodec's ``BackendKind`` for each decoder, in the order in which they get the files that are left. None: all
            kinds. A decoder is made when the first file needs it.
        options: Of nvImageCodec's ``Decoder``.

    Raises:
        MissingExtraError: nvImageCodec is not installed.
    """

    def __init__(
        self, device: Device, kinds: Sequence[Sequence[str]] = (("HW_GPU_ONLY",), ()), options: str | None = None
    ) -> None:
        os.environ.setdefault("PYNVIMGCODEC_VERBOSITY", "0")  # what it cannot decode is told by our own errors
        self._codec = require(
            "nvidia.nvimgcodec", extra="nvjpeg", package="nvidia-nvimgcodec-cu13", feature='decode="gpu"'
        )
        self._params = self._codec.DecodeParams(apply_exif_orientation=True, color_spec=self._codec.ColorSpec.SRGB)
        self._device, self._settings = device, {} if options is None else {"options": options}
        self._kinds, self._decoders = kinds, list[Any]()
        with device.current():
            self._memory = _Memory(device.xp.cuda.Stream(non_blocking=True))

    def decode(self, files: Sequence[bytes]) -> list[DeviceImage | None]:
        """The image of each file, complete when this returns; None where it cannot be decoded."""
        memory, found, left = self._memory, [None] * len(files), list(range(len(files)))
        with self._device.current():
            for number in range(len(self._kinds)):
                streams = [self._codec.CodeStream(files[index]) for index in left]
                used = [memory.free.popleft() if memory.free else None for _ in left]
                images = self._decoder(number).decode(
                    streams, images=used, params=self._params, cuda_stream=memory.stream.ptr
                )
                for index, image in zip(left, images, strict=True):
                    found[index] = image
                left = [index for index in left if found[index] is None]
                if not left:
                    break
            memory.stream.synchronize()
        return [None if image is None else GpuImage(image, memory, self._device) for image in found]

    def _decoder(self, number: int) -> Any:
        if number == len(self._decoders):
            codec = self._codec
            backends = [codec.Backend(getattr(codec.BackendKind, kind)) for kind in self._kinds[number]]
            chosen = {"backends": backends} if backends else {}
            self._decoders.append(codec.Decoder(device_id=self._device.number, **chosen, **self._settings))
        return self._decoders[number]

"""Write results: annotated images and videos, labels, crops, JSON; and show them in a window."""

from __future__ import annotations

import json as json_module
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..errors import UsageError
from ..utils.atomic import check_target, remove_abandoned, write_atomic
from ..utils.listing import count_text
from ..utils.prefetch import BackgroundCalls, threads_for_files
from .detections import Detections
from .draw import draw
from .finding import Source
from .image import save_image
from .sources import Frame, Sources
from .targets import free_name, plan_targets
from .video import VideoFile
from .window import Window

__all__ = ["Outputs"]


class _Writer(Protocol):
    """A writer of one kind of output."""

    def write(self, frame: Frame, detections: Detections) -> None: ...

    def close(self) -> None: ...

    def saved(self) -> list[str]: ...


class Outputs:
    """Writer of the detections on frames. Close it, or use it in a ``with`` block: then files are complete.

    Images and videos are drawn and encoded in threads, while the next frames are looked at.

    Every name is checked when the object is made, before anything is computed. What was written before an error stays.

    Args:
        sources: Whose frames will come.
        output: Annotated images and videos: a file, or a folder; see `pytrtplugins.vision.targets.plan_targets`.
        json: A list of ``{"file", "detections"}``, boxes in pixels as left, top, right, bottom.
        coco: COCO's results: a list of ``{"image_id", "category_id", "bbox", "score"}``, and ``"file_name"``. The category is the
            class's number, from 0. The image's id is the number in its name where all names are numbers, as COCO's are; else
            the number of the frame, from 0.
        labels: A folder for a text file of each image, or frame, in the YOLO form: ``class x y width height``, centre and size in
            0..1 of the image; tracks add their number as a sixth column.
        crops: A folder for the inside of each box: ``LABEL/NAME-NUMBER.jpg``.
        show: Show each frame in a window. ``stopped`` is True once the user has ended it with q, Esc or by closing it.

    Raises:
        UsageError: a name is none that can be written, or there is no window to show anything in.

    Example:
        >>> with Outputs(sources, output="found/") as outputs:      # doctest: +SKIP
        ...     for frame, found in detector.stream(sources):
        ...         outputs.write(frame, found)
        >>> print("saved", *outputs.saved())                        # doctest: +SKIP
    """

    def __init__(
        self,
        sources: Sources,
        *,
        output: str | Path | None = None,
        json: str | Path | None = None,
        coco: str | Path | None = None,
        labels: str | Path | None = None,
        crops: str | Path | None = None,
        show: bool = False,
    ) -> None:
        source_list = sources.found
        self._window = Window(wait=all(source.kind == "image" for source in source_list)) if show else None
        self._writers: list[_Writer] = []
        if output is not None:
            self._writers.append(_PlotWriter(plan_targets(output, source_list)))
        if labels is not None:
            self._writers.append(_LabelWriter(_make_folder(labels, "labels")))
        if crops is not None:
            self._writers.append(_CropWriter(_make_folder(crops, "crops")))
        if json is not None:
            self._writers.append(_JsonWriter(check_target(json), _file_entries))
        if coco is not None:
            self._writers.append(_JsonWriter(check_target(coco), _coco_entries(source_list)))

    @property
    def stopped(self) -> bool:
        """Whether the user has closed the window."""
        return self._window is not None and self._window.stopped

    def write(self, frame: Frame, found: Detections) -> None:
        """Write the detections on a frame."""
        for writer in self._writers:
            writer.write(frame, found)
        if self._window is not None:
            self._window.show(draw(frame.image, found), frame.name)

    def saved(self) -> list[str]:
        """Return texts of the files written, and of folders, such as ``found/ (12 files .jpg)``."""
        return [line for writer in self._writers for line in writer.saved()]

    def close(self) -> None:
        """Complete all files."""
        with ExitStack() as stack:
            if self._window is not None:
                stack.callback(self._window.close)
            for writer in reversed(self._writers):
                stack.callback(writer.close)

    def __enter__(self) -> Outputs:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class _PlotWriter:
    """Writer of annotated images, drawn and encoded on all cores, and of videos, in one thread."""

    def __init__(self, targets: list[Path]) -> None:
        self.targets, self.written = targets, dict[Path, None]()
        self._images, self._frames = BackgroundCalls(threads_for_files()), BackgroundCalls(1)
        self._video: VideoFile | None = None
        for folder in {path.parent for path in targets}:
            remove_abandoned(folder)

    def write(self, frame: Frame, detections: Detections) -> None:
        path = self.targets[frame.item]
        if frame.number is None:
            self._images.call(_save_plot, frame, detections, path)
        else:
            self._frames.call(self._add_video_frame, frame, detections, path)
        self.written[path] = None

    def close(self) -> None:
        with ExitStack() as stack:
            stack.callback(self._end_video)
            stack.callback(self._frames.close)
            stack.callback(self._images.close)

    def _add_video_frame(self, frame: Frame, detections: Detections, path: Path) -> None:
        if self._video is None or self._video.path != path:
            self._end_video()
            self._video = VideoFile(path, (frame.image.shape[1], frame.image.shape[0]), frame.rate)
        self._video.write(draw(frame.image, detections))

    def _end_video(self) -> None:
        video, self._video = self._video, None
        if video is not None:
            video.close()

    def saved(self) -> list[str]:
        return _file_lines(list(self.written))


class _LabelWriter:
    """Writer of text files in the YOLO format."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.written = folder, dict[Path, None]()
        remove_abandoned(folder)

    def write(self, frame: Frame, detections: Detections) -> None:
        height, width = frame.image.shape[:2]
        lines = []
        for item in detections:
            left, top, right, bottom = item.xyxy
            box = (
                (left + right) / 2 / width,
                (top + bottom) / 2 / height,
                (right - left) / width,
                (bottom - top) / height,
            )
            lines.append(
                " ".join([str(item.class_id), *(f"{value:.6f}" for value in box), *_track_column(item.track_id)])
            )
        path = free_name(self.folder / f"{frame.stem}.txt", self.written)
        write_atomic(path, "".join(f"{line}\n" for line in lines).encode(), durable=False)
        self.written[path] = None

    def close(self) -> None:
        """Each file is complete."""

    def saved(self) -> list[str]:
        return _file_lines(list(self.written))


class _CropWriter:
    """Writer of the crop of each box, in a folder for each class."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.written = folder, dict[Path, None]()
        for class_folder in filter(Path.is_dir, folder.iterdir()):
            remove_abandoned(class_folder)

    def write(self, frame: Frame, detections: Detections) -> None:
        height, width = frame.image.shape[:2]
        counts = Counter[str]()
        for item in detections:
            left, top = (int(np.floor(side)) for side in item.xyxy[:2])
            right, bottom = (int(np.ceil(side)) for side in item.xyxy[2:])
            crop = frame.image[max(0, top) : min(height, bottom), max(0, left) : min(width, right)]
            if not crop.size:
                continue
            counts[item.label] += 1
            folder = self.folder / (item.label.replace("/", "-").replace("\\", "-").strip(". ") or "unnamed")
            folder.mkdir(exist_ok=True)
            path = free_name(folder / f"{frame.stem}-{counts[item.label]}.jpg", self.written)
            save_image(crop, path)
            self.written[path] = None

    def close(self) -> None:
        """Each file is complete."""

    def saved(self) -> list[str]:
        count = len(self.written)
        return [f"{self.folder}/ ({count_text(count, 'crop')})"]


class _JsonWriter:
    """Writer of a JSON list, written when it is closed."""

    def __init__(self, path: Path, entries: Callable[[Frame, Detections], list[dict[str, Any]]]) -> None:
        self.path, self._entries, self._list = path, entries, list[dict[str, Any]]()

    def write(self, frame: Frame, detections: Detections) -> None:
        self._list += self._entries(frame, detections)

    def close(self) -> None:
        write_atomic(self.path, (json_module.dumps(self._list, indent=2) + "\n").encode())

    def saved(self) -> list[str]:
        return [f"{self.path}"]


def _save_plot(frame: Frame, detections: Detections, path: Path) -> None:
    save_image(draw(frame.image, detections), path)


def _file_entries(frame: Frame, detections: Detections) -> list[dict[str, Any]]:
    return [{"file": frame.name, "detections": [item.to_dict() for item in detections]}]


def _coco_entries(sources: tuple[Source, ...]) -> Callable[[Frame, Detections], list[dict[str, Any]]]:
    stems = [source.stem for source in sources if source.kind == "image"]
    are_numbers = len(stems) == len(sources) and all(stem.isdecimal() for stem in stems)
    use_numbers_in_names = are_numbers and len({int(stem) for stem in stems}) == len(stems)

    def entries(frame: Frame, detections: Detections) -> list[dict[str, Any]]:
        coco_entries = detections.to_coco(int(frame.source.stem) if use_numbers_in_names else frame.index)
        return [{**entry, "file_name": frame.name} for entry in coco_entries]

    return entries


def _track_column(track_id: int | None) -> list[str]:
    return [] if track_id is None else [str(track_id)]


def _make_folder(path: str | Path, what: str) -> Path:
    path = Path(path)
    if path.exists() and not path.is_dir():
        raise UsageError(f"{what} {str(path)!r}: expected a folder.", path=path)
    path.mkdir(parents=True, exist_ok=True)
    return path


def _file_lines(paths: list[Path]) -> list[str]:
    """Return a line for each file; if there are many, a line for each folder and suffix."""
    if len(paths) <= 3:
        return [f"{path}" for path in paths]
    groups: dict[tuple[Path, str], list[Path]] = {}
    for path in paths:
        groups.setdefault((path.parent, path.suffix), []).append(path)
    return [
        f"{folder}/ ({len(group):,} files {suffix})" if len(group) > 1 else str(group[0])
        for (folder, suffix), group in groups.items()
    ]

"""One Flask process with PyTorch in FP32, which answers /v1/detect: what many services begin as. ``python -m ... PORT``."""

from __future__ import annotations

import logging
import sys
import threading

import flask
import numpy as np
import torch
from werkzeug.serving import WSGIRequestHandler

from darknet2caffe import read_network, to_onnx
from pytrtplugins.models.heads import read_heads, read_input_size
from pytrtplugins.passes import prepare
from pytrtplugins.vision import decode_image, letterbox, nms

from ..gpu.torch_net import TorchNet
from .photos import SHIPPED

_SCORE, _IOU = 0.5, 0.45


def main(port: int) -> None:
    """Serve."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = to_onnx(read_network(SHIPPED.with_suffix(".cfg"), SHIPPED.with_suffix(".weights")))
    names = SHIPPED.with_suffix(".names").read_text().split()
    head, size = read_heads(model)[0], read_input_size(model)
    assert size is not None
    net, lock = TorchNet(prepare(model)).eval().to(device), threading.Lock()
    app = flask.Flask("photos")

    @app.post("/v1/detect")
    def detect() -> flask.Response:
        image = decode_image(flask.request.get_data(), exif=True)
        fitted = letterbox(image, size)
        with lock, torch.inference_mode():
            values = net(torch.from_numpy(fitted.data[None]).to(device)).cpu().numpy()
        boxes, scores = head.decode(values, size)
        scores = nms(boxes[0], np.where(scores[0] > _SCORE, scores[0], np.float32(0)), _IOU)
        rows, classes = scores.nonzero()
        corners = fitted.placement.to_image(boxes[0][rows])
        found = [
            {"label": names[k], "class_id": k, "score": float(scores[row, k]), "box": corner}
            for row, k, corner in zip(rows.tolist(), classes.tolist(), corners.tolist(), strict=True)
        ]
        return flask.jsonify({"width": image.shape[1], "height": image.shape[0], "detections": found})

    WSGIRequestHandler.protocol_version = "HTTP/1.1"
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    app.run(port=port)


if __name__ == "__main__":
    main(int(sys.argv[1]))

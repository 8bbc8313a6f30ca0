"""A classifier of images, behind Flask: python flask_before.py."""

import cv2
import numpy as np
import onnxruntime
from flask import Flask, abort, jsonify, request

LABELS = ["cat", "dog", "horse"]


def read_image(file):
    """Decode and scale an image; None if it is none."""
    image = cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_COLOR)
    if image is None:
        return None
    image = cv2.cvtColor(cv2.resize(image, (32, 32)), cv2.COLOR_BGR2RGB)
    return image.transpose(2, 0, 1)[None].astype(np.float32) / 255


def best_class(scores):
    """Name the best class."""
    best = int(scores.argmax())
    return {"label": LABELS[best], "score": float(scores[best])}


app = Flask(__name__)
session = onnxruntime.InferenceSession("classifier.onnx")


@app.post("/predict")
def predict():
    """Answer with the best class of an image."""
    data = read_image(request.get_data())
    if data is None:
        abort(415, "send an image")
    scores = session.run(["scores"], {"data": data})[0]
    return jsonify(best_class(scores[0]))


if __name__ == "__main__":
    app.run(port=8000)

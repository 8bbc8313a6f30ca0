"""A classifier of images, as pytrt serves it: pytrt serve samples/serving/classifier.py:Classifier."""

import cv2
import numpy as np

import pytrtplugins as ptp
from pytrtplugins.errors import RequestError
from pytrtplugins.serving import Model

LABELS = ["cat", "dog", "horse"]


class Classifier(Model):
    """Takes an image, and answers with the best class."""

    def load(self, device):
        """Build the model once, where the engine is."""
        self.engine = ptp.build("classifier.onnx", engine="onnxruntime")
        self.context = self.engine.create_context()

    def preprocess(self, request):
        """Decode and scale the image, in a thread of its own."""
        image = cv2.imdecode(np.frombuffer(request.body, np.uint8), cv2.IMREAD_COLOR)
        if image is None:
            raise RequestError("send an image", status=415)
        image = cv2.cvtColor(cv2.resize(image, (32, 32)), cv2.COLOR_BGR2RGB)
        return {"data": image.transpose(2, 0, 1)[None].astype(np.float32) / 255}

    def predict(self, batch):
        """Compute the scores of all requests that wait, together."""
        return self.context.run(batch)

    def postprocess(self, outputs, request):
        """Name the best class of one request."""
        scores = outputs["scores"][0]
        best = int(scores.argmax())
        return {"label": LABELS[best], "score": float(scores[best])}

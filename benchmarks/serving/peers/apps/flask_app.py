"""Flask with its own server, in threads; connections are kept."""

import logging
import sys

from common import predict
from flask import Flask, request
from werkzeug.serving import WSGIRequestHandler

app = Flask(__name__)


@app.post("/infer")
def infer():
    """Answer the body's sum."""
    return predict(request.get_data())


if __name__ == "__main__":
    WSGIRequestHandler.protocol_version = "HTTP/1.1"
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    app.run(port=int(sys.argv[1]))

"""FastAPI."""

from common import predict
from fastapi import FastAPI, Request, Response

app = FastAPI()


@app.post("/infer")
async def infer(request: Request):
    """Answer the body's sum."""
    return Response(predict(await request.body()))

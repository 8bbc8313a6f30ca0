# pytrt with engine cuda. CUDA's libraries are packages of pip; the driver comes from the host, through NVIDIA's container toolkit:
#   docker build -f .ci/docker/cuda.Dockerfile -t pytrtplugins:cuda .
#   docker run --rm --gpus all -v "$PWD:/work" pytrtplugins:cuda run --engine cuda model.onnx dog.jpg
FROM python:3.12-slim-bookworm AS build
WORKDIR /source
RUN apt-get update \
    && apt-get install --no-install-recommends -y g++=4:12.* \
    && rm -rf /var/lib/apt/lists/* \
    && pip install --no-cache-dir "setuptools>=77" "pybind11>=2.13" "cmake>=3.18"
COPY . .
RUN python .ci/wheels.py --native --out /wheels

FROM python:3.12-slim-bookworm
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility,video
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir "$(echo /wheels/*.whl)[cublaslt,vision,cli]" \
    && useradd --create-home --uid 1000 pytrt
USER 1000
WORKDIR /work
ENTRYPOINT ["pytrt"]
CMD ["--help"]

# pytrt with engines cpu, onnxruntime and reference:
#   docker build -f .ci/docker/cpu.Dockerfile -t pytrtplugins:cpu .
#   docker run --rm -v "$PWD:/work" pytrtplugins:cpu run model.onnx dog.jpg
FROM python:3.12-slim-bookworm AS build
WORKDIR /source
RUN apt-get update \
    && apt-get install --no-install-recommends -y g++=4:12.* \
    && rm -rf /var/lib/apt/lists/* \
    && pip install --no-cache-dir "setuptools>=77" "pybind11>=2.13" "cmake>=3.18"
COPY . .
RUN python .ci/wheels.py --native --out /wheels

FROM python:3.12-slim-bookworm
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir "$(echo /wheels/*.whl)[cpu,vision,cli]" \
    && useradd --create-home --uid 1000 pytrt
USER 1000
WORKDIR /work
ENTRYPOINT ["pytrt"]
CMD ["--help"]

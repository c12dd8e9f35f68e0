# syntax=docker/dockerfile:1
# One image for three kinds of machine, chosen by the base; scripts/image_setup.py looks at it and does the rest.
#   CPU          docker build -t ondevice .
#   desktop GPU  docker build -t ondevice --build-arg BASE=pytorch/pytorch:2.10.0-cuda12.8-cudnn9-runtime .
#   Jetson       docker build -t ondevice --build-arg BASE=dustynv/pytorch:2.7-r36.4.0-cu128-24.04 .
# A base that brings torch keeps it, and its Triton; docs/desktop-gpu.md and docs/jetson.md say which bases will do.
# On one without, TORCH_ARGS names the index of the build that is wanted; PIP_ARGS are for every installation.
# Another model of `ondevice models list`: --build-arg MODEL=qwen2.5-coder-0.5b; MODEL= puts none into the image.
#
# compose.yaml runs it. By hand, for this machine alone; the app asks for the password of ONDEVICE_AUTH:
#   docker run --rm -p 127.0.0.1:7860:7860 -e ONDEVICE_AUTH=me:a-long-password \
#     --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges ondevice
# On a GPU add `--gpus all`, on a Jetson `--runtime nvidia`.
ARG BASE=python:3.11-slim-bookworm
# hadolint ignore=DL3006
FROM ${BASE}

ARG PIP_ARGS=""
ARG TORCH_ARGS=""
ENV PYTHONSAFEPATH=1 \
    PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    HF_HUB_DISABLE_TELEMETRY=1 \
    GRADIO_ANALYTICS_ENABLED=False

# The packages first: they change less often than the code.
WORKDIR /opt/ondevice/build
COPY scripts/image_setup.py scripts/
COPY constraints.txt requirements-image.lock ./
RUN python3 scripts/image_setup.py packages
COPY pyproject.toml README.md LICENSE ./
COPY ondevice ondevice
COPY kernels kernels
COPY assets assets
RUN python3 scripts/image_setup.py project && rm -rf build ondevice.egg-info
ENV PATH=/opt/ondevice/venv/bin:${PATH}

# The model goes into the image, so that a container never needs the network; it is only read there.
ARG MODEL=qwen2.5-coder-1.5b
ENV ONDEVICE_MODEL=${MODEL} \
    ONDEVICE_MODELS=/opt/ondevice/models
RUN mkdir -p "${ONDEVICE_MODELS}" \
    && if [ -n "${MODEL}" ]; then ONDEVICE_CACHE="${ONDEVICE_MODELS}" HF_HUB_CACHE="${ONDEVICE_MODELS}/hub" \
        ondevice models fetch "${MODEL}"; fi \
    && chmod -R a+rX "${ONDEVICE_MODELS}"

# What is written, whatever else is read-only: documents and pots under /data; under /cache models that are fetched later,
# compiled kernels, and settings of other packages.
ENV ONDEVICE_DATA=/data \
    ONDEVICE_CACHE=/cache/ondevice \
    HF_HOME=/cache/huggingface \
    TRITON_CACHE_DIR=/cache/triton \
    NUMBA_CACHE_DIR=/cache/numba \
    CUDA_CACHE_PATH=/cache/cuda \
    XDG_CACHE_HOME=/cache \
    MPLCONFIGDIR=/cache/matplotlib
RUN useradd --create-home --uid 10001 ondevice \
    && install -d -o ondevice -g ondevice -m 0700 /data /cache
VOLUME ["/data", "/cache"]
USER 10001
WORKDIR /home/ondevice

EXPOSE 7860
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=120s \
    CMD ["/opt/ondevice/venv/bin/python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:7860/health', timeout=4)"]
ENTRYPOINT ["ondevice"]
CMD ["app", "--host", "0.0.0.0", "--listen"]

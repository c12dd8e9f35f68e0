# syntax=docker/dockerfile:1
# One image for three kinds of machine, chosen by the base:
#   CPU          docker build -t ondevice .
#   desktop GPU  docker build -t ondevice --build-arg BASE=pytorch/pytorch:2.10.0-cuda12.8-cudnn9-runtime .
#   Jetson       docker build -t ondevice --build-arg BASE=dustynv/pytorch:2.7-r36.4.0 .      (match your JetPack)
# Another model of `ondevice models list`: --build-arg MODEL=qwen2.5-coder-0.5b
# A base that brings torch keeps its own; on the CPU base the pinned torch is installed with PIP_ARGS, with which you
# can name the index of PyTorch's CPU builds.
#
# Run it for this machine alone; the app asks for the password of ONDEVICE_AUTH:
#   docker run --rm -p 127.0.0.1:7860:7860 -e ONDEVICE_AUTH=me:a-long-password \
#     --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges ondevice
# On a GPU add `--gpus all`, on a Jetson `--runtime nvidia`.
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE}

ARG PIP_ARGS=""
ENV PYTHONSAFEPATH=1 \
    PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    HF_HUB_DISABLE_TELEMETRY=1 \
    GRADIO_ANALYTICS_ENABLED=False \
    ONDEVICE_CACHE=/opt/ondevice/cache

WORKDIR /opt/ondevice
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY ondevice ondevice
COPY kernels kernels
COPY assets assets
# The pin of torch is dropped where the base has one of its own, made for its CUDA.
RUN if python3 -c "import torch" 2>/dev/null; then sed -i '/^torch==/d' constraints.txt; \
    else python3 -m pip install ${PIP_ARGS} "$(grep '^torch==' constraints.txt)"; fi \
    && if python3 -c "import torch, sys; sys.exit(not torch.version.cuda)"; then extra="[gpu]"; else extra=""; fi \
    && python3 -m pip install -c constraints.txt ".${extra}" \
    && rm -rf build

# The model goes into the image, so that a container never needs the network.
ARG MODEL=qwen2.5-coder-1.5b
ENV ONDEVICE_MODEL=${MODEL}
RUN useradd --create-home --uid 10001 ondevice \
    && ondevice models fetch ${MODEL} \
    && chmod -R a+rX cache
USER ondevice
WORKDIR /home/ondevice

EXPOSE 7860
HEALTHCHECK --interval=30s --timeout=5s --start-period=120s \
    CMD ["python3", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:7860/health', timeout=4)"]
ENTRYPOINT ["ondevice"]
CMD ["app", "--host", "0.0.0.0", "--listen"]

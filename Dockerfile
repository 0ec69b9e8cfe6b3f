# syntax=docker/dockerfile:1
# The model server for SageMaker.  Targets: cuda (default; ml.g5, ml.g6), cpu, and fleet (cuda with
# Ray, for the large stack).
#   docker build --target cpu -t specinfer:cpu .
#
# Driver matrix: torch's wheels are built for CUDA 13.0, which needs driver 580, so on SageMaker
# the inference AMI al2023-ami-sagemaker-inference-gpu-4-1; older AMIs (535, 550) do not start it.
# The driver itself comes from the host and must not be in the image.
#
# The container runs as root: SageMaker mounts /opt/ml/model for root, and its contract for
# hosting containers leaves no way to name another user.  Network isolation and the read-only
# mount do the confining.

FROM python:3.11.14-slim-bookworm AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY docker docker
COPY model_server model_server
COPY kernels kernels

FROM build AS build-cpu
RUN docker/install.sh cpu /opt/specinfer

FROM build AS build-cuda
# Kernels are compiled now, for sm_86 (A10G), which takes no GPU: a first request would wait.
RUN docker/install.sh cuda /opt/specinfer \
    && TRITON_CACHE_DIR=/opt/triton /opt/specinfer/bin/python -m specinfer_kernels.warm

FROM build AS build-fleet
RUN docker/install.sh fleet /opt/specinfer \
    && TRITON_CACHE_DIR=/opt/triton /opt/specinfer/bin/python -m specinfer_kernels.warm

FROM python:3.11.14-slim-bookworm AS runtime
ENV HF_HUB_OFFLINE=1 \
    PATH=/opt/specinfer/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
EXPOSE 8080
# Exec form, so that SIGTERM reaches the server; no init, the server has no children.
ENTRYPOINT ["python", "-m", "specinfer.server"]
CMD ["serve"]

FROM runtime AS cpu
# int8 models are run by a C function that is compiled for the machine it runs on.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --no-install-recommends --yes gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build-cpu /opt/specinfer /opt/specinfer

FROM runtime AS fleet
# KubeRay replaces the entry point by `ray start`; its probes run wget in the container.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --no-install-recommends --yes gcc libc6-dev wget \
    && rm -rf /var/lib/apt/lists/*
EXPOSE 8000
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    NVIDIA_VISIBLE_DEVICES=all \
    RAY_USAGE_STATS_ENABLED=0 \
    TRITON_CACHE_DIR=/opt/triton
COPY --from=build-fleet /opt/triton /opt/triton
COPY --from=build-fleet /opt/specinfer /opt/specinfer

FROM runtime AS cuda
# Triton compiles its launcher on the machine that has the GPU, with the host compiler.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --no-install-recommends --yes gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    NVIDIA_VISIBLE_DEVICES=all \
    TRITON_CACHE_DIR=/opt/triton
COPY --from=build-cuda /opt/triton /opt/triton
COPY --from=build-cuda /opt/specinfer /opt/specinfer

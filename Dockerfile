# The offloader as a container: docker build -t offloader . ; run it with --init and --stop-timeout 120, and mount the
# configuration at /etc/offloader/offloader.yaml. See docs/running.md.
#
# Debian bookworm's openjdk-17-jre-headless is small and complete: `java --list-modules` names jdk.incubator.vector, which
# Spark asks for and which trimmed (jlink) runtimes, as in many JRE images, lack. Python comes from the image below,
# because the lock files are resolved for 3.11 and later.

FROM python:3.11-slim-bookworm AS build

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore

WORKDIR /build
COPY requirements-runtime.lock requirements-build.lock ./
RUN python -m venv /opt/offloader \
 && /opt/offloader/bin/pip install --require-hashes -r requirements-runtime.lock \
 && python -m venv /opt/build \
 && /opt/build/bin/pip install --require-hashes -r requirements-build.lock

COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY proto ./proto
COPY offloader ./offloader
COPY pyspark_pulsar_archive ./pyspark_pulsar_archive
RUN /opt/build/bin/pip wheel --no-build-isolation --no-deps --no-index --wheel-dir /wheels . \
 && /opt/offloader/bin/pip install --no-deps --no-index /wheels/*.whl \
 && /opt/offloader/bin/python -m compileall -q /opt/offloader/lib


FROM python:3.11-slim-bookworm

# procps: Spark's scripts call ps. The versions are Debian's newest of this release, for the sake of security updates.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
 && rm -rf /var/lib/apt/lists/* \
 && java --describe-module jdk.incubator.vector \
 && useradd --system --uid 10001 --home-dir /var/lib/offloader --create-home offloader

COPY --from=build /opt/offloader /opt/offloader

ENV PATH=/opt/offloader/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    OFFLOADER_CONFIG=/etc/offloader/offloader.yaml \
    OFFLOADER_HEALTH_URL=http://127.0.0.1:9464/healthz

USER 10001
WORKDIR /var/lib/offloader
EXPOSE 9464
STOPSIGNAL SIGTERM

# From inside the container, so that the endpoint may stay on loopback. Set OFFLOADER_HEALTH_URL where metrics.port is another.
HEALTHCHECK --interval=30s --timeout=5s --start-period=90s --retries=3 \
  CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen(os.environ['OFFLOADER_HEALTH_URL'], timeout=4)"]

ENTRYPOINT ["offloader"]
CMD ["run"]

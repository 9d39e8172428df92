# The offloader as a container: `make image` builds it with docker, podman or buildah, whichever is there. See
# docs/container.md.
#
# Everything but our own layers is Debian's. Its openjdk-17-jre-headless is small and complete: `java --list-modules`
# names jdk.incubator.vector, which Spark asks for and which trimmed (jlink) runtimes, as in many JRE images, lack.
# Our layers are the same bytes whenever they are built from the same lock: no time, no order and no compiler's chance.

ARG BASE=debian:bookworm-slim


FROM ${BASE} AS runtime

# procps: Spark's scripts call ps. tini: the first process of a container must bury the others.
# The versions are Debian's newest of this release, for the sake of security updates. The SBOM names them.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get upgrade --yes \
 && apt-get install --yes --no-install-recommends ca-certificates openjdk-17-jre-headless procps python3 tini \
 && apt-get clean \
 && rm -rf /var/lib/apt/lists/* /var/cache/debconf /var/cache/ldconfig /var/log/* \
 && java --describe-module jdk.incubator.vector \
 && groupadd --system --gid 10001 offloader \
 && useradd --system --uid 10001 --gid 10001 --home-dir /var/lib/offloader --create-home offloader


FROM runtime AS build

# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends python3-venv

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore PYTHONHASHSEED=0
WORKDIR /build

# The secret `certificates`, which may be left out, is a bundle of authorities to trust besides Debian's, as of a
# company's mirror.
COPY requirements-build.lock requirements-runtime.lock ./
RUN --mount=type=secret,id=certificates \
    if [ -s /run/secrets/certificates ]; then export PIP_CERT=/run/secrets/certificates; fi \
 && python3 -m venv /opt/build \
 && /opt/build/bin/pip install --require-hashes --only-binary :all: -r requirements-build.lock \
 && /opt/build/bin/pip wheel --require-hashes --no-deps --no-build-isolation --wheel-dir /wheels \
    -r requirements-runtime.lock

# The environment has no pip. What Spark has for machine learning, for other systems and for states in RocksDB goes, its
# examples, and the tests of libraries: 240 MB. Compiled files name no time: they are valid whatever that of their source.
RUN python3 -m venv --without-pip /opt/offloader \
 && /opt/build/bin/pip --python /opt/offloader/bin/python install --no-index --no-deps --no-compile /wheels/*.whl \
 && cd /opt/offloader/lib/python3*/site-packages \
 && rm -rf pyspark/examples pyspark/data pyspark/python/test_* pandas/tests pyarrow/tests pyarrow/include \
 && find numpy -type d -name tests -prune -exec rm -rf {} + \
 && cd pyspark/jars \
 && rm -rf connect-repl rocksdbjni-*.jar *-osx-*.jar *-windows-*.jar \
    spark-mllib_*.jar breeze*.jar spire*.jar cats-kernel_*.jar algebra_*.jar lapack-*.jar arpack*.jar blas-*.jar JTransforms-*.jar \
 && /opt/offloader/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/offloader/lib

COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY proto ./proto
COPY offloader ./offloader
COPY pyspark_pulsar_archive ./pyspark_pulsar_archive
RUN /opt/build/bin/pip wheel --no-build-isolation --no-deps --no-index --wheel-dir /own . \
 && /opt/build/bin/pip --python /opt/offloader/bin/python install --no-index --no-deps --no-compile \
    --prefix /application /own/*.whl \
 && /opt/offloader/bin/python -m compileall -q --invalidation-mode unchecked-hash -s /application -p /opt/offloader \
    /application

COPY dev/image/sbom.py ./
COPY --from=runtime /var/lib/dpkg/status /build/dpkg-status
RUN python3 sbom.py --debian dpkg-status --lock requirements-runtime.lock --wheels /wheels --own /own \
    --jars /opt/offloader/lib/python3*/site-packages/pyspark/jars > sbom.json


FROM runtime

COPY --from=build /opt/offloader /opt/offloader
COPY --from=build /application /opt/offloader
COPY --from=build /build/sbom.json /usr/share/pulsar-offloader/sbom.json

ENV PATH=/opt/offloader/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    OFFLOADER_CONFIG=/etc/offloader/offloader.yaml \
    OFFLOADER_HEALTH_URL=http://127.0.0.1:9464/healthz

USER 10001:10001
WORKDIR /var/lib/offloader
EXPOSE 9464
STOPSIGNAL SIGTERM

# From inside the container, so that the endpoint may stay on loopback. Set OFFLOADER_HEALTH_URL where metrics.port is another.
HEALTHCHECK --interval=30s --timeout=5s --start-period=90s --retries=3 \
  CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen(os.environ['OFFLOADER_HEALTH_URL'], timeout=4)"]

ENTRYPOINT ["tini", "--", "offloader"]
CMD ["run"]

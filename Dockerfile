# The sidecar's image: a virtual environment on a slim Python, an unprivileged user, and nothing that needs a shell or
# writes a file. `make image-test` builds it, runs it with a read-only root and sends calls through it.
#
#   docker build -t redrive .
#   docker run --read-only -p 127.0.0.1:8080:8080 -v "$PWD/conf:/etc/redrive:ro" redrive
#
# conf is a folder with a redrive.yaml that says `listen: 0.0.0.0:8080`: loopback would be the container's own.
# The base may be any image with Python 3.11 or newer that can make virtual environments; both stages use the same one.
# Releases name it by its digest: the release workflow looks it up, and passes it (.github/workflows/release.yml).
ARG PYTHON_IMAGE=docker.io/library/python:3.13-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
# Which optional parts are in: interception of TLS, and buckets in Redis.
ARG EXTRAS=intercept,redis
WORKDIR /src
# pip stays in this stage: the environment that serves has no installer.
RUN python3 -m venv /opt/pip && python3 -m venv --without-pip /opt/redrive
# The dependencies come first: this layer is kept until the locks change. pip takes no file whose hash is not in them.
COPY deploy/image/locks locks
# A C compiler, and the headers if the base has Debian's own Python: the package is compiled in this stage, and both stay in it.
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends gcc libc6-dev \
      $(test -e /usr/bin/python3 && echo python3-dev) >/dev/null && rm -rf /var/lib/apt/lists/*
RUN for set in serve $(echo "$EXTRAS" | tr , ' '); do set -- "$@" -r "locks/$set.txt"; done \
    && /opt/pip/bin/pip --python /opt/redrive/bin/python3 install --no-cache-dir --require-hashes "$@" \
    && /opt/pip/bin/pip install --no-cache-dir --require-hashes -r locks/build.txt
COPY pyproject.toml README.md LICENSE setup.py ./
COPY tools/readme.py tools/one_library.py tools/compiled.h tools/order.ld tools/
COPY proxy proxy
# The link proxy/examples leads to this folder.
COPY config/examples config/examples
RUN /opt/pip/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --no-index -w wheel . \
    && /opt/pip/bin/pip --python /opt/redrive/bin/python3 install --no-cache-dir --no-deps --no-index wheel/*.whl \
    && find /opt/redrive/lib -name '*.pyx' -delete -o -name '*.pxd' -delete -o -name '*.pyi' -delete \
    && /opt/redrive/bin/redrive --version | grep compiled

# Folders for a local CA and for what apps trust: a named volume that is mounted there gets their owner.
RUN mkdir -p /opt/state/ca /opt/state/trust

FROM ${PYTHON_IMAGE}
# The release workflow passes the version, the commit, the address of the repository, and the digest of the base.
ARG VERSION=
ARG REVISION=
ARG SOURCE=
ARG PYTHON_IMAGE
LABEL org.opencontainers.image.title="redrive" \
      org.opencontainers.image.description="A retrying HTTP sidecar: retries out of the process, paid from shared budgets" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.base.name="${PYTHON_IMAGE}"
COPY --from=build /opt/redrive /opt/redrive
COPY --from=build --chown=65532:65532 /opt/state /var/lib/redrive
# Mount a folder of your own over /etc/redrive: it is watched, and loaded again when it changes.
COPY deploy/image/redrive.yaml /etc/redrive/redrive.yaml
# PYTHONUNBUFFERED: no line of output is lost at the end. PYTHONDONTWRITEBYTECODE: the bytecode was written by the build.
ENV PATH=/opt/redrive/bin:/usr/local/bin:/usr/bin:/bin \
    REDRIVE_CONFIG=/etc/redrive/redrive.yaml \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
WORKDIR /
# A number, not a name, so that the kubelet can check runAsNonRoot.
USER 65532:65532
EXPOSE 8080 9902
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=5s --start-period=10s --retries=3 CMD ["redrive", "healthcheck"]
ENTRYPOINT ["redrive", "run"]

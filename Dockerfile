# The sidecar's image: a virtual environment on a slim Python, an unprivileged user, and nothing that needs a shell or
# writes a file. `make image-test` builds it, runs it with a read-only root and sends calls through it.
#
#   docker build -t redrive .
#   docker run --read-only -p 127.0.0.1:8080:8080 -v "$PWD/conf:/etc/redrive:ro" redrive
#
# conf is a folder with a redrive.yaml that says `listen: 0.0.0.0:8080`: loopback would be the container's own.
# The base may be any image with Python 3.11 or newer that can make virtual environments; both stages use the same one.
# Releases name it by its digest: the release workflow asks for it, and hands it in (.github/workflows/release.yml).
ARG PYTHON_IMAGE=docker.io/library/python:3.13-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
# Which optional parts are in: interception of TLS, and buckets in Redis.
ARG EXTRAS=intercept,redis
WORKDIR /src
# pip stays here: what is served from has no installer.
RUN python3 -m venv /opt/pip && python3 -m venv --without-pip /opt/redrive
# What redrive depends on first: this layer stays as long as the locks do. pip takes no file whose hash is not in them.
COPY deploy/image/locks locks
# A C compiler, and the headers of a Debian's own Python: the package is compiled here, and both stay here.
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends gcc libc6-dev \
      $(test -e /usr/bin/python3 && echo python3-dev) >/dev/null && rm -rf /var/lib/apt/lists/*
RUN for set in serve $(echo "$EXTRAS" | tr , ' '); do set -- "$@" -r "locks/$set.txt"; done \
    && /opt/pip/bin/pip --python /opt/redrive/bin/python3 install --no-cache-dir --require-hashes "$@" \
    && /opt/pip/bin/pip install --no-cache-dir --require-hashes -r locks/build.txt
COPY pyproject.toml README.md LICENSE setup.py ./
COPY tools/readme.py tools/
COPY proxy proxy
# Where proxy/examples leads to.
COPY config/examples config/examples
RUN /opt/pip/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --no-index -w wheel . \
    && /opt/pip/bin/pip --python /opt/redrive/bin/python3 install --no-cache-dir --no-deps --no-index wheel/*.whl \
    && find /opt/redrive/lib -name '*.pyx' -delete -o -name '*.pxd' -delete -o -name '*.pyi' -delete \
    && /opt/redrive/bin/redrive --version | grep compiled

# Where a local CA and what apps trust may be kept: a named volume takes over whose these folders are.
RUN mkdir -p /opt/state/ca /opt/state/trust

FROM ${PYTHON_IMAGE}
# What the release workflow knows: version, commit, address of the repository, and the digest of the base.
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
# A folder of one's own, mounted in its place, is watched and loaded again when it changes.
COPY deploy/image/redrive.yaml /etc/redrive/redrive.yaml
# PYTHONUNBUFFERED: nothing that was said is lost at the end. PYTHONDONTWRITEBYTECODE: it was compiled while building.
ENV PATH=/opt/redrive/bin:/usr/local/bin:/usr/bin:/bin \
    REDRIVE_CONFIG=/etc/redrive/redrive.yaml \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
WORKDIR /
# A number, so that a kubelet's runAsNonRoot can tell.
USER 65532:65532
EXPOSE 8080 9902
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=5s --start-period=10s --retries=3 CMD ["redrive", "healthcheck"]
ENTRYPOINT ["redrive", "run"]

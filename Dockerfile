# syntax=docker/dockerfile:1
#
# This builds a small image of perdiem. See docs/operations/install.md. Type:
#
#     docker build --tag perdiem .
#     docker run --publish 127.0.0.1:8080:8080 --volume perdiem:/var/lib/perdiem perdiem

# The images by digest, so that two builds of one commit have the same base. Both are the same release of
# Debian, so they have the same libc. RUST_IMAGE is the `rust-version` of Cargo.toml. To renew a digest, type
# `docker buildx imagetools inspect rust:1.94-slim-trixie`, and copy the line "Digest".
ARG RUST_IMAGE=rust:1.94-slim-trixie@sha256:cf09adf8c3ebaba10779e5c23ff7fe4df4cccdab8a91f199b0c142c53fef3e1a
ARG DEBIAN_IMAGE=debian:trixie-20260918-slim@sha256:a99cfc517144bc59b1978475ec53b46ecabec7e43635402ee5b77cc54cd1b20a

FROM ${RUST_IMAGE} AS builder
WORKDIR /build

# Cargo.toml names a benchmark, so Cargo wants its file, though it does not build it here.
COPY Cargo.toml Cargo.lock ./
COPY .cargo .cargo
COPY migrations migrations
COPY src src
RUN mkdir benches \
    && echo 'fn main() {}' > benches/hot_paths.rs \
    && cargo build --profile dist --locked

# What the program contains of others: their licenses, and a list of all of them for scanners (SBOM).
FROM builder AS notices
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3
COPY deploy/notices deploy/notices
RUN python3 deploy/notices notices

# This image uses Debian and not distroless. Debian has a shell, which the health check needs. A person
# who looks for an error needs the shell too. The image needs no other package: the program contains the
# public certificate authorities and a copy of the tz database.
FROM ${DEBIAN_IMAGE}
RUN groupadd --gid 10001 perdiem \
    && useradd --uid 10001 --gid perdiem --no-create-home --home-dir /var/lib/perdiem \
        --shell /usr/sbin/nologin perdiem \
    && install --directory --owner perdiem --group perdiem --mode 0700 /var/lib/perdiem
COPY LICENSE /usr/share/doc/perdiem/LICENSE
COPY --from=notices /build/notices /usr/share/doc/perdiem/
COPY --chmod=755 deploy/check /usr/local/bin/perdiem-check
COPY --from=builder /build/target/dist/perdiem /usr/local/bin/perdiem

# If DATABASE_URL is not set, the ledger is the SQLite file perdiem.db in this folder.
WORKDIR /var/lib/perdiem
VOLUME /var/lib/perdiem
ENV PERDIEM_BIND=0.0.0.0:8080
EXPOSE 8080
USER 10001:10001

# This checks only that the process runs. It does not ask /readyz: to end a container does not help when
# its database is away. A load balancer asks /readyz.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["perdiem-check", "/livez"]

# perdiem handles SIGTERM and SIGINT, so the container needs no init process.
ENTRYPOINT ["perdiem"]
CMD ["serve"]

# syntax=docker/dockerfile:1
#
# perdiem in a small image. See docs/operations.md.
#
#     docker build --tag perdiem .
#     docker run --publish 127.0.0.1:8080:8080 --volume perdiem:/var/lib/perdiem perdiem

# The toolchain is Cargo.toml's `rust-version`. Both stages are of one release of Debian, so that
# the program meets the libc that it was linked with.
ARG RUST=1.94
ARG DEBIAN=trixie

FROM rust:${RUST}-slim-${DEBIAN} AS builder
WORKDIR /build

# The dependencies, in a layer that stays until Cargo.toml or Cargo.lock changes.
COPY Cargo.toml Cargo.lock ./
RUN mkdir src \
    && echo 'fn main() {}' > src/main.rs \
    && touch src/lib.rs \
    && cargo build --profile dist --locked \
    && rm -r src

COPY migrations migrations
COPY src src
# Cargo goes by times, and the copied files are older than what was built of the empty ones.
RUN touch src/main.rs src/lib.rs \
    && cargo build --profile dist --locked

# Debian and not distroless: it has a shell, which the health check is written in and which a
# person wants when something is wrong. Nothing is installed: the program brings its TLS roots and
# a copy of the tz database with it.
FROM debian:${DEBIAN}-slim
RUN groupadd --gid 10001 perdiem \
    && useradd --uid 10001 --gid perdiem --no-create-home --home-dir /var/lib/perdiem \
        --shell /usr/sbin/nologin perdiem \
    && install --directory --owner perdiem --group perdiem --mode 0700 /var/lib/perdiem
COPY LICENSE /usr/share/doc/perdiem/LICENSE
COPY --chmod=755 deploy/check /usr/local/bin/perdiem-check
COPY --from=builder /build/target/dist/perdiem /usr/local/bin/perdiem

# Where the ledger is without a DATABASE_URL of your own: sqlite:perdiem.db in this folder.
WORKDIR /var/lib/perdiem
VOLUME /var/lib/perdiem
ENV PERDIEM_BIND=0.0.0.0:8080
EXPOSE 8080
USER 10001:10001

# Whether the process lives. Whether it is ready is for whoever sends it claims to ask: a container
# that is ended because its database is away helps nobody.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["perdiem-check", "/livez"]

# It runs as process 1 without an init: it handles SIGTERM and SIGINT, and has no children.
ENTRYPOINT ["perdiem"]
CMD ["serve"]

# syntax=docker/dockerfile:1
#
# perdiem in a small image. See docs/operations/install.md.
#
#     docker build --tag perdiem .
#     docker run --publish 127.0.0.1:8080:8080 --volume perdiem:/var/lib/perdiem perdiem

# RUST is the `rust-version` of Cargo.toml. Both stages use the same release of Debian, so the program
# runs with the libc that it was linked with.
ARG RUST=1.94
ARG DEBIAN=trixie

FROM rust:${RUST}-slim-${DEBIAN} AS builder
WORKDIR /build

# The dependencies. Docker builds this layer again only if Cargo.toml or Cargo.lock changes.
COPY Cargo.toml Cargo.lock ./
RUN mkdir src \
    && echo 'fn main() {}' > src/main.rs \
    && touch src/lib.rs \
    && cargo build --profile dist --locked \
    && rm -r src

COPY migrations migrations
COPY src src
# Cargo compares times. The copied files are older than the program that the empty files gave.
RUN touch src/main.rs src/lib.rs \
    && cargo build --profile dist --locked

# Debian and not distroless, because it has a shell: the health check needs it, and so does a person
# who looks for an error. No package is installed: the program contains its TLS roots and a copy of the
# tz database.
FROM debian:${DEBIAN}-slim
RUN groupadd --gid 10001 perdiem \
    && useradd --uid 10001 --gid perdiem --no-create-home --home-dir /var/lib/perdiem \
        --shell /usr/sbin/nologin perdiem \
    && install --directory --owner perdiem --group perdiem --mode 0700 /var/lib/perdiem
COPY LICENSE /usr/share/doc/perdiem/LICENSE
COPY --chmod=755 deploy/check /usr/local/bin/perdiem-check
COPY --from=builder /build/target/dist/perdiem /usr/local/bin/perdiem

# Without DATABASE_URL the ledger is sqlite:perdiem.db in this folder.
WORKDIR /var/lib/perdiem
VOLUME /var/lib/perdiem
ENV PERDIEM_BIND=0.0.0.0:8080
EXPOSE 8080
USER 10001:10001

# Checks that the process lives. A load balancer asks /readyz instead. Ending a container because its
# database is away would not help.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["perdiem-check", "/livez"]

# perdiem can be process 1 without an init: it handles SIGTERM and SIGINT.
ENTRYPOINT ["perdiem"]
CMD ["serve"]

# syntax=docker/dockerfile:1
#
# This builds a small image of perdiem. See docs/operations/install.md. Type:
#
#     docker build --tag perdiem .
#     docker run --publish 127.0.0.1:8080:8080 --volume perdiem:/var/lib/perdiem perdiem

# RUST is the `rust-version` of Cargo.toml. Both stages use the same release of Debian, so they have the
# same libc.
ARG RUST=1.94
ARG DEBIAN=trixie

FROM rust:${RUST}-slim-${DEBIAN} AS builder
WORKDIR /build

# Build the dependencies, with an empty program. Docker repeats this step only if Cargo.toml or Cargo.lock
# changes.
COPY Cargo.toml Cargo.lock ./
RUN mkdir src \
    && echo 'fn main() {}' > src/main.rs \
    && touch src/lib.rs \
    && cargo build --profile dist --locked \
    && rm -r src

COPY migrations migrations
COPY src src
# Build perdiem. Cargo builds only files that are newer than the last build, and the copied files can be
# older. `touch` makes them newer.
RUN touch src/main.rs src/lib.rs \
    && cargo build --profile dist --locked

# This image uses Debian and not distroless. Debian has a shell, which the health check needs. A person
# who looks for an error needs the shell too. The image needs no other package: the program contains the
# public certificate authorities and a copy of the tz database.
FROM debian:${DEBIAN}-slim
RUN groupadd --gid 10001 perdiem \
    && useradd --uid 10001 --gid perdiem --no-create-home --home-dir /var/lib/perdiem \
        --shell /usr/sbin/nologin perdiem \
    && install --directory --owner perdiem --group perdiem --mode 0700 /var/lib/perdiem
COPY LICENSE /usr/share/doc/perdiem/LICENSE
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

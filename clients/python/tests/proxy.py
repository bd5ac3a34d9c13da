"""A TCP proxy that spoils exchanges on purpose: one fault for each request, in order, and then none."""

import contextlib
import socket
import threading
import time

TORN_BYTES = 40


class Proxy:
    """Listens on a free port, and forwards to `target`. `faults` has the faults to come:

    `cut`: half of the request arrives. `lose`: perdiem answers, and the connection breaks. `tear`: so it does
    within the answer. `delay SECONDS`: the answer is late. Bytes: the proxy answers them itself.
    """

    def __init__(self, target):
        self.target, self.faults, self.requests = target, [], 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        with client, socket.create_connection(self.target) as server, contextlib.suppress(OSError):
            while request := receive(client):
                self.requests += 1
                fault = self.faults.pop(0) if self.faults else None
                if isinstance(fault, bytes):
                    client.sendall(fault)
                    return
                if fault == "cut":
                    server.sendall(request[: len(request) // 2])
                    return
                server.sendall(request)
                answer = receive(server)
                if fault == "lose":
                    return
                if fault == "tear":
                    client.sendall(answer[:TORN_BYTES])
                    return
                if fault:
                    time.sleep(float(fault.removeprefix("delay ")))
                client.sendall(answer)

    def close(self):
        # Without this the thread that waits in accept() would keep the port open.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


def receive(connection):
    """One whole message, by its Content-Length; empty at the end of the connection."""
    message = b""
    while b"\r\n\r\n" not in message:
        if not (part := connection.recv(65536)):
            return b""
        message += part
    head, _, body = message.partition(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    missing = int(fields.get(b"content-length", 0)) - len(body)
    while missing > 0:
        if not (part := connection.recv(65536)):
            break
        message, missing = message + part, missing - len(part)
    return message

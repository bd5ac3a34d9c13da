// A TCP proxy that spoils exchanges on purpose: one fault for each request, in order, and then none.

import { once } from "node:events";
import * as net from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

/** `cut`: half of the request arrives. `lose`: perdiem answers, and the connection breaks. `tear`: so it does within
 *  the answer. `delay`: the answer is 2.5 seconds late. Another text is an answer of the proxy itself. */
export type Fault = "cut" | "lose" | "tear" | "delay" | `HTTP/1.1 ${string}`;

const TORN_BYTES = 40;
const DELAY_MILLISECONDS = 2500;

export class Proxy {
  faults: Fault[] = [];
  requests = 0;
  readonly #server = net.createServer((client) => void this.#serve(client));

  constructor(private readonly target: URL) {}

  async listen(): Promise<string> {
    await once(this.#server.listen(0, "127.0.0.1"), "listening");
    return `http://127.0.0.1:${(this.#server.address() as net.AddressInfo).port}`;
  }

  close(): void {
    this.#server.close();
  }

  async #serve(client: net.Socket): Promise<void> {
    const server = net.connect(Number(this.target.port), this.target.hostname);
    const end = () => [client, server].forEach((socket) => socket.destroy());
    for (const socket of [client, server]) socket.on("error", end).on("close", end);
    const [requests, answers] = [messages(client), messages(server)];
    for await (const request of requests) {
      this.requests += 1;
      const fault = this.faults.shift();
      if (fault?.startsWith("HTTP/")) {
        client.end(fault);
        return;
      }
      server.write(fault === "cut" ? request.subarray(0, request.length / 2) : request);
      if (fault === "cut") return void sleep(50).then(end);
      const answer = await answers.next();
      if (fault === "lose") return end();
      if (fault === "tear") return void client.write(answer.value!.subarray(0, TORN_BYTES), end);
      if (fault === "delay") await sleep(DELAY_MILLISECONDS);
      client.write(answer.value!);
    }
  }
}

/** The whole messages of a connection, by their Content-Length. */
async function* messages(socket: net.Socket): AsyncGenerator<Buffer, undefined> {
  let received = Buffer.alloc(0);
  try {
    for await (const part of socket) {
      received = Buffer.concat([received, part]);
      for (let length; (length = lengthOf(received)) <= received.length; received = received.subarray(length)) {
        yield received.subarray(0, length);
      }
    }
  } catch {
    // The connection broke, as it should.
  }
  return undefined;
}

function lengthOf(message: Buffer): number {
  const head = message.indexOf("\r\n\r\n");
  if (head < 0) return Infinity;
  const length = /^content-length: *(\d+)/im.exec(message.subarray(0, head).toString())?.[1] ?? "0";
  return head + 4 + Number(length);
}

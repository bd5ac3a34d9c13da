// A peer of perdiem's: rate-limiter-flexible with its counters in Redis, behind node's own HTTP
// server. It takes the same requests as perdiem does, and records nothing.
//
//   PEER_SECRET=… node server.js --redis-url redis://127.0.0.1:6379

import { createServer } from "node:http";
import { parseArgs } from "node:util";
import { Redis } from "ioredis";
import { RateLimiterRedis, RateLimiterRes } from "rate-limiter-flexible";

const { values } = parseArgs({ options: { "redis-url": { type: "string" } } });
const authorization = `Bearer ${process.env.PEER_SECRET}`;
const limiter = new RateLimiterRedis({
  storeClient: new Redis(values["redis-url"]),
  keyPrefix: "benefit",
  points: 3,
  duration: 86400,
});

async function claim(request, text) {
  if (request.method !== "POST" || request.url !== "/v1/policies/benefit/claims") return 404;
  if (request.headers.authorization !== authorization) return 401;
  if (!request.headers["idempotency-key"]) return 400;
  try {
    const { subject, units = 1 } = JSON.parse(text);
    await limiter.consume(subject, units);
    return 201;
  } catch (cause) {
    return cause instanceof RateLimiterRes ? 429 : 503;
  }
}

const server = createServer((request, response) => {
  let text = "";
  request.setEncoding("utf8");
  request.on("data", (part) => (text += part));
  request.on("end", async () => {
    const status = await claim(request, text);
    const body = status === 201 ? '{"outcome":"granted"}' : "";
    response.writeHead(status, {
      "Content-Type": "application/json",
      "Content-Length": body.length,
    });
    response.end(body);
  });
});
server.keepAliveTimeout = 75_000;
server.listen(0, "127.0.0.1", () => {
  console.log(`serves at http://127.0.0.1:${server.address().port}`);
});

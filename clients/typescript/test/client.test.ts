// Every operation and every fault of the network, against a real perdiem.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { inspect } from "node:util";
import express from "express";
import {
  Blocked, claimFirst, Client, Denied, Inactive, Lapsed, NotGranted, PerdiemError, Reversed, type Claim, type Options,
} from "perdiem-client";
import { Proxy, type Fault } from "./proxy.js";

const URL_ = process.env.PERDIEM_URL!;
const KEY = process.env.PERDIEM_KEY!;
// It is noon in this zone, so that no day ends during the run.
const HOURS = 12 - new Date().getUTCHours();
const ZONE = `${HOURS < 0 ? "-" : "+"}${String(Math.abs(HOURS)).padStart(2, "0")}:00`;

async function admin(method: string, path: string, body?: object): Promise<any> {
  const headers = { Authorization: `Bearer ${KEY}` };
  const answer = await fetch(`${URL_}/v1/${path}`, { method, headers, ...(body && { body: JSON.stringify(body) }) });
  assert.ok(answer.ok, await answer.clone().text());
  return answer.json();
}

/** A client, a policy of 3 units a day for this test alone, and a subject with a claim. */
async function scene() {
  const policy = `ts-${randomUUID()}`;
  await admin("PUT", `policies/${policy}`, { time_zone: ZONE, limits: [{ max: 3, per: "day" }] });
  const claim = (key: string, more: Partial<Claim> = {}): Claim => ({ policy, subject: "member-42", key, ...more });
  const client = new Client(URL_, KEY);
  const states = async (): Promise<string[]> =>
    (await admin("GET", `grants?policy=${policy}`)).items.map((grant: { state: string }) => grant.state).sort();
  const used = async () => (await client.usage(policy, "member-42"))[0]!.used;
  return { policy, claim, client, states, used };
}

/** The same with a client behind a proxy. */
async function shaky(faults: Fault[], options: Options = { deadlineSeconds: 5, attemptSeconds: 2 }) {
  const proxy = new Proxy(new URL(URL_));
  const client = new Client(await proxy.listen(), KEY, options);
  proxy.faults = faults;
  return { ...(await scene()), proxy, client };
}

async function rejection<E extends Error>(promise: Promise<unknown>, kind: new (...parts: any[]) => E): Promise<E> {
  const error = await promise.then(() => assert.fail("it was granted"), (reason: unknown) => reason);
  assert.ok(error instanceof kind, inspect(error));
  return error;
}

test("a claim is granted and replayed", async () => {
  const { client, claim, states } = await scene();
  const granted = await client.claim(claim("k", { metadata: { order: "A-17" } }));
  assert.equal(granted.replayed, false);
  assert.equal(granted.provisional, false);
  assert.deepEqual(granted.grant.metadata, { order: "A-17" });
  assert.deepEqual([granted.limits[0]!.used, granted.limits[0]!.remaining], [1, 2]);
  const again = await client.claim(claim("k", { metadata: { order: "A-17" } }));
  assert.ok(again.replayed);
  assert.deepEqual(again.grant, granted.grant);
  assert.deepEqual(await states(), ["granted"]);
});

test("a denial says when to come again", async () => {
  const { client, claim } = await scene();
  await client.claim(claim("k1", { units: 3 }));
  const denied = await rejection(client.claim(claim("k2")), Denied);
  assert.deepEqual(denied.violated, ["day"]);
  assert.equal(denied.limits[0]!.remaining, 0);
  assert.ok(Math.abs(denied.fitsAt!.getTime() - Date.now() - denied.retryAfter! * 1000) < 2000);
  assert.ok(denied instanceof NotGranted && !denied.mayBeGranted);
});

test("a dry run counts nothing", async () => {
  const { client, claim, states } = await scene();
  assert.equal((await client.dryRun(claim("k", { units: 3 })))[0]!.used, 3);
  assert.deepEqual(await states(), []);
  await client.claim(claim("k", { units: 3 }));
  assert.ok((await rejection(client.dryRun(claim("k")), Denied)).fitsAt);
});

test("a hold is confirmed, or lapses", async () => {
  const { client, claim, used } = await scene();
  const { grant } = await client.claim(claim("k1", { units: 2, holdSeconds: 60 }));
  assert.equal(grant.state, "held");
  assert.equal(grant.heldUntil!.getTime() - grant.grantedAt.getTime(), 60_000);
  assert.equal((await client.confirm(grant.id, { units: 1 })).state, "granted");
  const late = await client.claim(claim("k2", { holdSeconds: 1 }));
  await new Promise((resolve) => setTimeout(resolve, 1200));
  await rejection(client.confirm(late.grant.id), Lapsed);
  await rejection(client.claim(claim("k2", { holdSeconds: 1 })), Lapsed);
  assert.equal(await used(), 1);
});

test("a grant is reversed", async () => {
  const { client, claim, used } = await scene();
  const { grant } = await client.claim(claim("k", { units: 3 }));
  for (const _ of [1, 2]) await client.reverse(grant.id, "one came back", { units: 1, key: "k.refund" });
  assert.equal(await used(), 2);
  for (const _ of [1, 2]) assert.equal((await client.reverse(grant.id, "all came back")).state, "reversed");
  assert.equal(await used(), 0);
  await rejection(client.claim(claim("k", { units: 3 })), Reversed);
});

test("a batch has a result for each claim", async () => {
  const { client, claim } = await scene();
  const claims = [claim("k1"), claim("k2", { units: 4 }), claim("k3", { policy: "nowhere" })];
  const [granted, invalid, unknown] = await client.batch(claims);
  assert.ok(granted && "grant" in granted && !granted.replayed);
  assert.equal(invalid instanceof PerdiemError && invalid.code, "invalid");
  assert.equal(unknown instanceof PerdiemError && unknown.code, "unknown-policy");
  const [spared, denied] = await client.batch([claim("k4", { subject: "b" }), claim("k5", { units: 3 })], { atomic: true });
  assert.equal(spared instanceof PerdiemError && spared.code, "failed-dependency");
  assert.ok(denied instanceof Denied);
});

test("refusals are told by their code, and other problems are one error", async () => {
  const { client, claim, policy } = await scene();
  await admin("PUT", `policies/${policy}/blocks/member-42`, { reason: "fraud" });
  await rejection(client.claim(claim("k")), Blocked);
  await admin("PUT", `policies/${policy}/pause`, { reason: "a fault" });
  await rejection(client.claim(claim("k", { subject: "b" })), Inactive);
  const unknown = await rejection(client.claim(claim("k", { policy: "nowhere" })), PerdiemError);
  assert.deepEqual([unknown.code, unknown.status, unknown.mayBeGranted], ["unknown-policy", 404, false]);
  assert.ok(unknown.requestId && unknown.detail && !(unknown instanceof NotGranted));
  assert.equal((await rejection(client.claim(claim("")), PerdiemError)).code, "invalid");
});

for (const fault of ["cut", "lose", "tear", "delay"] as const) {
  test(`an answer that is lost is one grant: ${fault}`, async () => {
    const { client, claim, states, proxy } = await shaky(fault === "delay" ? [fault] : [fault, fault]);
    const granted = await client.claim(claim("k"));
    assert.deepEqual(proxy.faults, []);
    assert.equal(granted.replayed, fault !== "cut");
    assert.deepEqual(await states(), ["granted"]);
    proxy.close();
  });
}

test("the deadline is for the whole call", async () => {
  const { client, claim, proxy } = await shaky(Array(9).fill("delay"), { deadlineSeconds: 1, attemptSeconds: 0.4 });
  const began = performance.now();
  const lost = await rejection(client.claim(claim("k")), PerdiemError);
  assert.deepEqual([lost.code, lost.status, lost.mayBeGranted], ["no-answer", null, true]);
  assert.ok(performance.now() - began < 1500 && proxy.requests >= 2);
  proxy.close();
});

const overloaded = (retryAfter: string): Fault =>
  `HTTP/1.1 503 Service Unavailable\r\nRetry-After: ${retryAfter}\r\nContent-Length: 0\r\n\r\n`;

for (const until of [() => "1", () => new Date(Date.now() + 2000).toUTCString()]) {
  test(`Retry-After is waited for: ${until()}`, async () => {
    const { client, claim, proxy } = await shaky([overloaded(until())]);
    const began = performance.now();
    await client.claim(claim("k"));
    assert.ok(performance.now() - began > 900);
    proxy.close();
  });
}

test("a Retry-After beyond the deadline is not waited for", async () => {
  const { client, claim, proxy } = await shaky([overloaded("60")]);
  const error = await rejection(client.claim(claim("k")), PerdiemError);
  assert.deepEqual([error.status, error.retryAfter, error.mayBeGranted, proxy.requests], [503, 60, true, 1]);
  proxy.close();
});

const garbage: Fault[] = [
  "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
  "HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\n<html",
  "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n[]",
  "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
];
for (const answer of garbage) {
  test(`garbage is an error: ${JSON.stringify(answer)}`, async () => {
    const { client, claim, proxy } = await shaky([answer]);
    const error = await rejection(client.claim(claim("k")), PerdiemError);
    assert.deepEqual([error.code, error.mayBeGranted, proxy.requests], ["unreadable", true, 1]);
    proxy.close();
  });
}

test("nobody sees the secret", async () => {
  const { claim } = await scene();
  const dead = new Client("http://127.0.0.1:1", KEY, { deadlineSeconds: 0.3 });
  const error = await rejection(dead.claim(claim("k")), PerdiemError);
  const wrong = assert.throws(() => new Client(URL_, `${KEY}\nmore`), (thrown) => !inspect(thrown).includes(KEY));
  for (const shown of [error, error.cause, dead, wrong]) {
    assert.ok(!inspect(shown, { depth: 9, showHidden: true }).includes(KEY) && !String(JSON.stringify(shown)).includes(KEY));
  }
});

test("withClaim confirms after success, and reverses after failure", async () => {
  const { client, claim, states } = await scene();
  assert.equal(await client.withClaim(claim("k1"), ({ grant }) => grant.state), "held");
  await rejection(client.withClaim(claim("k2"), () => { throw new RangeError(); }), RangeError);
  await rejection(client.withClaim(claim("k3"), async () => { throw new RangeError(); }, { hold: false }), RangeError);
  assert.deepEqual(await states(), ["granted", "reversed", "reversed"]);
  await rejection(client.withClaim(claim("k1"), () => { throw new RangeError(); }), RangeError);
  assert.deepEqual(await states(), ["granted", "reversed", "reversed"]);
  await rejection(client.withClaim(claim("k2"), () => assert.fail("the key is used")), Reversed);
});

test("a reversal that fails is told to onError", async () => {
  const errors: unknown[] = [];
  const options = { deadlineSeconds: 1, attemptSeconds: 0.5, onError: (error: unknown) => errors.push(error) };
  const { client, claim, states, proxy } = await shaky([], options);
  const fail = () => {
    proxy.faults = Array(20).fill("cut");
    throw new RangeError();
  };
  await rejection(client.withClaim(claim("k"), fail), RangeError);
  assert.equal(errors.length, 1);
  assert.deepEqual(await states(), ["held"]);
  proxy.close();
});

test("Express' handlers run after a claim", async () => {
  const { client, claim, states, used } = await scene();
  const app = express();
  const guard = claimFirst(client, (request: express.Request) => claim(String(request.params.order)));
  app.post("/sms/:order", guard, (request, response) => {
    if (request.query.fail === "throw") throw new Error("it failed");
    assert.equal(response.locals.granted.grant.state, "held");
    response.status(request.query.fail ? 502 : 201).json({ sent: true });
  });
  app.set("env", "test");
  const server = app.listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const { port } = server.address() as { port: number };
  const send = (path: string) => fetch(`http://127.0.0.1:${port}/sms/${path}`, { method: "POST" });
  assert.equal((await send("k0?fail=status")).status, 502);
  assert.equal((await send("k1?fail=throw")).status, 500);
  assert.deepEqual(await states(), ["reversed", "reversed"]);
  for (const order of ["k2", "k3", "k4"]) {
    const answer = await send(order);
    assert.deepEqual([answer.status, await answer.json()], [201, { sent: true }]);
  }
  assert.deepEqual(await states(), ["granted", "granted", "granted", "reversed", "reversed"]);
  const denied = await send("k5");
  assert.equal(denied.status, 429);
  assert.ok(Number(denied.headers.get("retry-after")) > 0);
  assert.equal(((await denied.json()) as { code: string }).code, "quota-exceeded");
  assert.equal((await send("k0")).status, 409);
  assert.equal(await used(), 3);
  server.close();
});

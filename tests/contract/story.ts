// Uses the API as a backend would, with the types that openapi-typescript generated and openapi-fetch.
//
// scripts/check-clients generated runs this against a new perdiem at PERDIEM_URL, with an admin's PERDIEM_KEY.

import assert from "node:assert/strict";
import createClient from "openapi-fetch";
import type { paths } from "./schema.js";

const client = createClient<paths>({
  baseUrl: process.env.PERDIEM_URL!,
  headers: { Authorization: `Bearer ${process.env.PERDIEM_KEY}` },
});
// It is noon in this zone, so that no day ends during the run.
const HOURS = 12 - new Date().getUTCHours();
const ZONE = `${HOURS < 0 ? "-" : "+"}${String(Math.abs(HOURS)).padStart(2, "0")}:00`;

const claim = (key: string, more: { units?: number; hold_seconds?: number } = {}) =>
  client.POST("/v1/policies/{policy}/claims", {
    params: { path: { policy: "benefit" }, header: { "Idempotency-Key": key } },
    body: { subject: "member-42", ...more },
  });

async function used(): Promise<number> {
  const path = { policy: "benefit", subject: "member-42" };
  const { data } = await client.GET("/v1/policies/{policy}/subjects/{subject}", { params: { path } });
  assert.ok(data && "limits" in data && !("lacking" in data));
  return data.limits[0]!.used;
}

const policy = { time_zone: ZONE, limits: [{ max: 3, per: "day" }] };
const made = await client.PUT("/v1/policies/{policy}", { params: { path: { policy: "benefit" } }, body: policy });
assert.equal(made.response.status, 201);

const first = await claim("order-1");
assert.equal(first.response.status, 201);
assert.equal(first.data?.outcome, "granted");
const again = await claim("order-1");
assert.equal(again.response.headers.get("idempotent-replayed"), "true");
assert.deepEqual(again.data?.grant, first.data?.grant);

const denied = await claim("order-2", { units: 3 });
assert.equal(denied.response.status, 429);
assert.ok(denied.error && "violated-policies" in denied.error && denied.error.fits_at);

const hold = await claim("order-3", { hold_seconds: 600 });
const held = hold.data!.grant!;
assert.equal(held.state, "held");
const confirmed = await client.POST("/v1/grants/{id}/confirmation", { params: { path: { id: held.id } }, body: {} });
assert.equal(confirmed.data?.grant.state, "granted");
assert.equal(await used(), 2);

const batch = await client.POST("/v1/claims", {
  body: {
    claims: [
      { policy: "benefit", subject: "member-1", idempotency_key: "order-4" },
      { policy: "nowhere", subject: "member-1", idempotency_key: "order-5" },
    ],
  },
});
const [granted, unknown] = batch.data!.items;
assert.ok(granted && "grant" in granted && granted.grant.subject === "member-1");
assert.ok(unknown && "title" in unknown && unknown.status === 404);

for (const status of [201, 200]) {
  const reversed = await client.POST("/v1/grants/{id}/reversal", {
    params: { path: { id: held.id } },
    body: { reason: "SMS gateway refused" },
  });
  assert.equal(reversed.response.status, status);
  assert.equal(reversed.data?.grant.state, "reversed");
}
assert.equal(await used(), 1);
console.log("the generated types fit what perdiem answers");

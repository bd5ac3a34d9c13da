import { setTimeout as sleep } from "node:timers/promises";

const { PERDIEM_URL: url, PERDIEM_KEY: key } = process.env;

type Answer = { status: number; retryAfter: number; text: string };
type Claimed = { grant: { id: string } };
type Denied = { detail: string };
type Usage = { limits: { used: number; max: number }[] };

/** Returns undefined if no answer came. `retryAfter` is 0 if the answer has none. */
async function sendOnce(
  method: string, path: string, body?: object, order?: string,
): Promise<Answer | undefined> {
  const headers = new Headers({ Authorization: `Bearer ${key}` });
  if (order !== undefined) headers.set("Idempotency-Key", order);
  try {
    const response = await fetch(url + path, {
      method,
      headers,
      body: body && JSON.stringify(body),
      signal: AbortSignal.timeout(10_000),
    });
    const retryAfter = Number(response.headers.get("Retry-After") ?? 0);
    return { status: response.status, retryAfter, text: await response.text() };
  } catch {
    return undefined;
  }
}

/** Sends a request until perdiem answers it, at most 5 times. */
async function send(
  method: string, path: string, body?: object, order?: string,
): Promise<Answer> {
  for (let attempt = 0; attempt < 5; attempt++) {
    // Every attempt has the same key: the claim is granted at most once.
    const answer = await sendOnce(method, path, body, order);
    const { status, retryAfter, text } = answer ?? { status: 503, retryAfter: 0, text: "" };
    if (status < 300 || status === 429) return { status, retryAfter, text };
    // The request is wrong. It would fail again.
    if (status < 500 && retryAfter === 0) throw new Error(text);
    // 503, 409 with Retry-After, or no answer: send the same request again.
    await sleep(1000 * (Math.max(retryAfter, 2 ** attempt) + Math.random()));
  }
  throw new Error("perdiem cannot answer now");
}

// 1. Put a policy: each subject may take 3 units per day. A day begins at midnight in GMT+8.
const rule = { time_zone: "GMT+8", limits: [{ max: 3, per: "day" }] };
await send("PUT", "/v1/policies/first-steps", rule);

// 2. Claim. A-17 is claimed twice, and gets the same grant twice.
for (const order of ["A-17", "A-17", "A-18", "A-19", "A-20"]) {
  const claim = { subject: "member-42" };
  const answer = await send("POST", "/v1/policies/first-steps/claims", claim, order);
  if (answer.status === 429) {
    // Denied. Do not claim again before Retry-After.
    const denied: Denied = JSON.parse(answer.text);
    console.log(`${order} denied: ${denied.detail} (Retry-After: ${answer.retryAfter} s)`);
  } else {
    const claimed: Claimed = JSON.parse(answer.text);
    console.log(`${order} granted: ${claimed.grant.id}`);
  }
}

// 3. Read the usage.
const answer = await send("GET", "/v1/policies/first-steps/subjects/member-42");
const usage: Usage = JSON.parse(answer.text);
console.log(`used: ${usage.limits[0].used} of ${usage.limits[0].max}`);

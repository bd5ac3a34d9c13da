// Signing in to the console with the account of a company: with a real provider, in a real browser.
//
//     PERDIEM_URL=… PERDIEM_KEY=… PROVIDER_PORT=… CLIENT_SECRET=… CHROMIUM=/usr/bin/chromium node accounts.mjs
//
// The perdiem must know the provider, and be new. scripts/check-console starts one.

import assert from "node:assert/strict";
import { chromium } from "playwright-core";
import { startProvider } from "./provider.mjs";
import { api, executablePath, key, open, says, url } from "./visitor.mjs";

const { PROVIDER_PORT: port, CLIENT_SECRET: secret } = process.env;
const people = {
  anna: { email: "anna@example.com", email_verified: true, groups: ["staff", "admins"] },
  bob: { email: "bob@example.com", email_verified: true, groups: ["helpdesk"] },
  carl: { email: "carl@example.com", email_verified: true, groups: ["staff"] },
  eva: { email: "eva@example.com", email_verified: true, groups: ["admins"] },
  dora: { email: "anna@example.com", email_verified: false, preferred_username: "dora", groups: ["auditors"] },
};

const keysOf = async (name) => (await api("GET", "/v1/keys")).items.filter((found) => found.name === name);

// Goes to a page as somebody who is not signed in here, up to the provider's answer.
async function signIn(page, name, path = "/console") {
  await page.goto(path);
  await page.getByRole("link", { name: "Sign in with your account" }).click();
  await page.locator("input[name=login]").fill(name);
  await page.locator("input[name=password]").fill("any");
  await page.getByRole("button").first().click();
  await page.getByRole("button", { name: "Continue" }).click();
}

const isToday = (page) => page.getByRole("heading", { level: 1, name: /^Today/ }).waitFor();

async function annaIsAnAdmin(browser, settings) {
  const page = await open(browser, settings);
  await signIn(page, "anna", "/console/new-policy");
  // The browser goes on by itself, to the page that she wanted.
  await page.waitForURL("**/console/new-policy");
  const policy = settings.javaScriptEnabled ? "with" : "without";
  await page.getByLabel("Name").fill(policy);
  await page.getByLabel("Units", { exact: true }).fill("2");
  await page.getByLabel("Time zone").fill("UTC");
  await page.getByLabel("Reason").fill("anna wants it");
  await page.getByRole("button", { name: "Preview the change" }).click();
  await page.getByRole("button", { name: "Apply the change" }).click();
  await page.getByRole("heading", { level: 1, name: `Policy ${policy}` }).waitFor();
  await page.goto("/console/changes");
  await says(page, "anna@example.com");
  const [own] = await keysOf("anna@example.com");
  assert.equal(own.role, "admin");
  assert.equal((await api("GET", `/v1/policies/${policy}`)).changed_by, own.id);
  return page;
}

async function bobHelps(browser) {
  const page = await open(browser, {});
  await signIn(page, "bob");
  await isToday(page);
  const [before] = await keysOf("bob@example.com");
  assert.deepEqual([before.role, before.bounds], ["support", { max: 10, days: 30 }]);
  assert.equal((await page.goto("/console/new-policy")).status(), 403);
  // He becomes an auditor. The next sign-in says so, everywhere, and there is still one key of his.
  people.bob.groups = ["auditors"];
  const other = await open(browser, {});
  await signIn(other, "bob");
  await isToday(other);
  const keys = await keysOf("bob@example.com");
  assert.deepEqual(keys.map((found) => [found.id, found.role, found.version]), [[before.id, "audit", before.version + 1]]);
  await page.goto("/console");
  await page.locator("header").getByText("audit").first().waitFor();
}

// The address of somebody else, which the provider has not verified, is nobody's name.
async function doraIsNotAnna(browser) {
  const page = await open(browser, {});
  await signIn(page, "dora");
  await isToday(page);
  assert.equal((await keysOf("dora")).length, 1);
}

async function carlHasNoRole(browser) {
  const page = await open(browser, {});
  await signIn(page, "carl");
  await says(page, "carl@example.com has no role here");
  assert.deepEqual(await keysOf("carl@example.com"), []);
}

// She proposes a change, and is no admin any more: nobody can approve it. Without a group that has a role, her key ends.
async function evaLosesHerRole(browser) {
  const page = await open(browser, {});
  await signIn(page, "eva", "/console/new-policy");
  await page.waitForURL("**/console/new-policy");
  await page.getByLabel("Name").fill("guarded");
  await page.getByLabel("Units", { exact: true }).fill("2");
  await page.getByLabel("Time zone").fill("UTC");
  await page.getByLabel("Reason").fill("eva wants it");
  await page.getByRole("button", { name: "Preview the change" }).click();
  await page.getByRole("button", { name: "Apply the change" }).click();
  await page.waitForURL("**/console/approve?proposal=*");
  const proposal = new URL(page.url()).searchParams.get("proposal");
  people.eva.groups = ["auditors"];
  const other = await open(browser, {});
  await signIn(other, "eva");
  await isToday(other);
  const refused = await fetch(`${url}/v1/approvals`, {
    method: "POST",
    headers: { Authorization: `Bearer ${key}` },
    body: JSON.stringify({ proposal }),
  });
  assert.equal(refused.status, 422, await refused.text());
  people.eva.groups = [];
  const last = await open(browser, {});
  await signIn(last, "eva");
  await says(last, "eva@example.com has no role here");
  await other.goto("/console/keys");
  await other.getByLabel("API key").waitFor();
  // The next address is too long for a cookie: she is signed in, and opens it again.
  people.eva.groups = ["auditors"];
  const far = await open(browser, {});
  await signIn(far, "eva", `/console/find?q=${"a".repeat(3000)}`);
  await isToday(far);
}

// Only the browser that began can end it, once.
async function othersCannotEnd(browser) {
  const page = await open(browser, {});
  const stranger = await open(browser, {});
  let back;
  page.on("request", (request) => {
    if (request.url().includes("/console/sign-on/back?")) back = request.url();
  });
  await signIn(page, "bob");
  await isToday(page);
  for (const [who, address] of [
    [stranger, back],
    [page, back],
    [page, "/console/sign-on/back"],
    [stranger, "/console/sign-on/back?code=a&state="],
  ]) {
    assert.equal((await who.goto(address)).status(), 400);
    await says(who, "was not begun in this browser");
  }
  // The provider refuses: the browser that began is told.
  await stranger.context().clearCookies();
  let state;
  stranger.on("request", (request) => {
    state = new URL(request.url()).searchParams.get("state") ?? state;
  });
  await stranger.goto("/console/sign-in");
  await stranger.getByRole("link", { name: "Sign in with your account" }).click();
  await stranger.locator("input[name=login]").waitFor();
  const refused = await stranger.goto(`/console/sign-on/back?error=access_denied&state=${state}`);
  assert.equal(refused.status(), 403);
  // A code that the provider did not give.
  const wrong = await stranger.goto(`/console/sign-on/back?code=wrong&state=${state}`);
  assert.equal(wrong.status(), 503);
  assert.equal((await stranger.goto("/console/keys")).url(), `${url}/console/sign-in?to=%2Fconsole%2Fkeys`);
}

async function aRevokedPersonStaysOut(browser, page) {
  const [own] = await keysOf("anna@example.com");
  const path = `/v1/keys/${own.id}?reason=she+left`;
  await api("DELETE", path);
  await page.goto("/console");
  await page.getByLabel("API key").waitFor();
  const again = await open(browser, {});
  await signIn(again, "anna");
  await says(again, "An admin has revoked your access");
}

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
let server;
try {
  // The provider may come later than perdiem.
  const early = await open(browser, {});
  await early.goto("/console");
  await early.getByRole("link", { name: "Sign in with your account" }).click();
  await says(early, "The provider of accounts cannot be asked now");
  const client = { client_id: "perdiem", client_secret: secret, redirect_uris: [`${url}/console/sign-on/back`] };
  server = await startProvider(Number(port), client, people);
  const anna = await annaIsAnAdmin(browser, { javaScriptEnabled: true });
  await annaIsAnAdmin(browser, { javaScriptEnabled: false });
  await bobHelps(browser);
  await doraIsNotAnna(browser);
  await carlHasNoRole(browser);
  await evaLosesHerRole(browser);
  await othersCannotEnd(browser);
  await aRevokedPersonStaysOut(browser, anna);
} finally {
  await browser.close();
  server?.closeAllConnections();
  server?.close();
}

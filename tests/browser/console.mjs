// The console in a real browser: its story with and without JavaScript, every page for people who use a keyboard, a
// screen reader, a small screen or the dark, and nothing that the browser refuses to load.
//
//     PERDIEM_URL=… PERDIEM_KEY=… CHROMIUM=/usr/bin/chromium node console.mjs
//
// The server must be new: the story begins with "No policy yet". scripts/check-console starts one.

import assert from "node:assert/strict";
import AxeBuilder from "@axe-core/playwright";
import { chromium } from "playwright-core";
import * as visitor from "./visitor.mjs";

const { executablePath, key, says } = visitor;
const LARGE = { width: 1280, height: 900 };
const SMALL = { width: 360, height: 780 };
const SMALLEST = { width: 320, height: 640 };
const REQUESTS_MOST = 3;
const PAGES = [
  "/console",
  "/console/policies",
  "/console/policies?archived=true",
  "/console/new-policy",
  "/console/approve",
  "/console/policies/otp",
  "/console/policies/otp?hours=refused",
  "/console/policies/otp/edit",
  "/console/policies/otp/versions",
  "/console/policies/otp/pause",
  "/console/policies/otp/archive",
  "/console/policies/otp/overrides",
  "/console/policies/otp/overrides/member-1",
  "/console/policies/otp/blocks",
  "/console/policies/otp/blocks/member-2",
  "/console/subjects",
  "/console/subjects/member-1",
  "/console/subjects/member-1/adjust?policy=otp",
  "/console/subjects/member-1/reset?policy=otp",
  "/console/subjects/member-1/erase",
  "/console/subjects/nobody",
  "/console/find?q=member",
  "/console/find?q=nothing",
  "/console/entries",
  "/console/entries?on=2026-01-01",
  "/console/denials",
  "/console/changes",
  "/console/keys",
  "/console/keys/new",
  "/console/reconciliations",
  "/console/seals",
  "/console/exports",
  "/console/nothing",
];

const api = (method, path, body) => visitor.api(method, path, body, [200, 201, 429]);
const open = (browser, settings) => visitor.open(browser, { viewport: LARGE, ...settings });

async function signIn(page) {
  await page.goto("/console");
  assert.match(page.url(), /\/console\/sign-in$/);
  await page.getByLabel("API key").fill(key);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { level: 1, name: /^Today/ }).waitFor();
}

// Creates a policy, changes it, finds out why a subject was refused, and gives a unit back.
async function story(page, policy) {
  await signIn(page);
  await page.getByRole("link", { name: "New policy" }).click();
  await page.getByLabel("Name").fill(policy);
  await page.getByLabel("Units", { exact: true }).fill("2");
  await page.getByLabel("Time zone").fill("Asia/Shangai");
  await page.getByLabel("Reason").fill("the browser's test");
  await page.getByRole("button", { name: "Preview the change" }).click();
  await says(page, "did you mean Asia/Shanghai?");
  await page.getByLabel("Time zone").fill("Asia/Shanghai");
  await page.getByRole("button", { name: "Preview the change" }).click();
  await says(page, "A new policy: 2 per day, Asia/Shanghai, at once.");
  await page.getByRole("button", { name: "Apply the change" }).click();
  await page.getByRole("heading", { level: 1, name: `Policy ${policy}` }).waitFor();
  // A change.
  await page.getByRole("link", { name: "Edit" }).click();
  await page.getByLabel("Units", { exact: true }).first().fill("1");
  await page.getByLabel("Reason").fill("fewer");
  await page.getByRole("button", { name: "Preview the change" }).click();
  await says(page, "1 setting would change, at once.");
  await page.getByRole("button", { name: "Apply the change" }).click();
  await says(page, "1 per day for each subject");
  // A refusal, and a unit that goes back.
  const subject = `${policy}-member`;
  for (const expected of ["granted", "denied"]) {
    const answer = await api("POST", `/v1/policies/${policy}/claims`, { subject });
    assert.equal(answer.outcome, expected);
  }
  await page.getByRole("searchbox").fill(subject);
  await page.getByRole("searchbox").press("Enter");
  await page.getByRole("heading", { level: 1, name: `Subject ${subject}` }).waitFor();
  await says(page, "1 of 1 per day");
  await page.getByRole("link", { name: "Give back" }).click();
  await page.getByLabel("Reason").fill("the parcel came back");
  await page.getByRole("button", { name: "Give the units back" }).dblclick();
  await says(page, "Given back: the parcel came back");
  const entries = await api("GET", `/v1/policies/${policy}/subjects/${subject}/entries`);
  assert.deepEqual(entries.items.map((entry) => entry.kind), ["reversal", "grant"]);
  // Back to a page that asks: the form of before is out of date, and nothing is lost.
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByRole("heading", { level: 1, name: "Sign in" }).waitFor();
  await page.goto("/console");
  assert.match(page.url(), /sign-in/);
}

// The whole way by keyboard: from the link over the menu to the content, and to a subject.
async function byKeyboard(page) {
  await signIn(page);
  await page.goto("/console/policies");
  await page.keyboard.press("Tab");
  const first = page.locator(":focus");
  assert.equal(await first.textContent(), "Skip to content");
  await page.keyboard.press("/");
  assert.equal(await page.locator(":focus").getAttribute("id"), "q");
  await page.keyboard.type("member-1");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { level: 1, name: "Subject member-1" }).waitFor();
  // Everything that acts is reached, and shows that it has the focus.
  const targets = await page.locator("a, button, input:not([type=hidden]), select, summary").all();
  const visible = [];
  for (const target of targets) {
    if (await target.isVisible()) visible.push(target);
  }
  assert.ok(visible.length > 10);
  for (const target of visible) {
    await target.focus();
    const shown = await target.evaluate((node) => getComputedStyle(node).outlineStyle);
    assert.notEqual(shown, "none", await target.evaluate((node) => node.outerHTML));
  }
}

async function accessible(page, path) {
  const { violations } = await new AxeBuilder({ page }).analyze();
  const told = violations.map(({ id, help, nodes }) => {
    const places = nodes.map((node) => node.html.slice(0, 200)).join("\n    ");
    return `${id}: ${help}\n    ${places}`;
  });
  assert.equal(told.length, 0, `${path} ${JSON.stringify(page.viewportSize())}\n${told.join("\n")}`);
}

async function everyPage(browser, pages) {
  for (const colorScheme of ["light", "dark"]) {
    const page = await open(browser, { colorScheme });
    await signIn(page);
    for (const path of pages) {
      let requests = 0;
      const count = () => (requests += 1);
      page.on("request", count);
      await page.goto(path);
      page.off("request", count);
      assert.ok(requests <= REQUESTS_MOST, `${path}: ${requests} requests`);
      for (const size of [LARGE, SMALL]) {
        await page.setViewportSize(size);
        await accessible(page, path);
      }
      await page.setViewportSize(SMALLEST);
      const wide = await page.evaluate(() => {
        const { scrollWidth, clientWidth } = document.documentElement;
        const isWide = (node) => node.getBoundingClientRect().right > clientWidth + 1;
        const nodes = scrollWidth > clientWidth ? [...document.querySelectorAll("body *")] : [];
        return nodes.filter(isWide).map((node) => node.outerHTML.slice(0, 100));
      });
      assert.deepEqual(wide, [], `${path} is wider than ${SMALLEST.width}`);
      await page.setViewportSize(LARGE);
    }
    await page.context().close();
  }
}

// Something for every page to show.
async function furnish() {
  const policy = {
    time_zone: "Asia/Shanghai",
    limits: [{ max: 3, per: "hour" }, { max: 20, per: "day" }],
    description: "verification codes",
    reason: "start",
  };
  await api("PUT", "/v1/policies/otp", policy);
  await api("PUT", "/v1/policies/otp", { ...policy, limits: [{ max: 3, per: "hour" }], reason: "simpler" });
  for (let number = 0; number < 5; number += 1) {
    await api("POST", "/v1/policies/otp/claims", { subject: "member-1", metadata: { order: `A-${number}` } });
  }
  await api("POST", "/v1/policies/otp/claims", { subject: "member-2", hold_seconds: 600 });
  await api("PUT", "/v1/policies/otp/overrides/member-1", { limits: [{ max: 9, per: "hour" }], reason: "vip" });
  await api("PUT", "/v1/policies/otp/blocks/member-2", { reason: "chargebacks" });
  const report = await api("POST", "/v1/reconciliations", {});
  const grants = await api("GET", "/v1/grants?limit=1");
  const keys = await api("POST", "/v1/keys", { name: "shop", role: "claim" });
  const grant = grants.items[0].id;
  return [
    `/console/grants/${grant}`,
    `/console/grants/${grant}/give-back`,
    `/console/keys/${keys.id}`,
    `/console/reconciliations/${report.id}`,
  ];
}

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
try {
  const step = async (name, work) => {
    const began = Date.now();
    await work();
    console.log(`${name}: ${((Date.now() - began) / 1000).toFixed(1)} s`);
  };
  await step("without JavaScript", async () => {
    await story(await open(browser, { javaScriptEnabled: false }), "without");
  });
  await step("with JavaScript", async () => story(await open(browser, {}), "with"));
  const more = await furnish();
  await step("by keyboard", async () => byKeyboard(await open(browser, {})));
  await step("every page", async () => everyPage(browser, ["/console/sign-in", ...PAGES, ...more]));
} finally {
  await browser.close();
}

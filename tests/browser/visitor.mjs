// What every script of the browser needs: requests to the server with its admin key, and a browser that looks closely.

import assert from "node:assert/strict";

export const { PERDIEM_URL: url, PERDIEM_KEY: key, CHROMIUM: executablePath } = process.env;

// Sends a request, which must get one of the statuses. Returns its answer.
export async function api(method, path, body, statuses = [200]) {
  const answer = await fetch(`${url}${path}`, {
    method,
    headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" },
    body: body && JSON.stringify(body),
  });
  const text = await answer.text();
  assert.ok(statuses.includes(answer.status), `${method} ${path} got ${answer.status}: ${text}`);
  return JSON.parse(text);
}

// A page of a new visitor, which fails the test when it loads something that it may not.
export async function open(browser, settings) {
  const context = await browser.newContext({ baseURL: url, ...settings });
  const page = await context.newPage();
  page.setDefaultTimeout(30_000);
  page.on("console", (message) => {
    const isOfPage = message.text().startsWith("Failed to load resource");
    if (message.type() === "error" && !isOfPage) {
      throw new Error(`${page.url()}: ${message.text()}`);
    }
  });
  page.on("pageerror", (error) => {
    throw error;
  });
  return page;
}

export const says = (page, text) => page.locator("main").getByText(text).first().waitFor();

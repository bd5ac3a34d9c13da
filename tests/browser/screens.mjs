// The screens of the console that the documents show: pictures in WebP without loss, and the words of each page.
//
//     PERDIEM_URL=… PERDIEM_KEY=… CHROMIUM=/usr/bin/chromium PICTURES=docs/pictures \
//         WORDS=tests/browser/screens.txt node screens.mjs [--check]
//
// scripts/draw-screens starts `perdiem demo` at a fixed instant, and says what --check compares.

import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { chromium } from "playwright-core";

const { PERDIEM_URL: url, PERDIEM_KEY: key, CHROMIUM: executablePath, PICTURES: folder, WORDS } = process.env;
const isCheck = process.argv.includes("--check");
const WIDE = { name: "", width: 1280, height: 800 };
const NARROW = { name: "-small", width: 360, height: 740 };
const SCHEMES = ["light", "dark"];
const BYTES_MOST = 60_000;
// How much of a page's height, and of a picture's area by colour, may differ.
const TOLERANCE = 0.1;

async function get(path) {
  const answer = await fetch(`${url}${path}`, { headers: { Authorization: `Bearer ${key}` } });
  assert.equal(answer.status, 200, path);
  return answer.json();
}

// The pages, each with the sizes in which it is drawn.
async function screens() {
  const { items } = await get("/v1/grants?policy=benefit&state=reversed&limit=1");
  return [
    { name: "today", path: "/console", sizes: [WIDE, NARROW] },
    { name: "policy", path: "/console/policies/benefit", sizes: [WIDE, NARROW] },
    { name: "subject", path: "/console/subjects/member-42", sizes: [WIDE, NARROW] },
    { name: "versions", path: "/console/policies/benefit/versions", sizes: [WIDE] },
    { name: "grant", path: `/console/grants/${items[0].id}`, sizes: [WIDE] },
    { name: "keys", path: "/console/keys", sizes: [WIDE] },
  ];
}

// Replaces what differs each time: ids, and how long ago something was. Runs in the page.
function settle() {
  const always = [
    [/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g, "019abcde-0123-7456-89ab-cdef01234567"],
    [/(As of .*:)\d\d/g, "$100"],
    [/rendered in \d+ ms/g, "rendered in 4 ms"],
    [/\b(\d+ (seconds?|minutes?) ago|just now)\b/g, "3 minutes ago"],
    [/\bin \d+ (seconds?|minutes?)\b/g, "in 4 minutes"],
  ];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode;
    for (const [pattern, text] of always) {
      node.textContent = node.textContent.replace(pattern, text);
    }
  }
}

// The words of the page, a line for each block. Runs in the page.
function words() {
  const text = document.querySelector("main").innerText;
  return text.split("\n").map((line) => line.replace(/\s+/g, " ").trim()).filter(Boolean);
}

// A picture in WebP, from one in PNG. Runs in an empty page.
async function toWebp(png) {
  const bytes = await (await fetch(`data:image/png;base64,${png}`)).blob();
  const bitmap = await createImageBitmap(bytes);
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
  canvas.getContext("2d").drawImage(bitmap, 0, 0);
  const blob = await canvas.convertToBlob({ type: "image/webp", quality: 1 });
  return btoa(Array.from(new Uint8Array(await blob.arrayBuffer()), (byte) => String.fromCharCode(byte)).join(""));
}

// The width of a picture, and the share of each colour in its area, where a colour has 8 steps of each kind of
// light. Runs in an empty page.
async function colours([type, data]) {
  const bytes = await (await fetch(`data:image/${type};base64,${data}`)).blob();
  const { width, height } = await createImageBitmap(bytes);
  const canvas = new OffscreenCanvas(width, height);
  const drawing = canvas.getContext("2d");
  drawing.drawImage(await createImageBitmap(bytes), 0, 0);
  const { data: light } = drawing.getImageData(0, 0, width, height);
  const shares = {};
  for (let place = 0; place < light.length; place += 4) {
    const colour = [0, 1, 2].map((kind) => light[place + kind] >> 5).join(" ");
    shares[colour] = (shares[colour] ?? 0) + 4 / light.length;
  }
  return { width, height, shares };
}

// The share of the area whose colour differs.
function difference(one, other) {
  const names = new Set([...Object.keys(one), ...Object.keys(other)]);
  const apart = [...names].map((name) => Math.abs((one[name] ?? 0) - (other[name] ?? 0)));
  return apart.reduce((sum, share) => sum + share, 0) / 2;
}

// What differs between the words of a picture and those of now.
function changedLines(before, now) {
  const gone = before.filter((line) => !now.includes(line)).map((line) => `- ${line}`);
  const come = now.filter((line) => !before.includes(line)).map((line) => `+ ${line}`);
  return [...gone, ...come, ...(before.join("\n") === now.join("\n") ? [] : ["the words, or their order, differ"])];
}

function sections(text) {
  const found = text.split(/^# /m).slice(1).map((section) => section.trimEnd().split("\n"));
  return new Map(found.map(([title, ...lines]) => [title, lines]));
}

const faults = [];
const browser = await chromium.launch({
  executablePath,
  args: ["--no-sandbox", "--font-render-hinting=none", "--disable-lcd-text"],
});
try {
  const empty = await (await browser.newContext()).newPage();
  const known = isCheck ? sections(await readFile(WORDS, "utf8")) : new Map();
  const told = [];
  let bytesOfAll = 0;
  for (const colorScheme of SCHEMES) {
    const context = await browser.newContext({ baseURL: url, colorScheme, viewport: WIDE });
    const page = await context.newPage();
    await page.goto("/console/sign-in");
    await page.getByLabel("API key").fill(key);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByRole("heading", { level: 1, name: /^Today/ }).waitFor();
    for (const { name, path, sizes } of await screens()) {
      for (const size of sizes) {
        await page.setViewportSize(size);
        await page.goto(path);
        await page.evaluate(settle);
        const title = `${name}${size.name}-${colorScheme}`;
        const height = await page.evaluate(() => document.documentElement.scrollHeight);
        const png = (await page.screenshot()).toString("base64");
        const file = join(folder, `screen-${title}.webp`);
        const now = [`height ${height}`, ...(await page.evaluate(words))];
        told.push(`# ${title}`, ...(colorScheme === "light" ? now : now.slice(0, 1)));
        if (!isCheck) {
          const webp = Buffer.from(await empty.evaluate(toWebp, png), "base64");
          assert.ok(webp.length <= BYTES_MOST, `${file} has ${webp.length} bytes`);
          bytesOfAll += webp.length;
          await writeFile(file, webp);
          continue;
        }
        // 1. The words. Both colour schemes have the same.
        const [heightBefore = "height 0", ...before] = known.get(title) ?? [];
        const changed = colorScheme === "light" ? changedLines(before, now.slice(1)) : [];
        // 2. The height of the page, and the size and the colours of the picture.
        const drawn = Number(heightBefore.split(" ")[1]);
        if (Math.abs(height - drawn) > TOLERANCE * drawn) changed.push(`height ${drawn} was, ${height} is`);
        const picture = (await readFile(file)).toString("base64");
        const shown = await empty.evaluate(colours, ["webp", picture]);
        const shows = await empty.evaluate(colours, ["png", png]);
        if (shown.width !== shows.width || shown.height !== shows.height) changed.push("the picture has another size");
        const apart = difference(shown.shares, shows.shares);
        if (apart > TOLERANCE) changed.push(`${(apart * 100).toFixed(0)} % of the area have another colour`);
        if (changed.length > 0) faults.push(`${title}:`, ...changed.map((line) => `  ${line}`));
      }
    }
    await context.close();
  }
  if (!isCheck) {
    await writeFile(WORDS, `${told.join("\n")}\n`);
    console.log(`the screens have ${Math.round(bytesOfAll / 1000)} kB`);
  }
} finally {
  await browser.close();
}
if (faults.length > 0) {
  console.log(faults.join("\n"));
  console.log("the console no longer looks like its pictures: run scripts/draw-screens, look at them, and commit them");
  process.exit(1);
}
if (isCheck) console.log("the console looks like its pictures");

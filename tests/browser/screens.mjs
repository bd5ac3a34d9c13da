// The screens of the console that the documents show: pictures, and the words of each page.
//
//     PERDIEM_URL=… PERDIEM_KEY=… CHROMIUM=/usr/bin/chromium PICTURES=docs/pictures \
//         WORDS=tests/browser/screens.txt node screens.mjs [--check]
//
// scripts/draw-screens starts `perdiem demo` at a fixed instant, and says what --check compares.

import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { deflateSync } from "node:zlib";
import { chromium } from "playwright-core";
import { api, executablePath, key, url } from "./visitor.mjs";

const { PICTURES: folder, WORDS } = process.env;
const isCheck = process.argv.includes("--check");
const WIDE = { name: "", width: 1280, height: 800 };
const NARROW = { name: "-small", width: 360, height: 740 };
const SCHEMES = ["light", "dark"];
const BYTES_MOST = 60_000;
// How much of a page's height, and of a picture's area by colour, may differ.
const TOLERANCE = 0.1;

// The pages, each with the sizes in which it is drawn.
async function screens() {
  const { items } = await api("GET", "/v1/grants?policy=benefit&state=reversed&limit=1");
  return [
    { name: "today", path: "/console", sizes: [WIDE, NARROW] },
    { name: "policy", path: "/console/policies/benefit", sizes: [WIDE, NARROW] },
    { name: "subject", path: "/console/subjects/member-42", sizes: [WIDE, NARROW] },
    { name: "versions", path: "/console/policies/benefit/versions", sizes: [WIDE] },
    { name: "grant", path: `/console/grants/${items[0].id}`, sizes: [WIDE] },
    { name: "keys", path: "/console/keys", sizes: [WIDE] },
  ];
}

// Replaces what differs each time, also in the pictures. Runs in the page.
function settle() {
  const always = [
    [/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g, "019abcde-0123-7456-89ab-cdef01234567"],
    [/rendered in \d+ ms/, "rendered in 4 ms"],
  ];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode;
    for (const [pattern, text] of always) {
      node.textContent = node.textContent.replace(pattern, text);
    }
  }
  const foot = document.querySelector("footer time");
  foot.textContent = foot.textContent.replace(/:\d\d /, ":00 ");
  // Days are closed a few seconds sooner or later, and each has a position too.
  for (const name of document.querySelectorAll("dt")) {
    if (name.textContent === "Position") name.nextElementSibling.textContent = "2 345";
  }
}

// The words of the page, a line for each block, without times that pass while the pictures are drawn. Runs in the
// page.
function words() {
  const text = document.querySelector("main").innerText;
  const passing = [
    [/(in )?(\d+ (d|h|min|s)\b ?)+(ago)?/g, "… "],
    [/^At \d\d:\d\d:\d\d/, "At …"],
    [/\s+/g, " "],
  ];
  const shown = (line) => passing.reduce((told, [pattern, to]) => told.replace(pattern, to), line);
  return text.split("\n").map((line) => shown(line).trim()).filter(Boolean);
}

// The picture with 16 colours, chosen one by one: next is the colour whose points lie furthest from what is chosen.
// Each of the others, mostly from the edges of letters, becomes the nearest of them. Gives the colours, and the place of the colour of each point. Runs in an empty page.
async function withFewColours(png) {
  const bytes = await (await fetch(`data:image/png;base64,${png}`)).blob();
  const { width, height } = await createImageBitmap(bytes);
  const drawing = new OffscreenCanvas(width, height).getContext("2d");
  drawing.drawImage(await createImageBitmap(bytes), 0, 0);
  const points = new Uint32Array(drawing.getImageData(0, 0, width, height).data.buffer);
  const counts = new Map();
  for (const point of points) counts.set(point, (counts.get(point) ?? 0) + 1);
  const parts = (point) => [point & 255, (point >> 8) & 255, (point >> 16) & 255];
  const apart = (one, other) => one.reduce((sum, part, kind) => sum + (part - other[kind]) ** 2, 0);
  const frequent = [...counts].sort((one, other) => other[1] - one[1]).slice(0, 500);
  let left = frequent.map(([point, count]) => ({ colour: parts(point), count, distance: 3 * 255 ** 2 }));
  const palette = [];
  while (palette.length < 16 && left.length > 0) {
    const weight = ({ count, distance }) => count * distance;
    const { colour } = left.reduce((best, next) => (weight(next) > weight(best) ? next : best));
    palette.push(colour);
    left = left.map((it) => ({ ...it, distance: Math.min(it.distance, apart(it.colour, colour)) }));
    left = left.filter(({ distance }) => distance > 0);
  }
  const places = new Map();
  for (const point of counts.keys()) {
    const distances = palette.map((colour) => apart(parts(point), colour));
    places.set(point, distances.indexOf(Math.min(...distances)));
  }
  return { width, height, palette, points: Array.from(points, (point) => places.get(point)) };
}

// The check sum of a chunk of a PNG (Node.js 18 has none).
function crc32(bytes) {
  let sum = 0xffffffff;
  for (const byte of bytes) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit += 1) sum = (sum >>> 1) ^ (sum & 1 ? 0xedb88320 : 0);
  }
  return ~sum >>> 0;
}

// A PNG with a palette, two points in a byte: a fifth of what the browser writes.
function toPng({ width, height, palette, points }) {
  const row = 1 + Math.ceil(width / 2);
  const rows = Buffer.alloc(row * height);
  points.forEach((colour, place) => {
    const x = place % width;
    rows[Math.floor(place / width) * row + 1 + (x >> 1)] |= x % 2 ? colour : colour << 4;
  });
  const chunk = (kind, data) => {
    const body = Buffer.concat([Buffer.from(kind, "latin1"), data]);
    const ends = [Buffer.alloc(4), Buffer.alloc(4)];
    ends[0].writeUInt32BE(data.length);
    ends[1].writeUInt32BE(crc32(body));
    return Buffer.concat([ends[0], body, ends[1]]);
  };
  const head = Buffer.alloc(13);
  head.writeUInt32BE(width, 0);
  head.writeUInt32BE(height, 4);
  // 4 bits a point, each the number of a colour.
  head.set([4, 3, 0, 0, 0], 8);
  return Buffer.concat([
    Buffer.from("\x89PNG\r\n\x1a\n", "latin1"),
    chunk("IHDR", head),
    chunk("PLTE", Buffer.from(palette.flat())),
    chunk("IDAT", deflateSync(rows, { level: 9, memLevel: 9 })),
    chunk("IEND", Buffer.alloc(0)),
  ]);
}

// The width of a picture, and the share of each colour in its area, where a colour has 8 steps of each kind of
// light. Runs in an empty page.
async function colours(png) {
  const bytes = await (await fetch(`data:image/png;base64,${png}`)).blob();
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
  args: ["--no-sandbox", "--disable-lcd-text", "--disable-font-subpixel-positioning"],
});
try {
  const empty = await (await browser.newContext()).newPage();
  const known = isCheck ? sections(await readFile(WORDS, "utf8")) : new Map();
  const told = [];
  let bytesOfAll = 0;
  for (const colorScheme of SCHEMES) {
    const context = await browser.newContext({ baseURL: url, colorScheme, locale: "en-GB", viewport: WIDE });
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
        const file = join(folder, `screen-${title}.png`);
        const now = [`height ${height}`, ...(await page.evaluate(words))];
        told.push(`# ${title}`, ...(colorScheme === "light" ? now : now.slice(0, 1)));
        if (!isCheck) {
          const bytes = toPng(await empty.evaluate(withFewColours, png));
          assert.ok(bytes.length <= BYTES_MOST, `${file} has ${bytes.length} bytes`);
          bytesOfAll += bytes.length;
          await writeFile(file, bytes);
          continue;
        }
        // 1. The words. Both colour schemes have the same.
        const [heightBefore = "height 0", ...before] = known.get(title) ?? [];
        const changed = colorScheme === "light" ? changedLines(before, now.slice(1)) : [];
        // 2. The height of the page, and the size and the colours of the picture.
        const drawn = Number(heightBefore.split(" ")[1]);
        if (Math.abs(height - drawn) > TOLERANCE * drawn) changed.push(`height ${drawn} was, ${height} is`);
        const picture = (await readFile(file)).toString("base64");
        const shown = await empty.evaluate(colours, picture);
        const shows = await empty.evaluate(colours, png);
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

// What Firefox makes of home, a card, study and the handbook, as JSON on standard output.
// node firefox.mjs FIREFOX SITE HANDBOOK OUT: a browser, an address, a file's address, a folder for what is printed.
import { writeFileSync } from "node:fs";
import puppeteer from "puppeteer-core";

const [executablePath, site, handbook, out] = process.argv.slice(2);
const browser = await puppeteer.launch({ browser: "firefox", executablePath, headless: true, args: ["--width=1280", "--height=900"] });
const found = { version: await browser.version(), errors: [] };

async function open(address) {
  const page = await browser.newPage();
  page.setDefaultTimeout(60_000);
  page.on("pageerror", (error) => found.errors.push(`${address}: ${error.message}`));
  page.on("console", (message) => message.type() === "error" && found.errors.push(`${address}: ${message.text()}`));
  await page.goto(address, { waitUntil: "load" });
  return page;
}
const mode = (page) => page.evaluate(() => document.documentElement.dataset.pdMode);
const kept = (page) => page.evaluate(() => JSON.parse(localStorage.getItem("proofdeck.study")) || { items: {}, log: [] });

// Home: the language by key; the search dialog finds and closes.
async function home() {
  const page = await open(`${site}?lang=en`);
  const before = await mode(page);
  await page.keyboard.press("l");
  const after = await mode(page);
  await page.keyboard.press("/");
  await page.waitForSelector(".pd-search[open]");
  await page.keyboard.type("FlashAttention");
  await page.waitForSelector(".pd-hit-card");
  const hit = await page.$eval(".pd-hit-card", (link) => link.href);
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => !document.querySelector(".pd-search[open]"));
  found.home = { before, after, hit, wide: await page.evaluate(() => document.documentElement.scrollWidth - innerWidth) };
  await page.close();
}

// A card: the math font's stretching, the line under a number with an exponent, the proof beside it.
async function card() {
  const page = await open(`${site}cards/checkpoint-torch/?lang=en`);
  found.card = await page.evaluate(async () => {
    const tall = (html) => {
      const holder = document.createElement("p");
      holder.innerHTML = html;
      document.querySelector(".pd-half:lang(en)").append(holder);
      return holder;
    };
    const fraction = "<mfrac><mfrac><mn>1</mn><mn>2</mn></mfrac><mfrac><mn>3</mn><mn>4</mn></mfrac></mfrac>";
    const fence = tall(`<math display="block"><mrow><mo stretchy="true">(</mo>${fraction}<mo stretchy="true">)</mo></mrow></math>`);
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    await document.fonts.ready; // which it is asked for where a formula shows
    const font = [...document.fonts].find((each) => each.family.includes("STIX Two Math"))?.status;
    const height = (holder, name) => holder.querySelector(name).getBoundingClientRect().height;
    const lines = [...document.querySelectorAll(".pd-claim")].filter((claim) => claim.querySelector("msup")).map((claim) => {
      const { textDecorationLine, borderBottomWidth } = getComputedStyle(claim);
      return [textDecorationLine, parseFloat(borderBottomWidth)];
    });
    const stretched = height(fence, "mo") / height(fence, "mfrac");
    fence.remove();
    return { font, stretched, lines };
  });
  await page.evaluate(() => [...document.querySelectorAll(".pd-claim[data-verdict=proven]")].find((claim) => claim.checkVisibility()).focus({ focusVisible: true }));
  await page.waitForSelector(".pd-tip");
  found.card.tip = await page.$eval(".pd-tip", (tip) => tip.textContent.includes("proofdeck demo run") && tip.matches(":popover-open"));
  await page.keyboard.press("Escape");
  found.card.tipsLeft = (await page.$$(".pd-tip")).length;
  found.card.answers = await page.$$eval('[data-lang="en"] .pd-answer > p:first-child', (all) => all.map((each) => each.textContent));
  writeFileSync(`${out}/card.pdf`, await page.pdf({ format: "A4" }));
  found.card.closedAgain = await page.$$eval("details.pd-followup[open]", (all) => all.length === 0);
  await page.close();
}

// Study: two tabs that began with nothing keep each other's ratings; replacing asks in a dialog.
async function study() {
  const tabs = [await open(`${site}study/?lang=en`), await open(`${site}study/?lang=en`)];
  for (const tab of tabs) {
    await tab.bringToFront();
    await tab.waitForSelector(".pd-start");
    await tab.select("[data-pd-study] select[name=kind]", "pitfall");
    await tab.click(".pd-start");
    await tab.waitForSelector(".pd-back > .pd-primary");
  }
  for (const rating of [3, 2]) {
    for (const tab of tabs) {
      await tab.bringToFront();
      await tab.click(".pd-back > .pd-primary");
      await tab.waitForSelector(`[data-rating="${rating}"]`);
      await tab.click(`[data-rating="${rating}"]`);
      await tab.waitForSelector(".pd-back > .pd-primary");
    }
  }
  await tabs[0].waitForFunction(() => JSON.parse(localStorage.getItem("proofdeck.study"))?.log.length === 4);
  await tabs[0].evaluate(() => [...document.querySelectorAll(".pd-sheet-head button")][0].click());
  await tabs[0].waitForSelector(".pd-start");
  const scheduled = () => tabs[0].$eval(".pd-counts", (counts) => Number(counts.querySelectorAll("dd")[1].textContent));
  const before = await scheduled();
  await tabs[1].click(".pd-back > .pd-primary");
  await tabs[1].waitForSelector('[data-rating="4"]');
  await tabs[1].click('[data-rating="4"]');
  await tabs[0].waitForFunction((n) => Number(document.querySelectorAll(".pd-counts dd")[1].textContent) === n - 1, {}, before);
  const { items, log } = await kept(tabs[0]);
  await tabs[0].evaluate(() => {
    const file = new DataTransfer();
    file.items.add(new File(['{"version":1,"items":{},"log":[]}'], "none.json"));
    [...document.querySelectorAll(".pd-backup button")].find((each) => each.textContent.includes("Replace")).click();
    const input = document.querySelector("#pd-study-file");
    input.files = file.files;
    input.dispatchEvent(new Event("change"));
  });
  await tabs[0].bringToFront();
  await tabs[0].waitForSelector("dialog.pd-ask[open]");
  await tabs[0].keyboard.press("Escape");
  await tabs[0].waitForFunction(() => !document.querySelector("dialog.pd-ask"));
  found.study = { items: Object.keys(items), log, after: (await kept(tabs[0])).log.length };
  for (const tab of tabs) await tab.close();
}

// The handbook, from a disk: one card with its sections, the language, an anchor that is none, and progress.
async function book() {
  const page = await open(`${handbook}?lang=en#card-checkpoint-torch`);
  const sections = await page.$$eval(".pd-sections a", (all) => all.map((each) => each.hash));
  await page.keyboard.press("l");
  const both = await mode(page);
  await page.evaluate(() => (location.hash = "card-flash-atention"));
  await page.waitForSelector(".pd-lost");
  const nearest = await page.$eval(".pd-lost a", (link) => link.hash);
  await page.evaluate(() => (location.hash = "study"));
  await page.waitForSelector(".pd-start");
  found.handbook = { sections, both, nearest, wide: await page.evaluate(() => document.documentElement.scrollWidth - innerWidth) };
  await page.close();
}

try {
  await home();
  await card();
  await study();
  await book();
} finally {
  await browser.close();
}
console.log(JSON.stringify(found));

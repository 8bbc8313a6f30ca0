// Joins the parts: which model, which file, and what happens when something is chosen, dropped, pasted or clicked.

import { decode, draw } from "./drawing.js";
import { Live } from "./live.js";
import { ServerError, apiKey, describe, listModels, predict, setApiKey } from "./server.js";
import { curl, isDetector, python } from "./snippets.js";
import { $, clearMessage, make, showAnswer, showBusy, showError, showNote, showObjects, showTimes, threshold, visible } from "./view.js";

const AGAIN_MS = 2000; // until models that load are asked for again
const MOST_FILES = 100;

let models = []; // {name, version, label}; the version is empty if the server has one of that name alone
let model = null; // the one of them that is picked
let metadata = null; // of the model; null if it is not ready
let items = []; // files: {file, result, error, model: the label of the one that was asked}
let current = null; // the item that is shown
let shown = null; // what is on the canvas: {picture, width, height, detections}
let live = null; // a camera or a video that runs
let turn = 0; // counts what is to be shown: what was asked for before comes too late
let working = Promise.resolve(); // files are sent one after another

// -- models ---------------------------------------------------------------------------------------------------------------

async function loadModels() {
  let found;
  try {
    found = await listModels();
  } catch (error) {
    showError(error);
    return;
  }
  models = found.map(({ name, version }) => {
    const alone = found.filter((each) => each.name === name).length === 1;
    return { name, version: alone ? "" : version, label: alone ? name : `${name}, version ${version}` };
  });
  const before = models.findIndex((each) => each.label === model?.label);
  const ready = found.findIndex((each) => each.state === "READY");
  $("model").replaceChildren(...models.map(({ label }, index) => {
    const { state } = found[index];
    return make("option", state === "READY" ? label : `${label} (${state.toLowerCase()})`, { value: label });
  }));
  $("model").selectedIndex = before >= 0 ? before : Math.max(0, ready);
  if (models.length) await pickModel(models[$("model").selectedIndex]);
  if (found.some((each) => each.state === "LOADING")) setTimeout(loadModels, AGAIN_MS);
}

async function pickModel(picked) {
  model = picked;
  metadata = null;
  clearMessage();
  try {
    const described = await describe(picked);
    if (model !== picked) return; // another one was picked meanwhile
    metadata = described;
  } catch (error) {
    showError(error);
  }
  showCode();
  $("text-card").hidden = metadata === null || isDetector(metadata);
  if (current && current.model !== picked.label) await send(current);
}

// -- files ----------------------------------------------------------------------------------------------------------------

async function take(files) {
  if (!files.length || model === null) return;
  clearMessage();
  stopLive();
  const video = files.find((file) => file.type.startsWith("video/"));
  if (video) {
    await watch((source) => source.openFile(video));
    return;
  }
  if (files.length > MOST_FILES) showNote(`The first ${MOST_FILES} of ${files.length} files are taken.`);
  const taken = files.slice(0, MOST_FILES).map((file) => ({ file, result: null, error: null, model: "" }));
  items = [...taken, ...items].slice(0, MOST_FILES);
  select(taken[0]);
  for (const item of taken) await send(item);
}

// Sends a file to the model, after those before it, and shows what comes if it is still the one that is looked at.
function send(item) {
  working = working.then(async () => {
    if (item === current) showBusy(`Waiting for ${model.label} …`);
    item.model = model.label;
    item.error = item.result = null;
    try {
      item.result = await predict(model, item.file);
    } catch (error) {
      item.error = error;
    }
    if (item === current) await showItem();
    showItems();
  });
  return working;
}

function select(item) {
  current = item;
  showItems();
  showItem();
}

function showItems() {
  $("items").hidden = items.length < 2;
  $("items").replaceChildren(...items.map((item) => {
    const button = make("button", item.file.name || "pasted image", { type: "button", "aria-pressed": String(item === current) });
    const count = item.result?.value?.detections?.length;
    if (item.error) button.append(make("span", "error", { class: "badge bad" }));
    else if (count !== undefined) button.append(make("span", String(count), { class: "badge" }));
    button.addEventListener("click", () => {
      stopLive();
      select(item);
      if (item.error || (item.model && item.model !== model.label)) send(item); // what failed is tried again
    });
    const entry = make("li");
    entry.append(button);
    return entry;
  }));
}

async function showItem() {
  const item = current;
  const mine = ++turn;
  const { file, result, error } = item;
  clearMessage();
  if (error) showError(error);
  showBusy(result || error ? "" : `Waiting for ${model.label} …`);
  const picture = result?.kind.startsWith("image/") ? result.blob : file;
  const { width = 0, height = 0 } = result?.value ?? {};
  const decoded = file.type.startsWith("image/") || picture !== file ? await decode(picture, width, height) : null;
  if (mine === turn) await showResult(decoded, result);
}

// -- what is shown --------------------------------------------------------------------------------------------------------

async function showResult(picture, result) {
  const detections = Array.isArray(result?.value?.detections) ? result.value.detections : null;
  const width = result?.value?.width || picture?.width || 0;
  const height = result?.value?.height || picture?.height || 0;
  shown = { picture, width, height, detections };
  redraw();
  showTimes(result?.stages ?? null, result?.roundTrip);
  await showAnswer(result && detections === null && !result.kind.startsWith("image/") ? result : null);
}

function redraw() {
  if (shown === null) return;
  const { picture, width, height, detections } = shown;
  $("canvas").hidden = !width;
  $("hint").hidden = Boolean(width);
  $("stage").classList.toggle("empty", !width);
  showObjects(detections);
  if (width) draw($("canvas"), picture, width, height, detections ? visible(detections) : []);
}

// -- a camera, a video ----------------------------------------------------------------------------------------------------

async function watch(open) {
  if (model === null) return;
  stopLive();
  clearMessage();
  current = null;
  turn += 1;
  showItems();
  const mine = new Live($("video"), (blob, signal) => predict(model, blob, signal), showFrame);
  live = mine;
  try {
    await open(mine);
    if (live !== mine) return mine.stop();
    setLive(true);
    await mine.run();
  } catch (error) {
    if (live === mine) showError(error);
  }
  if (live === mine) stopLive();
}

async function showFrame(frame, result, { rate, skipped, answered }) {
  if (live === null) return;
  $("rate").textContent = `${rate.toFixed(1)} frames/s · ${answered} answered, ${skipped} skipped`;
  const copy = await createImageBitmap(frame); // the next frame is drawn onto the same canvas
  if (live === null) return;
  shown?.picture?.close?.();
  await showResult(copy, result);
}

function setLive(running) {
  $("stop").hidden = $("rate").hidden = !running;
  $("camera").hidden = running;
  if (running) $("rate").textContent = "";
}

function stopLive() {
  const focused = document.activeElement === $("stop");
  live?.stop();
  live = null;
  setLive(false);
  if (focused) $("camera").focus();
}

// -- code -----------------------------------------------------------------------------------------------------------------

function showCode() {
  $("code-card").hidden = metadata === null;
  if (metadata === null) return;
  const selected = $("tab-python").getAttribute("aria-selected") === "true" ? python : curl;
  $("code").textContent = selected(model, metadata, Boolean(apiKey()));
}

function pickTab(picked) {
  for (const tab of [$("tab-curl"), $("tab-python")]) {
    tab.setAttribute("aria-selected", String(tab === picked));
    tab.tabIndex = tab === picked ? 0 : -1;
  }
  $("code").setAttribute("aria-labelledby", picked.id);
  showCode();
}

async function copyCode() {
  try {
    await navigator.clipboard.writeText($("code").textContent);
    $("copy").textContent = "Copied";
  } catch { // not over https, or refused: select it, so that a key press copies it
    getSelection().selectAllChildren($("code"));
    $("copy").textContent = "Selected";
  }
  setTimeout(() => ($("copy").textContent = "Copy"), 1500);
}

// -- events ---------------------------------------------------------------------------------------------------------------

$("model").addEventListener("change", () => pickModel(models[$("model").selectedIndex]));
for (const id of ["choose", "hint"]) $(id).addEventListener("click", () => $("files").click());
$("files").addEventListener("change", () => {
  take([...$("files").files]);
  $("files").value = ""; // the same file may be chosen again
});
$("camera").addEventListener("click", () => watch((source) => source.openCamera()));
$("stop").addEventListener("click", stopLive);
$("threshold").addEventListener("input", redraw);
$("send").addEventListener("click", () => {
  const type = /^\s*[[{]/.test($("text").value) ? "application/json" : "text/plain";
  take([new File([$("text").value], "text", { type })]);
});
$("copy").addEventListener("click", copyCode);
for (const [tab, other] of [[$("tab-curl"), $("tab-python")], [$("tab-python"), $("tab-curl")]]) {
  tab.addEventListener("click", () => pickTab(tab));
  tab.addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      pickTab(other);
      other.focus();
    }
  });
}
$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setApiKey($("key").value.trim());
  loadModels();
});
document.addEventListener("paste", (event) => {
  const files = [...(event.clipboardData?.files ?? [])];
  if (files.length) event.preventDefault();
  take(files);
});
for (const name of ["dragenter", "dragover", "dragleave", "drop"]) {
  document.addEventListener(name, (event) => {
    event.preventDefault();
    $("stage").classList.toggle("over", name === "dragenter" || name === "dragover");
    if (name === "drop") take([...event.dataTransfer.files]);
  });
}
document.addEventListener("visibilitychange", () => {
  if (!document.hidden || live === null) return;
  stopLive();
  showNote("Stopped, since the page was hidden.");
});
new ResizeObserver(redraw).observe($("stage"));
$("key").value = apiKey();
loadModels();

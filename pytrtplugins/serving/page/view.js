// The parts of the page beside the picture: messages, objects, times, answers.

import { classColor, css, percent } from "./drawing.js";

export const $ = (id) => document.getElementById(id);

const STAGES = { // in the order in which a request goes through them
  network: "network and browser",
  upload: "upload",
  preprocess: "preprocess",
  queue: "queue",
  compute: "compute",
  postprocess: "postprocess",
  other: "between the stages",
};
const MOST_TEXT = 100_000; // characters of an answer that are shown

export function make(tag, text = "", attributes = {}) {
  const element = document.createElement(tag);
  element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

export function showError(error) {
  $("message-title").textContent = error.status ? `Error ${error.status}.` : "Error.";
  $("message-text").textContent = error.retryAfter ? `${error.message} Try again in ${error.retryAfter} s.` : error.message;
  $("message").hidden = false;
  if (error.status === 401 || error.status === 403) $("key-card").open = true;
}

export function showNote(text) {
  $("message-title").textContent = "";
  $("message-text").textContent = text;
  $("message").hidden = false;
}

export function clearMessage() {
  $("message").hidden = true;
}

export function showBusy(text) {
  $("busy").hidden = !text;
  if ($("busy").textContent !== text) $("busy").textContent = text;
}

export function threshold() {
  return Number($("threshold").value);
}

// Lists objects above the threshold; null hides the list.
export function showObjects(detections) {
  $("objects-card").hidden = detections === null;
  if (detections === null) return;
  const shown = visible(detections);
  $("threshold-value").textContent = percent(threshold());
  $("count").textContent = shown.length === detections.length ? `${shown.length}` : `${shown.length} of ${detections.length}`;
  $("objects").replaceChildren(...(shown.length ? shown.map(objectRow) : [noRow()]));
  $("canvas").setAttribute("aria-label", spoken(shown));
}

export function visible(detections) {
  return detections.filter((each) => each.score >= threshold()).sort((one, other) => other.score - one.score);
}

function objectRow({ label, class_id: classId, score, box }) {
  const row = make("tr");
  const name = make("td");
  const swatch = make("span", "", { class: "swatch" });
  swatch.style.backgroundColor = css(classColor(classId));
  name.append(swatch, label);
  row.append(name, make("td", percent(score)), make("td", box.map((value) => value.toFixed(0)).join(", ")));
  return row;
}

function noRow() {
  const row = make("tr");
  row.append(make("td", "None", { colspan: "3", class: "quiet" }));
  return row;
}

function spoken(shown) {
  const names = shown.map((each) => `${each.label} ${percent(each.score)}`);
  return names.length ? `${names.length} objects: ${names.join(", ")}` : "No objects";
}

// Milliseconds of each stage of one request, or means of several; null hides them.
export function showTimes(stages, roundTrip) {
  $("times-card").hidden = stages === null;
  if (stages === null) return;
  const { total = roundTrip, ...named } = stages;
  const known = Object.values(named).reduce((sum, each) => sum + each, 0);
  const all = { ...named, other: Math.max(0, total - known), network: Math.max(0, roundTrip - total) };
  const names = Object.keys(STAGES).filter((name) => name in all);
  $("round-trip").textContent = `${milliseconds(roundTrip)} round trip`;
  $("bar").replaceChildren(...names.map((name) => {
    const part = make("span", "", { "data-stage": name });
    part.style.flexGrow = all[name];
    return part;
  }));
  $("times").replaceChildren(...names.map((name) => {
    const row = make("div");
    const term = make("dt");
    term.append(make("span", "", { class: "swatch", "data-stage": name }), STAGES[name]);
    row.append(term, make("dd", milliseconds(all[name])));
    return row;
  }));
}

function milliseconds(value) {
  return `${value >= 100 ? value.toFixed(0) : value.toFixed(value >= 10 ? 1 : 2)} ms`;
}

// The answer of a model that is no detector, as text or as a file; null hides it.
export async function showAnswer(result) {
  const answer = $("answer");
  const download = $("download");
  if (download.href) URL.revokeObjectURL(download.href);
  download.hidden = true;
  download.removeAttribute("href");
  $("answer-card").hidden = result === null;
  if (result === null) return;
  if (result.value !== null) {
    answer.textContent = cut(JSON.stringify(result.value, null, 2));
  } else if (result.kind.startsWith("text/")) {
    answer.textContent = cut(await result.blob.text());
  } else {
    answer.textContent = `${result.blob.size.toLocaleString("en")} bytes of ${result.kind}`;
    download.href = URL.createObjectURL(result.blob);
    download.hidden = false;
  }
}

function cut(text) {
  return text.length > MOST_TEXT ? `${text.slice(0, MOST_TEXT)}\n… ${text.length.toLocaleString("en")} characters in all` : text;
}

// Requests to this server: its models, and what they answer.

const KEY = "pytrt-api-key"; // in this tab's storage, which the browser empties with the tab

export class ServerError extends Error {
  // status: HTTP's code, 0 if there was no answer; retryAfter: seconds, or null.
  constructor(status, text, retryAfter = null) {
    super(text);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

export function apiKey() {
  return sessionStorage.getItem(KEY) || "";
}

export function setApiKey(key) {
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
}

// [{name, version, state, reason}]
export async function listModels() {
  return (await request("/v2/repository/index", { method: "POST", body: "{}" })).json();
}

// {inputs: [{name, datatype, shape}], outputs: ...}
// A model here is {name, version}; without a version, the server takes the one that it prefers.
export async function describe(model) {
  return (await request(`/v2/models/${path(model)}`)).json();
}

export function predictPath(model) {
  return `/v1/models/${path(model)}:predict`;
}

function path({ name, version }) {
  return encodeURIComponent(name) + (version ? `/versions/${encodeURIComponent(version)}` : "");
}

// Sends a body to a model. Gives {kind, blob, value, stages, roundTrip}: the answer's type, its bytes, its JSON if it is JSON,
// milliseconds of each stage by name as the server says, and milliseconds as this browser measures.
export async function predict(model, body, signal) {
  const started = performance.now();
  const headers = { "Content-Type": body.type || "application/octet-stream" };
  const response = await request(predictPath(model), { method: "POST", body, headers, signal });
  const blob = await response.blob();
  const roundTrip = performance.now() - started;
  const kind = (response.headers.get("Content-Type") || "").split(";")[0];
  const value = kind === "application/json" ? JSON.parse(await blob.text()) : null;
  return { kind, blob, value, roundTrip, stages: readTiming(response.headers.get("Server-Timing")) };
}

// "compute;dur=1.5, total;dur=2" → {compute: 1.5, total: 2}
function readTiming(text) {
  const stages = {};
  for (const [, name, duration] of (text || "").matchAll(/([\w-]+);dur=([\d.]+)/g)) stages[name] = Number(duration);
  return stages;
}

async function request(path, options = {}) {
  const headers = new Headers(options.headers);
  if (apiKey()) headers.set("Authorization", `Bearer ${apiKey()}`);
  let response;
  try {
    response = await fetch(path, { ...options, headers, credentials: "omit", redirect: "error" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError(0, "The server cannot be reached, or closed the connection.");
  }
  if (response.ok) return response;
  const retryAfter = Number(response.headers.get("Retry-After")) || null;
  throw new ServerError(response.status, await errorText(response), retryAfter);
}

async function errorText(response) {
  const text = await response.text();
  try {
    return String(JSON.parse(text).error || text);
  } catch {
    return text || response.statusText;
  }
}

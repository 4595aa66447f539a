// @ts-check
// Asks the API. The session's secret is in a cookie that no script can read; the header says that
// this page asks, which a foreign page cannot say.

export const gone = new EventTarget(); // "signed-out"
export const person = { subject: "", tenant: "" }; // who is signed in, also once the session is over

/** The server's no (RFC 9457), with what would unblock it. */
export class Problem extends Error {
  constructor(status, told) {
    super(told.title || "It failed");
    this.status = status;
    this.title = told.title || "It failed";
    this.detail = told.detail || "";
    this.unblock = told.unblock || "Ask again in a minute.";
    this.blockers = told.blockers || [];
    this.type = told.type || "";
    this.mistake = told.mistake || null; // of an expression: {position, length, expected}
  }

  /** The session is good, but this change needs its holder's token anew. */
  get needs_sign_in() {
    return this.type === "urn:provisioner:problem:fresh-sign-in";
  }
}

/** No answer came: status 0. */
export const offline = () => new Problem(0, {
  title: "The server does not answer",
  unblock: "Look whether `provisioner serve` runs and this machine reaches it. This page tries again by itself.",
});

// What a page asks by itself while nobody touches it does not keep a session from ending.
const ATTENDED_MS = 60_000;
let touched = Date.now();
for (const kind of ["pointerdown", "pointermove", "keydown", "wheel"]) {
  addEventListener(kind, () => { touched = Date.now(); }, { passive: true, capture: true });
}

/**
 * One request below /v1; `match` is the generation that the change is of, `token` a credential in place of the session.
 * @param {string} path
 * `raw` are bytes in place of a JSON body.
 * @param {{verb?: string, body?: unknown, raw?: Blob, match?: string, token?: string, signal?: AbortSignal}} [options]
 */
export async function ask(path, { verb = "GET", body, raw, match, token, signal } = {}) {
  const headers = { "X-Provisioner-Console": "1", Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (raw) headers["Content-Type"] = "application/octet-stream";
  if (verb !== "GET") headers["Idempotency-Key"] = key();
  if (Date.now() - touched > ATTENDED_MS) headers["X-Provisioner-Unattended"] = "1";
  if (match) headers["If-Match"] = match;
  if (token) headers.Authorization = `Bearer ${token}`;
  let answer;
  try {
    answer = await fetch(`/v1${path}`, {
      method: verb, headers, body: raw ?? (body === undefined ? undefined : JSON.stringify(body)), signal, credentials: "same-origin",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw offline();
  }
  const told = await answer.json().catch(() => ({ title: `HTTP ${answer.status}` }));
  if (answer.ok) return told;
  const problem = new Problem(answer.status, told);
  if (answer.status === 401 && !token && !problem.needs_sign_in) gone.dispatchEvent(new Event("signed-out"));
  throw problem;
}

/**
 * The same, where "there is no such thing" is an answer: null.
 * @param {string} path
 * @param {Parameters<typeof ask>[1]} [options]
 */
export async function maybe(path, options) {
  try {
    return await ask(path, options);
  } catch (problem) {
    if (problem.status === 404 || problem.status === 403) return null;
    throw problem;
  }
}

/**
 * All rows of a list, page by page: none is left out. Of a list that may be long, ask for `some` and say so (`grown`).
 * @param {string} path
 * @param {Parameters<typeof ask>[1]} [options]
 */
export async function all(path, options = {}) {
  return (await some(path, Infinity, options)).rows;
}

/**
 * The same from a cursor on, with the cursor of what follows ("": there is nothing) and the total, null where the server tells none.
 * @param {string} path
 * @param {number} most
 * @param {Parameters<typeof ask>[1]} [options]
 * @param {string} [next]
 */
export async function some(path, most, options = {}, next = "") {
  const rows = [];
  let total;
  do {
    const query = `${path.includes("?") ? "&" : "?"}limit=500${next ? `&cursor=${encodeURIComponent(next)}` : ""}`;
    const page = await ask(path + query, options);
    rows.push(...page.items);
    total = page.total ?? null;
    next = page.items.length ? page.next : ""; // the journal always says where to go on
  } while (next && rows.length < most);
  return { rows, next, total };
}

function key() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
}

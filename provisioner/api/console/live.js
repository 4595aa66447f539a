// @ts-check
// What happens, as it happens: one stream of server-sent events for the whole page, read with fetch
// (EventSource tells only of kinds that one names). It goes on where it ended. A page that nobody
// looks at lets go of it after a while and catches up later, so it costs the server nothing.

import { gone } from "./api.js";
import { read_event, within } from "./stream_data.js";

const HIDDEN_MS = 30_000; // a browser has six connections to a server; hidden pages shall not keep them
const SILENT_MS = 45_000; // the server says that it is alive every 15 s: a longer silence is a dead connection
const LINE_MAX = 1_000_000; // characters of one event

/** Events "row" (detail: the journal's row), "fleet" (the columns of nodes that changed) and "status" (live, waiting, off). */
class Live extends EventTarget {
  last = -1; // number of the newest row that is known
  status = "off";
  #change = -1; // number of the newest change of a node that is known; -1: no page shows nodes
  #fleets = 0; // pages that show nodes
  #cut = null;
  #wanted = false;
  #timer = 0;
  #ready = null;
  /** @type {(value?: any) => void} */
  #isReady = () => {};

  constructor() {
    super();
    document.addEventListener("visibilitychange", () => {
      clearTimeout(this.#timer);
      if (!document.hidden) this.#open();
      else this.#timer = setTimeout(() => this.#cut?.abort(), HIDDEN_MS);
    });
    window.addEventListener("online", () => this.#open());
  }

  /** Listen from now on; resolves once the server said where "now" is, or that it cannot. */
  start() {
    this.#wanted = true;
    this.#ready ??= new Promise((done) => { this.#isReady = done; });
    this.#open();
    return this.#ready;
  }

  /** Hear again the rows before now, at most so many, then go on. */
  replay(rows) {
    this.last = Math.max(0, this.last - rows);
    this.#again();
  }

  /** Hear "fleet" of the nodes that changed after this number, too. */
  follow_fleet(change) {
    this.#change = this.#fleets ? Math.min(this.#change, change) : change; // hearing of one twice harms nobody
    this.#fleets += 1;
    this.#again();
  }

  leave_fleet() {
    this.#fleets -= 1;
    if (this.#fleets) return;
    this.#change = -1;
    if (this.#wanted) this.#again();
  }

  /** Open the stream anew, where it ended. */
  #again() {
    this.#cut?.abort();
    this.#cut = null;
    this.start();
  }

  stop() {
    this.#wanted = false;
    this.last = -1;
    this.#ready = null;
    this.#cut?.abort();
    this.#tell("off");
  }

  #tell(status) {
    this.status = status;
    this.dispatchEvent(new CustomEvent("status", { detail: status }));
  }

  async #open() {
    if (this.#cut || !this.#wanted || document.hidden) return;
    const cut = new AbortController();
    this.#cut = cut;
    let pause = 1000;
    while (this.#wanted && this.#cut === cut && !cut.signal.aborted) {
      try {
        await this.#listen(cut.signal, () => { pause = 1000; });
      } catch (error) {
        if (error.name === "AbortError") break;
      }
      this.#isReady();
      if (cut.signal.aborted) break;
      this.#tell("waiting");
      await new Promise((done) => { setTimeout(done, pause * (0.5 + Math.random())); });
      pause = Math.min(pause * 2, 30_000);
    }
    if (this.#cut === cut) this.#cut = null;
  }

  async #listen(signal, heard) {
    const headers = { Accept: "text/event-stream" };
    if (this.last >= 0) headers["Last-Event-ID"] = String(this.last);
    const answer = await fetch(`/v1/events/stream${this.#change < 0 ? "" : `?fleet=${this.#change}`}`, { headers, signal, credentials: "same-origin" });
    if (answer.status === 401) {
      this.stop();
      gone.dispatchEvent(new Event("signed-out"));
      return;
    }
    if (!answer.ok || !answer.body) throw new Error(`HTTP ${answer.status}`);
    this.#tell("live");
    let rest = "";
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { value, done } = await within(reader, SILENT_MS);
      if (done) return;
      heard();
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      if (rest.length > LINE_MAX) throw new Error("an event is too long");
      for (const block of blocks) this.#one(block);
    }
  }

  #one(block) {
    const event = read_event(block);
    if (!event) return;
    if (event.fleet) {
      this.#change = event.fleet.change;
      this.dispatchEvent(new CustomEvent("fleet", { detail: event.fleet }));
      return;
    }
    this.last = event.id;
    this.#isReady();
    if (event.row) this.dispatchEvent(new CustomEvent("row", { detail: event.row }));
  }
}

export const live = new Live();

/** Call `look` soon after rows that `concerns` picks, at most once in a while. Returns how to end it. */
export function follow(concerns, look, pause_ms = 400) {
  let timer = 0;
  const heard = (event) => {
    if (!concerns(event.detail) || timer) return;
    timer = setTimeout(() => { timer = 0; look(); }, pause_ms);
  };
  live.addEventListener("row", heard);
  return () => { clearTimeout(timer); live.removeEventListener("row", heard); };
}

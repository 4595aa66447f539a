// @ts-check
// One stream of server-sent events: its parts, and the moment at which it is given up. No page here.

/** The number and the row of an event, null where it only says how far the journal is; or the columns of nodes that changed. */
export function read_event(block) {
  /** @type {Record<string, string>} */
  const fields = {};
  for (const line of block.split("\n")) {
    const at = line.indexOf(": ");
    if (at > 0) fields[line.slice(0, at)] = line.slice(at + 2);
  }
  if (fields.event === "fleet") return { id: -1, row: null, fleet: JSON.parse(fields.data) };
  if (fields.id === undefined) return null;
  const id = Number(fields.id);
  if (fields.event === "cursor") return { id, row: null };
  try {
    return { id, row: JSON.parse(fields.data) };
  } catch {
    return { id, row: null }; // not ours to repair: the next row says more
  }
}

/** The next part of a stream; a stream that is silent for too long is given up, and fails. */
export async function within(reader, silent_ms) {
  let timer = 0;
  const silence = new Promise((_, fail) => {
    timer = setTimeout(() => fail(new Error("the stream is silent")), silent_ms);
  });
  try {
    return await Promise.race([reader.read(), silence]);
  } catch (error) {
    reader.cancel().catch(() => {}); // it is gone already
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

/** Put a row where its number belongs, the newest first, and keep only so many; false if it was there. */
export function keep_newest(rows, row, kept) {
  let at = 0;
  while (at < rows.length && rows[at].seq > row.seq) at += 1; // the newest nearly always: one step
  if (rows[at]?.seq === row.seq) return false;
  rows.splice(at, 0, row);
  rows.length = Math.min(rows.length, kept);
  return true;
}

// @ts-check
// The address has what a page shows: its colour, filter, order and so on, so that a link shows the same.
// It is written without a new page. Views were addresses in the browser's storage before the server kept them.

const KEPT = "views";
const VIEWS_MAX = 100;

/** Write values into the query of the address; "" and null take one out. Nothing is loaded anew. */
export function remember(values) {
  const [path, query = ""] = location.hash.replace(/^#/, "").split("?");
  const written = new URLSearchParams(query);
  for (const [name, value] of Object.entries(values)) {
    if (value === "" || value === null || value === undefined || value === false) written.delete(name);
    else written.set(name, String(value));
  }
  const text = written.toString();
  history.replaceState(history.state, "", `#${path || "/"}${text ? `?${text}` : ""}`);
}

/** The views of a person that this browser still has: [{name, hash}], by name. */
export function read_views(subject) {
  try {
    const rows = JSON.parse(localStorage.getItem(`${KEPT}:${subject}`) ?? "[]");
    return rows.filter((row) => typeof row.name === "string" && /^#\//.test(row.hash)).slice(0, VIEWS_MAX).sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
  } catch {
    return [];
  }
}

/** Forget one of them. */
export const drop_view = (subject, name) => write(subject, read_views(subject).filter((row) => row.name !== name));

function write(subject, rows) {
  try {
    localStorage.setItem(`${KEPT}:${subject}`, JSON.stringify(rows.slice(0, VIEWS_MAX)));
    return true;
  } catch {
    return false;
  }
}

// @ts-check
// The address has what a page shows: its colour, filter, order and so on, so that a link shows the same.
// It is written without a new page; views are addresses that a person keeps in this browser.

const KEPT = "views";
const VIEWS_MAX = 100;
const NAME_MAX = 80;

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

/** The kept views of a person: [{name, hash}], by name. */
export function read_views(subject) {
  try {
    const rows = JSON.parse(localStorage.getItem(`${KEPT}:${subject}`) ?? "[]");
    return rows.filter((row) => typeof row.name === "string" && /^#\//.test(row.hash)).slice(0, VIEWS_MAX).sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
  } catch {
    return [];
  }
}

/** Keep the address under a name, in place of one of that name; whether this browser keeps it. */
export function keep_view(subject, name, hash) {
  const wanted = name.trim().slice(0, NAME_MAX);
  return write(subject, [{ name: wanted, hash }, ...read_views(subject).filter((row) => row.name !== wanted)]);
}

export const drop_view = (subject, name) => write(subject, read_views(subject).filter((row) => row.name !== name));

function write(subject, rows) {
  try {
    localStorage.setItem(`${KEPT}:${subject}`, JSON.stringify(rows.slice(0, VIEWS_MAX)));
    return true;
  } catch {
    return false;
  }
}

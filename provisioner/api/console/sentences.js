// @ts-check
// Says a row of the journal as a sentence: no record is shown as it is stored. No page here.

import { lasts, when } from "./words.js";

const DEPTH_MAX = 2;
const HIDDEN = new Set(["by", "subject"]); // they have a place of their own

/** What a row says: "started, by ada". */
export function sentence(row) {
  const { to, why, ...rest } = row.detail;
  return [typeof to === "string" ? `became ${to.replaceAll("_", " ")}` : "", why, ...parts(rest)].filter(Boolean).join("; ");
}

/** The parts of a sentence that a record makes, for a person: empty values are left out. */
export function parts(detail, depth = 0) {
  return Object.entries(detail).filter(([name]) => depth > 0 || !HIDDEN.has(name)).map(([name, value]) => phrase(name.replaceAll("_", " "), name, value, depth)).filter(Boolean);
}

function phrase(word, name, value, depth) {
  if (value === "" || value === null || value === undefined || value === 0 || value === false) return "";
  if (value === true) return word;
  if (/^(at|since|until)$|_(at|since|until)$/.test(name)) return when(value) === "—" ? "" : `${word.replace(/ at$/, "")} ${when(value)}`;
  if (name.endsWith("_s") && typeof value === "number") return `${word.slice(0, -2)} ${lasts(value)}`;
  if (Array.isArray(value)) return value.length ? `${word}: ${value.map((one) => one_of(one, depth)).filter(Boolean).join(", ")}` : "";
  if (typeof value === "object") return depth < DEPTH_MAX ? parts(value, depth + 1).join(", ") : word;
  return `${word} ${value}`;
}

function one_of(value, depth) {
  if (value && typeof value === "object") return depth < DEPTH_MAX ? (Array.isArray(value) ? value : parts(value, depth + 1)).join(" ") : "";
  return String(value);
}

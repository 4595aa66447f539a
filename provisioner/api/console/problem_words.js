// @ts-check
// The server's no, for people: what it is and what would unblock it.

import { blockers, made } from "./dom.js";

const AROUND = 60; // characters of an expression beside its mistake

export function append_blockers(body, problem) {
  body.append(
    made("p", { class: "strong" }, problem.title ?? "This page failed"),
    problem.detail ? made("p", {}, problem.detail) : "",
    problem.blockers?.length ? blockers(problem.blockers)
      : made("p", { class: "unblock" }, problem.unblock ?? `${problem.name}: ${problem.message}`),
  );
}

/** An expression with its mistake marked, and what may stand there; null where none is told. */
export function marked(text, mistake) {
  if (!mistake) return null;
  const at = mistake.position - 1;
  const from = Math.max(0, at - AROUND);
  const end = at + Math.max(1, mistake.length);
  const wrong = text.slice(at, end);
  return made("p", { class: "expression" }, made("code", {}, from ? "…" : "", text.slice(from, at), made("mark", {}, wrong || "here"), text.slice(end, end + AROUND), end + AROUND < text.length ? "…" : ""),
    mistake.expected?.length ? made("span", { class: "quiet block" }, `There may stand: ${mistake.expected.slice(0, 12).join(", ")}${mistake.expected.length > 12 ? "…" : ""}`) : null);
}

/** What is wrong with an expression, in words and in its place. */
export function wrong_words(text, problem) {
  const place = marked(text, problem.mistake);
  return [`${problem.detail || problem.title}.${place && problem.mistake.expected?.length ? "" : ` ${problem.unblock}`}`, place ?? ""];
}

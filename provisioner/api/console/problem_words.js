// @ts-check
// The server's no, for people: what it is and what would unblock it.

import { blockers, made } from "./dom.js";

export function append_blockers(body, problem) {
  body.append(
    made("p", { class: "strong" }, problem.title ?? "This page failed"),
    problem.detail ? made("p", {}, problem.detail) : "",
    problem.blockers?.length ? blockers(problem.blockers)
      : made("p", { class: "unblock" }, problem.unblock ?? `${problem.name}: ${problem.message}`),
  );
}

// @ts-check
// Passwords of BMCs: their age, why they are to be changed, a change on demand, and one that is shown
// to a person whom another one allowed it. A password is on this page only while its dialog is open.

import { ask } from "./api.js";
import { ask_proved, asks } from "./dialog.js";
import { at, chip, empty, facts, link, made, section } from "./dom.js";
import { grown, listing } from "./listing.js";
import { proposes } from "./proposal.js";
import { lasts, now, number, seconds, when } from "./words.js";

const MOST = 2000; // logins at first
const SHOW = "credential.show"; // kind of the request

export async function page({ query, signal, me, again }) {
  const node = query.get("node") ?? "";
  const requests = await ask("/requests?limit=200", { signal });
  const operator = me.roles.includes("operator");
  const mine = requests.items.filter((r) => r.kind === SHOW && r.asked_by === me.subject && (r.state === "waiting" || (r.state === "done" && seconds(r.result?.expires_at) > now())));
  const body = made("div", { class: "stack" },
    mine.length ? section("Passwords that you asked to see", listing({
      caption: "Requests for a password", rows: mine, again, name: (row) => row.id,
      columns: [
        { head: "Request", cell: (row) => row.id },
        { head: "Of", cell: (row) => row.result?.login ?? `${row.subject}/${row.arguments.bmc}` },
        { head: "State", cell: (row) => chip(row.state) },
        { head: "Until", num: true, cell: (row) => at(row.result?.expires_at), value: (row) => seconds(row.result?.expires_at) },
        { head: "Read", cell: (row) => (row.state === "done" ? reveal(row) : "Another person approves it first."), value: (row) => row.state },
      ],
    })) : null,
    section(node ? `Passwords of ${node}` : "Passwords of BMCs", await grown(`/credentials${node ? `?node=${encodeURIComponent(node)}` : ""}`, MOST, signal, (rows) => listing({
      caption: "Logins of BMCs", rows, again, name: (row) => row.name, sort: 2, down: true,
      nothing: empty("The daemon keeps no password here.", "It keeps those that it set itself, when a host was taken in."),
      columns: [
        { head: "Login", cell: (row) => row.name },
        { head: "Node", cell: (row) => link(["nodes", row.node], row.node), value: (row) => row.node },
        { head: "Age", num: true, cell: (row) => (row.changed_at ? lasts(now() - seconds(row.changed_at)) : "unknown"), value: (row) => (row.changed_at ? now() - seconds(row.changed_at) : Number.MAX_VALUE) },
        { head: "To be changed", cell: (row) => (row.due_at ? `${row.cause ? row.cause.replaceAll("_", " ") : "by age"}, ${at_words(row.due_at)}` : "—") },
        { head: "Shown to", cell: (row) => row.shown_to.join(", ") || "—" },
        { head: "Failed", num: true, cell: (row) => number(row.failures), value: (row) => row.failures },
        { head: "Problem", cell: (row) => row.problem || "—" },
        ...(operator ? [{ head: "See it", cell: (row) => show(row, again), value: () => "" }] : []),
      ],
      bulk: operator ? [{
        words: "Change", each: true, title: "Change passwords", fields: [{ name: "reason", words: "Why", required: true }, { name: "emergency", words: "An emergency: before every other change", kind: "check" }],
        says: (chosen) => `The passwords of ${number(chosen.length)} BMCs are changed. Their sessions end, and other tools that have these passwords lose access.`,
        together: (chosen, { reason, emergency }) => ({ path: "/credentials/rotate", body: { logins: chosen.map((row) => row.name), reason, ...(emergency ? { emergency } : {}) } }),
      }] : [],
    }))));
  return { title: "Passwords", body };
}

const at_words = (time) => (seconds(time) > now() ? `by ${when(time)}` : "now");

function show(row, again) {
  const bmc = row.name.slice(row.name.lastIndexOf("/") + 1);
  return proposes({ words: "Ask", title: `Be shown the password of ${row.name}`, path: `/nodes/${encodeURIComponent(row.node)}/credentials/${encodeURIComponent(bmc)}/show`,
    fields: [{ name: "reason", words: "Why (it goes into the audit)", required: true }], body: ({ reason }) => ({ reason }), done: () => again() });
}

function reveal(row) {
  const path = `/requests/${encodeURIComponent(row.id)}/reveal`;
  return asks({
    words: "Read it", title: `The password of ${row.result.login}`, says: "It is recorded that you read it, and it is changed afterwards. It is shown until this dialog is closed.",
    // the dialog stays open with the answer: it is the only place that ever has the password
    keeps: async () => {
      const told = await ask_proved({ path }, { verb: "POST", body: {} });
      return facts([["Account", told.username], ["Password", made("code", {}, told.password)], ["Or", told.pending_password ? made("code", {}, told.pending_password) : ""], ["Changed at the latest", when(told.expires_at)]], "narrow");
    },
  });
}

// @ts-check
// Requests on one node: a button for each that this person may make, in the state that it is in.

import { ask } from "./api.js";
import { asks, operation_words } from "./dialog.js";
import { facts, made, section, tell } from "./dom.js";
import { proposes } from "./proposal.js";

const ACTS = [["cycle", "Off at once, and on again"], ["on", "On"], ["off", "Off at once"]];

/** The buttons beside the title. */
export function verbs(node, me, path, again) {
  const may = (role) => me.roles.includes(role);
  const done = (operation) => { tell(operation_words(operation)); again(); };
  const shown = [];
  const match = () => `"g${node.generation}"`;
  if (node.state === "quarantined" && may("operator")) {
    shown.push(proposes({ words: "Try again", title: `Let ${node.id} try again`, says: "It leaves quarantine and goes on with its journey.", path: `${path}/retry`, match, done }));
  }
  if (node.state === "released" && (may("operator") || may("tenant"))) {
    shown.push(proposes({
      words: "Reclaim", title: `Take ${node.id} back`, danger: true, path: `${path}/reclaim`, match, done,
      says: "It is drained, fenced from its tenant and erased: all data on it is lost.",
      fields: [{ name: "repair", words: "For repair: it goes back to the same tenant", kind: "check" },
        ...(may("operator") ? [{ name: "accept", words: "Also if it could not serve again afterwards", kind: "check" }] : [])],
      body: (values) => ({ for_repair: values.repair, ...(values.accept ? { accept_no_return: true } : {}) }),
    }));
  }
  if (may("operator") || may("tenant")) {
    shown.push(asks({
      words: "Report a fault", title: `Report a fault of ${node.id}`, says: "Its tenant is told, and policy decides what becomes of the node.",
      path: `${path}/cases`, done, fields: [{ name: "reason", words: "What is wrong, in a sentence", kind: "area", required: true, most: 300 }],
      body: (values) => ({ reason: values.reason }),
    }));
  }
  return made("div", { class: "buttons" }, shown);
}

/** Power, console, clock, passwords and tags of a node. */
export function machine(node, me, path, again) {
  const staff = me.roles.some((role) => role !== "tenant");
  const operator = me.roles.includes("operator");
  const done = (operation) => { tell(operation_words(operation)); again(); };
  const about = { match: () => `"g${node.generation}"`, done };
  const buttons = [
    operator || (node.state === "released" && me.power?.length) ? power(node, staff, path, about, me.power) : null,
    made("a", { class: "button", href: `#/console/${encodeURIComponent(node.id)}` }, "Console"),
    operator ? proposes({ ...about, words: "Set BMC time", title: `Set the time of the BMCs of ${node.id}`, path: `${path}/bmc-time` }) : null,
    staff && node.bmcs?.length ? made("a", { class: "button", href: `#/credentials?node=${encodeURIComponent(node.id)}` }, "Passwords") : null,
    operator ? proposes({
      ...about, words: "Tags", title: `Tags of ${node.id}`, says: "Words that people search by, such as loan or team:vision. No decision reads them.", path: `${path}/tags`, verb: "PUT",
      fields: [{ name: "tags", words: "Tags, by space", value: (node.tags ?? []).join(" "), most: 2000 }], body: ({ tags }) => ({ tags: tags.split(/[\s,]+/).filter(Boolean) }),
    }) : null,
  ];
  const about_it = [["BMCs", (node.bmcs ?? []).map((bmc) => bmc.name).join(", ")],
    ["Tags", node.tags?.length ? node.tags.map((tag) => made("span", {}, made("a", { class: "tag", href: `#/nodes?where=${encodeURIComponent(`tag="${tag}"`)}` }, tag), " ")) : ""]];
  return section("Machine", about_it.some(([, value]) => value) ? facts(about_it, "narrow") : null, made("div", { class: "buttons" }, buttons));
}

function power(node, staff, path, about, acts = []) {
  const serves = staff && node.state === "released";
  return proposes({
    ...about, words: "Power", title: `Switch the power of ${node.id}`, danger: true, path: `${path}/power`,
    reads: async () => `Its BMC reports now: ${(await ask(`${path}/power`)).power}.`,
    fields: [{ name: "action", words: "Switch it", kind: "select", options: ACTS.filter(([act]) => !acts.length || acts.includes(act)) }, ...(serves ? [{ name: "tenant", words: `${node.tenant} asked for it`, kind: "check" }] : [])],
    body: ({ action, tenant }) => ({ action, ...(tenant ? { tenant: true } : {}) }),
  });
}

/** A button that revokes a certificate in force; null without one. */
export function revocation(proof, me, again) {
  if (!proof?.in_force || !me.roles.includes("operator")) return null;
  const done = (operation) => { tell(operation_words(operation)); again(); };
  return made("div", { class: "buttons" }, proposes({
    words: "Revoke", title: `Revoke the certificate of ${proof.certificate.node}`, danger: true, path: `/certificates/${encodeURIComponent(proof.certificate.id)}/revoke`, done,
    fields: [{ name: "reason", words: "Why (it is kept for good)", required: true }], body: ({ reason }) => ({ reason }),
  }));
}

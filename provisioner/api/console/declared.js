// @ts-check
// What a site declares: its hardware list with intake, policies of campaigns, matrix files with a trial,
// and the files of its artifact store. Each change has its dry run.

import { ask, maybe, some } from "./api.js";
import { ask_proved, asks, operation_words } from "./dialog.js";
import { at, blockers, chip, empty, link, made, section, table, tell } from "./dom.js";
import { save, text_field } from "./files.js";
import { entry_of } from "./hardware_data.js";
import { growing, listing } from "./listing.js";
import { proposes, shown_lines } from "./proposal.js";
import { many, number, short } from "./words.js";

const HARDWARE_MAX = 5000;
const UPLOAD_MAX = 1.5e9; // bytes that a browser holds while it takes their digest
const is_operator = (me) => me.roles.includes("operator");

/** A bond as its leaf has it, and with which legs at other leaves it is one. */
const bond_of = (bond) => (bond ? [`${bond.name}: ${bond.members.join(", ")}`, bond.segment && `segment ${bond.segment}`, bond.mlag && `MLAG ${bond.mlag}`, bond.made ? "made here" : "made by the site"].filter(Boolean).join("; ") : "—");

/** The hardware list: what was declared, an entry as the server has it, and lists that are taken in. */
export async function hardware({ parts, query, signal, me, again, go }) {
  if (parts[1]) return entry(parts[1], { signal, me, again });
  const first = await some("/hardware", HARDWARE_MAX, { signal });
  const table_of = (rows) => listing({
    caption: "Hardware list", rows, again, query, name: (row) => row.name, nothing: empty("Nothing was declared yet.", "Take a list in: it says places, cables, cards and feeds."),
    columns: [
      { head: "Name", cell: (row) => link(["hardware", row.name], row.name), value: (row) => row.name },
      { head: "Kind", cell: (row) => row.kind },
      { head: "Place", cell: (row) => place_words(row.location), value: (row) => place_words(row.location) },
      { head: "Address", cell: (row) => row.address || "—" },
      { head: "Cables", num: true, cell: (row) => number(row.ports.length), value: (row) => row.ports.length },
      { head: "BMCs", num: true, cell: (row) => number(row.bmcs.length), value: (row) => row.bmcs.length },
      { head: "Serial", cell: (row) => row.bmcs.find((b) => b.kind === "host")?.serial || "—" },
      { head: "Feeds", cell: (row) => row.outlets.map((o) => `${o.pdu ?? ""} ${o.outlet ?? ""}`.trim()).join(", ") || "—" },
      { head: "Release", cell: (row) => row.release || "—" },
      { head: "Origin", cell: (row) => chip(row.origin, "fact") },
    ],
  });
  const intake = is_operator(me) ? intake_form(go, query.get("intake") === "1") : null;
  return { title: "Hardware list", beside: is_operator(me) ? made("div", { class: "buttons" }, new_entry(go), made("a", { class: "button", href: "#/hardware?intake=1" }, "Take nodes in")) : null, body: made("div", { class: "stack" }, intake, made("div", { class: "card" }, growing("/hardware", HARDWARE_MAX, first, signal, table_of))), shown: () => { if (query.get("intake") === "1") document.getElementById("expected")?.focus(); } };
}

const place_words = (l) => [l.rack, `pod ${l.pod}, unit ${l.scalable_unit}`].filter(Boolean).join(", ");

/** One entry by a form: the server says what it would do with it, as it does of a whole list. */
function new_entry(go) {
  const figure = (name, words) => ({ name, words, kind: "number", value: "0" });
  return proposes({ words: "New entry", title: "A node for the hardware list", verb: "PUT", primary: true, path: "/hardware", path_of: (values) => `/hardware/${encodeURIComponent(values.name)}`,
    says: "It is taken in: its BMC is found, and its password changed. Logins are sealed before they are stored.",
    fields: [{ name: "name", words: "Name of the node", required: true, most: 64 }, { name: "kind", words: "Kind", kind: "select", options: [["host", "Host"], ["switch", "Switch"]] },
      { name: "bmc", words: "BMC: its address, MAC or serial number", most: 300 }, { name: "address", words: "Address of the host or switch", most: 300 }, { name: "release", words: "Release", most: 128 },
      { name: "rack", words: "Rack", most: 64 }, figure("pod", "Pod"), figure("unit", "Scalable unit"), figure("index", "Place in the unit"),
      { name: "ports", words: "Cables, one a line: leaf, port, rail, card", kind: "area", most: 20_000 },
      { name: "vendor", words: "Vendor of its factory login, such as nvidia", most: 64 }, { name: "user", words: "Factory user, or user of the switch", most: 200 }, { name: "password", words: "Its password", kind: "password", most: 1000 }],
    body: entry_of, done: (operation) => { tell(operation_words(operation)); go(operation.id ? ["operations", operation.id] : ["hardware"]); } });
}

function intake_form(go, open) {
  const list = text_field("expected", "The expected-hardware list, as YAML or JSON", { help: "Names, places, cables and logins, as docs/intake.md has them. It is sealed before it is stored." });
  const networks = made("input", { id: "networks", maxlength: "2000", placeholder: "10.0.0.0/24", autocomplete: "off" });
  const take = made("input", { id: "take", maxlength: "4000", autocomplete: "off" });
  const words = (input) => input.value.split(/[\s,]+/).filter(Boolean);
  const body = () => ({ expected: list.input.value, networks: words(networks), take: words(take) });
  const place = made("div", { role: "status" });
  const trial = made("button", { type: "button", on: { click: () => run(trial, place, async () => shown_lines((await ask("/intake?dry_run=true", { verb: "POST", body: body() })).result)) } }, "What would be done");
  const intake = proposes({ words: "Take in", title: "Take these nodes in", primary: true, says: "They are stored, and the daemon continues with them.", path: "/intake", body, done: (operation) => { tell(operation_words(operation)); go(["operations", operation.id]); } });
  return made("details", { class: "card", open }, made("summary", {}, "Take nodes in from a list"), list.element,
    made("div", { class: "form-grid" }, made("div", { class: "field" }, made("label", { for: "networks" }, "Networks that are searched for their BMCs"), networks), made("div", { class: "field" }, made("label", { for: "take" }, "Nodes whose ports may be moved out of the network they are in"), take)),
    place, made("div", { class: "buttons" }, trial, intake));
}

// Press, wait, show: what came back, or why nothing did.
async function run(button, place, work) {
  button.disabled = true;
  place.replaceChildren(made("p", { class: "quiet" }, "Asking…"));
  try {
    place.replaceChildren(...[await work()].flat().filter(Boolean));
  } catch (problem) {
    place.replaceChildren(made("p", { class: "bad" }, `${problem.title}. ${problem.detail ?? ""}`), made("p", {}, problem.unblock ?? ""));
  }
  button.disabled = false;
}

async function entry(name, { signal, me, again }) {
  const path = `/hardware/${encodeURIComponent(name)}`;
  const told = await ask(path, { signal });
  const node = await maybe(`/nodes/${encodeURIComponent(name)}`, { signal });
  const may = is_operator(me);
  const { outlets } = told;
  const body = (text) => ({ kind: told.kind, release: told.release, address: told.address, location: told.location, ports: told.ports, os_disk: told.os_disk, ...(told.os ? { os: told.os } : {}), outlets: JSON.parse(text) });
  const change = may && node ? proposes({ words: "Change feeds", title: `Feeds of ${name}`, path, verb: "PUT", match: () => `"g${node.generation}"`, says: "Outlets alone are replaced; for another place or other cables, retire it first.",
    fields: [{ name: "outlets", words: "Its feeds, as JSON", kind: "area", value: JSON.stringify(outlets), most: 8000 }], body: (values) => { try { return body(values.outlets || "[]"); } catch { return { outlets: values.outlets }; } }, done: () => again() }) : null;
  const take = may && node?.blockers.some((b) => b.reason.includes("port") || b.reason.includes("tenant") || b.reason.includes("network")) ? proposes({ words: "Take its ports", title: `Take the ports of ${name}`, danger: true, path: `/nodes/${encodeURIComponent(name)}/take`, says: "Its ports may be moved out of the network that they are in, and it is erased.", done: () => again() }) : null;
  return { title: name, beside: made("div", { class: "buttons" }, change, take, link(["nodes", name], "Its page", { class: "button" }), made("button", { type: "button", on: { click: () => save(`${name}.json`, JSON.stringify(told, null, 2), "application/json") } }, "Download")),
    body: made("div", { class: "stack" },
      section("Place", made("p", {}, `${told.kind} in ${place_words(told.location)}, place ${told.location.index}, site ${told.location.site}`), made("p", {}, `Address ${told.address || "none"}; ${told.os ? `system ${told.os}; ` : ""}disk ${told.os_disk || "not named"}; release ${told.release || "none"}.`)),
      section("Cables", told.ports.length ? table("Cables", [["Card"], ["Rail", "num"], ["Leaf"], ["Port"], ["Address"], ["Bond"]], told.ports.map((p) => [p.nic_slot || "—", p.rail >= 0 ? String(p.rail) : "north–south", link(["nodes", p.switch], p.switch), p.interface, p.address || "—", bond_of(p.bond)])) : empty("No cable of it is declared.", "")),
      section("BMCs", table("BMCs", [["Name"], ["Kind"], ["Address"], ["Serial", "num"], ["MAC", "num"], ["PCI", "num"]], told.bmcs.map((b) => [b.name, b.kind, b.url, b.serial || "—", b.base_mac || "—", b.pci || "—"]))),
      section("Feeds", outlets.length ? table("Feeds", [["Feed"]], outlets.map((o) => [Object.entries(o).map(([k, v]) => `${k} ${v}`).join(", ")])) : empty("No feed is declared.", "Without one the daemon cannot take its standby power away."))) };
}

/** Policies that campaigns can name. */
export async function policies({ signal, me, query, again }) {
  const told = await ask("/policies", { signal });
  const may = is_operator(me);
  const put = (row) => proposes({ words: row ? "Change" : "New policy", title: row ? `Change ${row.name}` : "A new policy", verb: "PUT",
    says: "Campaigns keep the copy that they began with. Fields that are left out get their defaults.", ...(row ? { match: () => `"g${row.generation}"` } : {}),
    fields: [...(row ? [] : [{ name: "name", words: "Name: small letters, digits, dots and dashes", required: true, most: 64 }]), { name: "note", words: "What it is for", value: row?.note ?? "", most: 300 },
      { name: "policy", words: "Its precautions, as JSON", kind: "area", value: JSON.stringify(row?.policy ?? { canary: { size: 1, soak_s: 3600 }, failure_budget: { percent: 2 } }, null, 1), most: 20_000, required: true }],
    path_of: (values) => `/policies/${encodeURIComponent(row?.name ?? (values.name || "new"))}`, path: row ? `/policies/${encodeURIComponent(row.name)}` : "", body: (values) => ({ note: values.note, policy: as_json(values.policy) }), done: () => again() });
  const rows = told.items;
  return { title: "Policies", beside: may ? put(null) : null, body: made("div", { class: "card" }, listing({
    caption: "Policies", rows, again, query, name: (row) => row.name, nothing: empty("There is no policy.", "A campaign then has the precautions that its draft sets."),
    columns: [{ head: "Name", cell: (row) => row.name }, { head: "For", cell: (row) => row.note || "—" },
      { head: "Precautions", cell: (row) => made("details", {}, made("summary", {}, summary(row.policy)), made("pre", {}, JSON.stringify(row.policy, null, 2))), value: (row) => JSON.stringify(row.policy) },
      ...(may ? [{ head: "Change", cell: (row) => made("div", { class: "buttons" }, put(row), proposes({ words: "Remove", danger: true, title: `Remove ${row.name}`, path: `/policies/${encodeURIComponent(row.name)}`, verb: "DELETE", match: () => `"g${row.generation}"`, done: () => again() })), value: () => "" }] : [])],
  })) };
}

const summary = (p) => [p.canary?.size ? many(p.canary.size, "canary", "canaries") : "no canary", many((p.waves ?? []).length, "wave"), (p.windows ?? []).length ? many(p.windows.length, "window") : "at any time"].join(", ");

function as_json(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text; // the server says what is wrong with it
  }
}

/** The files of the matrix in force, and a trial of others. */
export async function matrix({ parts, signal, me }) {
  if (parts[1]) {
    const file = await ask(`/matrix/files/${encodeURIComponent(parts[1])}`, { signal });
    return { title: file.name, beside: made("div", { class: "buttons" }, link(["matrix"], "All files", { class: "button" }), made("button", { type: "button", on: { click: () => save(file.name.split("/").pop() ?? "matrix.yaml", file.text) } }, "Download")), body: made("pre", { class: "console", tabindex: "0", "aria-label": `Text of ${file.name}` }, file.text) };
  }
  const told = await ask("/matrix", { signal });
  const tried = text_field("overlay", "An overlay, as YAML", { help: "It is laid over the files in force and read as at a start. Nothing is changed." });
  const instead = made("input", { type: "checkbox", id: "instead" });
  const place = made("div", { role: "status" });
  const button = made("button", { type: "button", class: "primary", on: { click: () => run(button, place, async () => trial_words(await ask("/matrix/trial", { verb: "POST", body: { overlays: [{ name: "trial", text: tried.input.value }], instead: instead.checked } }))) } }, "Try it");
  return { title: "Matrix files", body: made("div", { class: "stack" },
    section("In force", made("p", { class: "quiet" }, `Digest of the whole: ${short(told.sha256)}`), told.items.length ? table("Files of the matrix", [["File"], ["Name"], ["Digest", "num"], ["Characters", "num"]], told.items.map((f) => [f.file ? `overlay ${f.file}` : "base", link(["matrix", String(f.file)], f.name), made("code", { title: f.sha256 }, short(f.sha256)), number(f.characters)]))
      : empty("This process does not have the texts of its matrix.", "The daemon (`provisioner serve`) has them.")),
    me.roles.some((r) => r !== "tenant") ? section("Trial", tried.element, made("div", { class: "field check" }, instead, made("label", { for: "instead" }, "Instead of the overlays in force")), made("div", { class: "buttons" }, button), place) : null) };
}

function trial_words(told) {
  if (told.objection) return [made("p", { class: "bad" }, `${told.objection.source}, ${told.objection.where}: ${told.objection.problem}`), made("p", {}, told.objection.remedy)];
  return [made("p", { class: "strong" }, told.changes.length ? `${many(told.changes.length, "pin")} would differ.` : "No pin would differ."),
    told.changes.length ? table("Pins that would differ", [["Release"], ["Profile"], ["Component"], ["Now", "num"], ["Then", "num"]], told.changes.map((c) => [c.release, c.profile, c.component ?? c.kind, c.before ?? c.old ?? "—", c.after ?? c.new ?? "—"])) : null,
    told.gained.length ? made("p", {}, `Production would accept: ${told.gained.join(", ")}.`) : null, told.lost.length ? made("p", { class: "bad" }, `Production would refuse: ${told.lost.join(", ")}.`) : null];
}

/** The files of the artifact store. */
export async function images({ signal, me, query, again }) {
  const told = await ask("/images", { signal });
  const may = is_operator(me);
  const size = (n) => (n >= 1e9 ? `${(n / 1e9).toFixed(1)} GB` : n >= 1e6 ? `${(n / 1e6).toFixed(1)} MB` : `${number(n)} B`);
  return { title: "Images", body: made("div", { class: "stack" }, may ? upload_form(again) : null, made("div", { class: "card" }, listing({
    caption: "Files of the artifact store", rows: told.items, again, query, name: (row) => row.name, nothing: empty("The store is empty.", "Upload a file above, or put files into its folder."),
    columns: [{ head: "Name", cell: (row) => row.name }, { head: "There", cell: (row) => chip(row.present ? "yes" : "no", "fact") }, { head: "Size", num: true, cell: (row) => size(row.size_bytes ?? 0), value: (row) => row.size_bytes ?? 0 }, { head: "Format", cell: (row) => row.format },
      { head: "Changed", num: true, cell: (row) => at(row.modified_at) }, { head: "Digest", num: true, cell: (row) => (row.sha256 ? made("code", { title: row.sha256 }, short(row.sha256)) : "—"), value: (row) => row.sha256 },
      { head: "Pinned by", cell: (row) => row.pinned_by.join("; ") || "nobody" }, { head: "Nodes", num: true, cell: (row) => number(row.nodes.length), value: (row) => row.nodes.length }, { head: "Note", cell: (row) => row.note || "—" },
      ...(may ? [{ head: "Change", value: () => "", cell: (row) => made("div", { class: "buttons" },
        asks({ words: "Describe", title: `Describe ${row.name}`, says: "Its bytes never change.", verb: "PATCH", path: `/images/${encodeURIComponent(row.name)}`, match: () => `"g${row.generation}"`, fields: [{ name: "note", words: "What it is, in a sentence", value: row.note, most: 300 }], body: (values) => ({ note: values.note }), done: () => again() }),
        row.pinned_by.length || row.nodes.length ? null : proposes({ words: "Remove", danger: true, title: `Remove ${row.name}`, verb: "DELETE", path: `/images/${encodeURIComponent(row.name)}`, match: () => `"g${row.generation}"`, done: () => again() })) }] : [])],
  }))) };
}

/** A file for the store: its digest is taken here, the server says whether it takes it, then it is sent. */
function upload_form(again) {
  const file = made("input", { type: "file", id: "image-file" });
  const note = made("input", { id: "image-note", maxlength: "300", autocomplete: "off" });
  const place = made("div", { role: "status", "aria-label": "Dry run" });
  const send = made("button", { type: "button", class: "primary", disabled: true }, "Upload");
  /** @type {{path: string, match: string | undefined, good: boolean}} */
  const state = { path: "", match: undefined, good: false };
  const look = () => run(send, place, async () => {
    const [chosen] = file.files ?? [];
    send.disabled = true;
    if (!chosen) return made("p", { class: "quiet" }, "Choose a file.");
    if (chosen.size > UPLOAD_MAX) return made("p", { class: "bad" }, "It is too large for a browser: send it with `provisioner image upload`.");
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", await chosen.arrayBuffer()));
    const sha256 = Array.from(digest, (b) => b.toString(16).padStart(2, "0")).join("");
    const present = await maybe(`/images/${encodeURIComponent(chosen.name)}`);
    state.path = `/images/${encodeURIComponent(chosen.name)}?${new URLSearchParams({ sha256, size_bytes: String(chosen.size), note: note.value.trim() })}`;
    state.match = present ? `"g${present.generation ?? 0}"` : undefined;
    const told = await ask(`${state.path}&dry_run=true`, { verb: "PUT", raw: new Blob([]), match: state.match });
    if (told.blockers?.length) return blockers(told.blockers);
    state.good = true;
    return [made("p", { class: "quiet" }, `${chosen.name}, SHA-256 ${short(sha256)}`), ...shown_lines(told.result)];
  }).then(() => { send.disabled = !state.good; state.good = false; });
  for (const input of [file, note]) input.addEventListener("change", look);
  send.addEventListener("click", () => run(send, place, async () => {
    const operation = await ask_proved({ path: state.path }, { verb: "PUT", raw: file.files?.[0], match: state.match });
    tell(operation_words(operation));
    again();
    return made("p", {}, operation_words(operation));
  }));
  return section("Upload a file", made("div", { class: "form-grid" }, made("div", { class: "field" }, made("label", { for: "image-file" }, "File"), file), made("div", { class: "field" }, made("label", { for: "image-note" }, "What it is, in a sentence"), note)), place, made("div", { class: "buttons" }, send));
}

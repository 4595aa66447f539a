// Shows /v1/openapi.json, and tries requests with the token in the field above. Everything is put
// into the page as text, never as markup.
"use strict";

const at = (id) => document.getElementById(id);

function made(tag, words, ...children) {
  const element = document.createElement(tag);
  if (words) element.textContent = words;
  element.append(...children);
  return element;
}

function shape(schema, all, depth = 0) {
  if (!schema) return "";
  if (schema.$ref) {
    const name = schema.$ref.split("/").pop();
    return depth > 3 ? name : shape(all[name], all, depth + 1);
  }
  if (schema.anyOf) return schema.anyOf.map((s) => shape(s, all, depth)).join(" or ");
  if (schema.enum) return schema.enum.map((v) => JSON.stringify(v)).join(" | ");
  if (schema.type === "array") return [shape(schema.items, all, depth)];
  if (schema.properties) {
    const told = {};
    for (const [name, inner] of Object.entries(schema.properties)) told[name] = shape(inner, all, depth + 1);
    return told;
  }
  return schema.type || "any";
}

function table(heads, rows) {
  const body = made("tbody");
  for (const row of rows) body.append(made("tr", "", ...row.map((word) => made("td", word))));
  return made("table", "", made("thead", "", made("tr", "", ...heads.map((h) => {
    const head = made("th", h);
    head.scope = "col";
    return head;
  }))), body);
}

function trial(verb, path, operation) {
  const box = made("form");
  const fields = {};
  for (const p of operation.parameters.filter((p) => p.in !== "header")) {
    const input = made("input");
    input.name = p.name;
    fields[p.name] = [p, input];
    box.append(made("p", "", made("label", p.name + " ", input)));
  }
  let body = null;
  if (operation.requestBody) {
    body = made("textarea");
    const content = operation.requestBody.content["application/json"];
    body.value = JSON.stringify(content.example || {}, null, 1);
    box.append(made("p", "", made("label", "body", body)));
  }
  const shown = made("pre");
  shown.hidden = true;
  const send = made("button", "Send");
  send.type = "submit";
  box.append(send, shown);
  box.addEventListener("submit", async (event) => {
    event.preventDefault();
    let address = path;
    const query = new URLSearchParams();
    for (const [name, [p, input]] of Object.entries(fields)) {
      if (p.in === "path") address = address.replace(`{${name}}`, encodeURIComponent(input.value));
      else if (input.value) query.set(name, input.value);
    }
    const headers = {};
    if (at("token").value) headers.Authorization = `Bearer ${at("token").value}`;
    if (body) headers["Content-Type"] = "application/json";
    if (verb !== "get") headers["Idempotency-Key"] = crypto.randomUUID();
    shown.hidden = false;
    shown.textContent = "…";
    try {
      const answer = await fetch(address + (query.size ? `?${query}` : ""), {
        method: verb.toUpperCase(), headers, body: body ? body.value : undefined,
      });
      const text = await answer.text();
      let told = text;
      try { told = JSON.stringify(JSON.parse(text), null, 1); } catch { /* it is no JSON */ }
      shown.textContent = `${answer.status} ${answer.statusText}\n${told}`;
    } catch (error) {
      shown.textContent = String(error);
    }
  });
  return box;
}

function one(verb, path, operation, schemas) {
  const line = made("summary", "", made("span", verb.toUpperCase()), made("code", path), made("span", ` ${operation.summary}`));
  line.firstChild.className = "verb";
  const box = made("details", "", line);
  box.dataset.words = `${verb} ${path} ${operation.summary}`.toLowerCase();
  box.addEventListener("toggle", () => {
    if (box.dataset.filled) return;
    box.dataset.filled = "yes";
    box.append(made("p", operation["x-roles"].length ? `For the roles: ${operation["x-roles"].join(", ")}.` : "Open to anybody."));
    if (operation.parameters.length) {
      box.append(table(["parameter", "in", "meaning"], operation.parameters.map((p) => [p.name, p.in, p.description || ""])));
    }
    if (operation.requestBody) {
      const schema = operation.requestBody.content["application/json"].schema;
      box.append(made("h3", "Body"), made("pre", JSON.stringify(shape(schema, schemas), null, 1)));
    }
    box.append(made("h3", "Answers"), table(["status", "meaning"], Object.entries(operation.responses).map(([s, r]) => [s, r.description])));
    const good = operation.responses["200"];
    const content = good && good.content && good.content["application/json"];
    if (content) box.append(made("pre", JSON.stringify(shape(content.schema, schemas), null, 1)));
    if (!path.endsWith("/stream")) box.append(made("h3", "Try it"), trial(verb, path, operation));
  });
  return box;
}

async function begin() {
  const told = await (await fetch("/v1/openapi.json")).json();
  const sections = new Map(told.tags.map((t) => [t.name, made("section", "", made("h2", t.name))]));
  for (const [path, verbs] of Object.entries(told.paths)) {
    for (const [verb, operation] of Object.entries(verbs)) {
      sections.get(operation.tags[0]).append(one(verb, path, operation, told.components.schemas));
    }
  }
  at("routes").replaceChildren(...sections.values());
  at("find").addEventListener("input", () => {
    const wanted = at("find").value.toLowerCase();
    for (const box of document.querySelectorAll("details")) box.hidden = !box.dataset.words.includes(wanted);
  });
}

begin().catch((error) => at("routes").replaceChildren(made("p", `The document cannot be read: ${error}`)));

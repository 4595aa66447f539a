// @ts-check
// An entry of the hardware list from the fields of its form, as the API takes it. No page here.

const words = (text) => String(text ?? "").trim();
const lines = (text) => words(text).split("\n").map((line) => line.trim().split(/\s+/)).filter((parts) => parts[0]);
const whole = (text) => (/^\d+$/.test(words(text)) ? Number(text) : words(text) === "" ? 0 : words(text)); // what is no number is refused by the server

/** A BMC by its address, its MAC or its serial number, whichever the text is. */
export function bmc_of(text) {
  const said = words(text);
  if (!said) return {};
  if (/^([0-9a-f]{2}[:-]){5}[0-9a-f]{2}$/i.test(said)) return { mac: said };
  if (/^https?:\/\//.test(said)) return { url: said };
  return /^[0-9a-f]*[.:][0-9a-f.:]+$/i.test(said) ? { url: `https://${said.includes(":") ? `[${said}]` : said}` } : { serial: said };
}

/** Cables, one a line: LEAF PORT RAIL CARD; a rail that is no number is north–south. */
export const ports_of = (text) => lines(text).map(([leaf, port = "", rail = "", card = ""]) => ({ switch: leaf, interface: port, rail: /^\d+$/.test(rail) ? Number(rail) : -1, ...(card ? { nic_slot: card } : {}) }));

/** The body of PUT /hardware/NAME. */
export function entry_of(v) {
  const login = v.user && v.password ? { username: v.user, password: v.password } : null;
  const host = v.kind === "host";
  return {
    kind: v.kind, release: words(v.release), bmc: bmc_of(v.bmc), address: words(v.address), ports: ports_of(v.ports),
    location: { rack: words(v.rack), pod: whole(v.pod), scalable_unit: whole(v.unit), index: whole(v.index), ...(words(v.site) ? { site: words(v.site) } : {}) },
    ...(login && host && words(v.vendor) ? { factory_credentials: { [words(v.vendor)]: login } } : {}), ...(login && !host ? { login } : {}),
  };
}

// @ts-check
// The language that picks nodes, as docs/api.md has it and planning/select_expression.py reads it:
// tests hold both against each other. Here it is tried on 65,536 nodes at once, without the server.

const TERMS_MAX = 200;
const LENGTH_MAX = 2000;
const DEPTH_MAX = 16;
const WILD_MAX = 16;
const TOKEN = /\s*(?:([()])|(!=|=)|"([^"]*)"|([^\s()"=!,]+)|(,))/y;
const KINDS = ["bracket", "sign", "quoted", "word", "comma"];
const WORDS = new Set(["and", "or", "not", "all"]);

/** What is wrong with an expression, and where. */
export class Unreadable extends Error {}

/** A test of (field, value) pairs: called with a function from a field to its values. */
export function parse(text, fields) {
  if (text.length > LENGTH_MAX) throw new Unreadable(`It is longer than ${LENGTH_MAX} characters.`);
  return new Parser(split(text), new Set(fields)).read();
}

function split(text) {
  const tokens = [];
  const end = text.trimEnd().length;
  let at = 0;
  while (at < end) {
    TOKEN.lastIndex = at;
    const found = TOKEN.exec(text);
    if (!found) throw new Unreadable(`Character ${at + 1} cannot be read.`);
    const number = found.slice(1).findIndex((part) => part !== undefined);
    tokens.push([KINDS[number], found[number + 1], at]);
    at = TOKEN.lastIndex;
  }
  if (!tokens.length) throw new Unreadable("It is empty.");
  return tokens;
}

class Parser {
  #at = 0;
  #terms = 0;
  #depth = 0;

  constructor(tokens, fields) {
    this.tokens = tokens;
    this.fields = fields;
  }

  read() {
    const root = this.#either();
    if (this.#at < this.tokens.length) throw new Unreadable(`“${this.tokens[this.#at][1]}” is not expected.`);
    return root;
  }

  #either() {
    const parts = [this.#both()];
    while (this.#word("or")) parts.push(this.#both());
    return parts.length === 1 ? parts[0] : { any: parts };
  }

  #both() {
    const parts = [this.#one()];
    while (this.#word("and") || this.#begins()) parts.push(this.#one());
    return parts.length === 1 ? parts[0] : { every: parts };
  }

  #begins() {
    const [kind, text] = this.#peek();
    return (kind === "bracket" && text === "(") || (kind === "word" && text !== "and" && text !== "or");
  }

  #one() {
    this.#depth += 1;
    if (this.#depth > DEPTH_MAX) throw new Unreadable(`There are more than ${DEPTH_MAX} parts within one another.`);
    let found;
    if (this.#word("not")) {
      found = { not: this.#one() };
    } else if (this.#take("bracket", "(")) {
      found = this.#either();
      if (!this.#take("bracket", ")")) throw new Unreadable("A closing parenthesis is missing.");
    } else if (this.#word("all")) {
      found = { every: [] };
    } else {
      found = this.#term();
    }
    this.#depth -= 1;
    return found;
  }

  #term() {
    const [kind, field] = this.#peek();
    if (kind !== "word" || WORDS.has(field)) throw new Unreadable("FIELD=PATTERN is expected.");
    this.#at += 1;
    if (!this.fields.has(field)) {
      throw new Unreadable(`There is no field “${field}”. Fields: ${[...this.fields].join(", ")}.`);
    }
    const [sign, which] = this.#peek();
    if (sign !== "sign") throw new Unreadable(`= or != is expected after ${field}.`);
    this.#at += 1;
    const patterns = [this.#pattern()];
    while (this.#take("comma", ",")) patterns.push(this.#pattern());
    this.#terms += patterns.length;
    if (this.#terms > TERMS_MAX) throw new Unreadable(`There are more than ${TERMS_MAX} patterns.`);
    return { field, equal: which === "=", pattern: new RegExp(`^(?:${patterns.map(glob).join("|")})$`, "su") };
  }

  #pattern() {
    const [kind, text] = this.#peek();
    if (kind !== "word" && kind !== "quoted") throw new Unreadable("A pattern is expected.");
    if ((text.match(/[*?]/g) || []).length > WILD_MAX) throw new Unreadable(`A pattern has more than ${WILD_MAX} wildcards.`);
    this.#at += 1;
    return text;
  }

  #peek() {
    return this.tokens[this.#at] || ["", "", 0];
  }

  #take(kind, text) {
    const [k, t] = this.#peek();
    if (k !== kind || t !== text) return false;
    this.#at += 1;
    return true;
  }

  #word(text) {
    const after = this.tokens[this.#at + 1];
    return (!after || after[0] !== "sign") && this.#take("word", text);
  }
}

/** A glob as a regular expression, by the rules of Python's fnmatch. */
function glob(text) {
  let made = "";
  for (let i = 0; i < text.length; i += 1) {
    const c = text[i];
    if (c === "*") made += ".*";
    else if (c === "?") made += ".";
    else if (c === "[") {
      let end = i + 1;
      if (text[end] === "!") end += 1;
      if (text[end] === "]") end += 1;
      end = text.indexOf("]", end);
      if (end < 0) made += "\\[";
      else {
        made += range(text.slice(i + 1, end));
        i = end;
      }
    } else made += c.replace(/[\\^$.|?*+()[\]{}/]/g, "\\$&");
  }
  return made;
}

function range(inside) {
  const not = inside.startsWith("!");
  let rest = "";
  const letters = [...(not ? inside.slice(1) : inside)];
  for (let i = 0; i < letters.length; i += 1) {
    if (letters[i + 1] === "-" && i + 2 < letters.length) {
      if (letters[i] <= letters[i + 2]) rest += `${quoted(letters[i])}-${quoted(letters[i + 2])}`;
      i += 2;
    } else rest += quoted(letters[i]);
  }
  if (!rest) return not ? "." : "(?!)";
  return `[${not ? "^" : ""}${rest}]`;
}

const quoted = (c) => c.replace(/[\\\]^\-[&~|]/g, (x) => (/[\\\]^\-[|]/.test(x) ? `\\${x}` : x));

/** Whether something is picked; `values(field)` are its values. */
export function matches(part, values) {
  if (part.every) return part.every.every((p) => matches(p, values));
  if (part.any) return part.any.some((p) => matches(p, values));
  if (part.not) return !matches(part.not, values);
  const found = values(part.field);
  return (found.length ? found : [""]).some((v) => part.pattern.test(v)) === part.equal;
}

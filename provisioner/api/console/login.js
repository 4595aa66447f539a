// @ts-check
// Signing in: at the site's provider, or with a token, which is sent once and kept by nothing. The
// browser gets the secret of a session in a cookie that no script can read.

import { ask } from "./api.js";
import { made } from "./dom.js";

/** A session for the holder of a token, in place of the one that there is; who that is. */
export async function begin_session(words) {
  const token = words.trim();
  if (!/^[!-~]{1,8000}$/.test(token)) throw Object.assign(new Error(), { title: "That is no token", unblock: "Copy the whole line that the command printed." });
  return ask("/session", { verb: "POST", token });
}

/** The host name of the provider that people sign in at; "" where there is none. */
export async function read_provider() {
  const answer = await fetch("/console/sign-in-offer", { credentials: "same-origin" }).catch(() => null);
  return answer?.ok ? (await answer.json()).provider : "";
}

// Why the way back from the provider began no session: the word in the address.
const REFUSED = {
  expired: "The sign-in took longer than ten minutes, or began in another browser. Try again.",
  mismatch: "The provider's answer belongs to another sign-in. Try again.",
  denied: "The provider did not sign you in.",
  provider: "The provider did not answer as expected. The daemon's log has the reason.",
  stale: "The provider did not ask who you are. Sign out there, then try again.",
  role: "You are known to the provider, and have no role here. Ask an administrator for one.",
  busy: "Too many sign-ins within a minute. Wait a minute.",
};

/** The reason in the page's address, once. */
function take_reason() {
  const reason = REFUSED[new URLSearchParams(location.search).get("refused") ?? ""] ?? "";
  if (location.search) history.replaceState(null, "", location.pathname + location.hash);
  return reason;
}

/** Why a token began no session. */
export const refusal = (problem) => (problem.status === 401 ? "This token is not good: unknown, expired or revoked." : `${problem.title}. ${problem.unblock ?? ""}`);

export function sign_in(words, begin) {
  const token = made("input", {
    id: "token", type: "password", autocomplete: "current-password", spellcheck: "false", required: true, "aria-describedby": "token-how token-said",
  });
  const said = made("p", { id: "token-said", role: "alert", class: "bad" }, words || take_reason());
  const button = made("button", { type: "submit", class: "primary" }, "Sign in");
  const ways = made("div", { class: "sign-in-ways" });
  read_provider().then((name) => {
    if (!name) return;
    ways.append(made("a", { class: "button primary", href: "/console/sign-in" }, `Sign in at ${name}`), made("p", { class: "quiet" }, "or with a token:"));
    button.classList.remove("primary");
  });
  const form = made("form", { class: "card sign-in" },
    made("h1", {}, "Provisioner"),
    made("p", { class: "quiet" }, "GPU servers, from racked to released."),
    ways, made("label", { for: "token" }, "Token"), token, said, button,
    made("p", { id: "token-how", class: "quiet" }, "Make one on the provisioner's machine:"),
    made("pre", {}, made("code", {}, "provisioner token create --data var \\\n  --subject you --role operator")));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    said.textContent = "";
    button.disabled = true;
    try {
      const me = await begin_session(token.value);
      token.value = "";
      await begin(me);
    } catch (problem) {
      said.textContent = refusal(problem);
      button.disabled = false;
      token.focus();
    }
  });
  return form;
}

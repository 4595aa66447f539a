// Signing in: the token is sent once, and nothing keeps it. The browser gets the secret of a session
// in a cookie that no script can read.

import { ask } from "./api.js";
import { made } from "./dom.js";

/** A session for the holder of a token, in place of the one that there is; who that is. */
export async function begin_session(words) {
  const token = words.trim();
  if (!/^[!-~]{1,8000}$/.test(token)) throw Object.assign(new Error(), { title: "That is no token", unblock: "Copy the whole line that the command printed." });
  return ask("/session", { verb: "POST", token });
}

/** Why a token began no session. */
export const refusal = (problem) => (problem.status === 401 ? "This token is not good: unknown, expired or revoked." : `${problem.title}. ${problem.unblock ?? ""}`);

export function sign_in(words, begin) {
  const token = made("input", {
    id: "token", type: "password", autocomplete: "current-password", spellcheck: "false", required: true, "aria-describedby": "token-how token-said",
  });
  const said = made("p", { id: "token-said", role: "alert", class: "bad" }, words);
  const button = made("button", { type: "submit", class: "primary" }, "Sign in");
  const form = made("form", { class: "card sign-in" },
    made("h1", {}, "Provisioner"),
    made("p", { class: "quiet" }, "GPU servers, from racked to released."),
    made("label", { for: "token" }, "Token"), token, said, button,
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

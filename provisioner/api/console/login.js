// Signing in: the token is sent once; the browser keeps it in a cookie that no script can read.

import { ask } from "./api.js";
import { made } from "./dom.js";

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
      const given = token.value.trim();
      if (!/^[!-~]{1,3500}$/.test(given)) throw Object.assign(new Error(), { title: "That is no token", unblock: "Copy the whole line that the command printed." });
      const me = await ask("/session", { verb: "POST", token: given });
      token.value = "";
      await begin(me);
    } catch (problem) {
      said.textContent = problem.status === 401 ? "This token is not good: unknown, expired or revoked." : `${problem.title}. ${problem.unblock ?? ""}`;
      button.disabled = false;
      token.focus();
    }
  });
  return form;
}

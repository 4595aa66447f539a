// @ts-check
// Chooses light or dark before anything is drawn: what the person chose here, else what the system
// says. It is no module, so that no page is ever shown in the wrong one.
"use strict";
try {
  const chosen = localStorage.getItem("theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // storage is switched off: the system's choice it is
}

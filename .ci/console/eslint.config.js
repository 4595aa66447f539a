// Rules for the console's modules: ESLint's recommended ones, and those that keep foreign words out
// of markup and requests out of everywhere but the modules that make them.

import js from "@eslint/js";
import globals from "globals";

const MARKUP = ["innerHTML", "outerHTML", "insertAdjacentHTML", "write", "writeln"];

export default [
  { ignores: ["**/uplot.js"] }, // as its authors made it
  { files: ["**/*.js"], ...js.configs.recommended },
  {
    files: ["**/*.js"],
    languageOptions: { ecmaVersion: "latest", sourceType: "module", globals: globals.browser },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      eqeqeq: "error",
      "no-var": "error",
      "prefer-const": "error",
      "no-eval": "error",
      "no-implied-eval": "error",
      "no-new-func": "error",
      "no-alert": "error",
      "no-console": "error",
      "no-shadow": "error",
      "no-return-assign": ["error", "except-parens"],
      "no-throw-literal": "error",
      "no-unused-expressions": "error",
      "no-use-before-define": ["error", { functions: false, classes: false, variables: false }],
      "object-shorthand": "error",
      "no-restricted-properties": ["error", ...MARKUP.map((property) => ({ property, message: "Words become text: use made() of dom.js." }))],
      "no-control-regex": "off", // control characters are what the expression is for
    },
  },
];

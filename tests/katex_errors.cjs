// Reads formulas as JSON, [{tex, display, at}], and prints those that KaTeX refuses, with its reason.
const katex = require("../node_modules/katex");
const formulas = JSON.parse(require("fs").readFileSync(0, "utf-8"));
const errors = [];
for (const { tex, display, at } of formulas) {
  try {
    katex.renderToString(tex, { displayMode: display, throwOnError: true, strict: "ignore" });
  } catch (error) {
    errors.push({ at, tex, why: error.message });
  }
}
process.stdout.write(JSON.stringify(errors));

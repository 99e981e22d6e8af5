// Reads formulas as JSON, [{tex, display}], and prints what MathJax 3 makes of each: its MathML, or its reason not to.
// Obsidian and Anki carry this version, as its component "tex-chtml-full"; unknown commands are errors here.
const { mathjax } = require("mathjax-full/js/mathjax.js");
const { TeX } = require("mathjax-full/js/input/tex.js");
const { liteAdaptor } = require("mathjax-full/js/adaptors/liteAdaptor.js");
const { RegisterHTMLHandler } = require("mathjax-full/js/handlers/html.js");
const { SerializedMmlVisitor } = require("mathjax-full/js/core/MmlTree/SerializedMmlVisitor.js");
const { STATE } = require("mathjax-full/js/core/MathItem.js");
require("mathjax-full/js/input/tex/AllPackages.js");

RegisterHTMLHandler(liteAdaptor());
const tex = new TeX({
  packages: ["base", "ams", "boldsymbol", "newcommand", "configmacros"],
  formatError: (_, error) => {
    throw error;
  },
});
const document = mathjax.document("", { InputJax: tex });
const visitor = new SerializedMmlVisitor();
const drawn = JSON.parse(require("fs").readFileSync(0, "utf-8")).map(({ tex, display }) => {
  try {
    document.reset();
    return { mathml: visitor.visitTree(document.convert(tex, { display, end: STATE.CONVERT })) };
  } catch (error) {
    return { error: error.message };
  }
});
process.stdout.write(JSON.stringify(drawn));

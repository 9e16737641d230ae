// Formulas, by the KaTeX that is shipped beside this file. `document$` is the theme's stream
// of pages; without it (another theme) the page is rendered when it has loaded.
const render = () =>
  renderMathInElement(document.body, {
    delimiters: [
      { left: "\\(", right: "\\)", display: false },
      { left: "\\[", right: "\\]", display: true },
    ],
    throwOnError: false,
  });
if (typeof document$ !== "undefined") document$.subscribe(render);
else document.addEventListener("DOMContentLoaded", render);

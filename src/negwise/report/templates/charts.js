/* Draws Vega-Lite panels in the colours of the page and as wide as their column, and again when the colour scheme changes.

   charts.draw(place, spec) -> Promise of the view; charts.json(id) reads a <script type="application/json">;
   charts.redraw() draws everything again. */
const charts = (() => {
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const drawn = new Map();
  const json = (id) => JSON.parse(document.getElementById(id).textContent);
  const themes = json("themes");

  /* The number of legend entries that fit in a row: a legend that is too wide would widen the page. */
  function columns(place, spec) {
    const longest = (spec.usermeta || {}).longestLabel || 12;
    return Math.max(1, Math.floor((place.clientWidth - 24) / (longest * 6.4 + 36)));
  }

  async function draw(place, spec) {
    const name = scheme.matches ? "dark" : "light";
    const theme = structuredClone(themes[name]);
    const inRow = columns(place, spec);
    theme.legend = { ...theme.legend, orient: "top", direction: "horizontal", columns: inRow };
    const shown = { autosize: { type: "fit-x", contains: "padding" }, ...spec, width: "container", config: theme };
    if (drawn.has(place)) drawn.get(place).finalize();
    const result = await vegaEmbed(place, shown, { actions: false, renderer: "svg", tooltip: { theme: name } });
    drawn.set(place, { spec, inRow, finalize: () => result.finalize() });
    return result.view;
  }

  async function redraw(wanted = () => true) {
    for (const [place, one] of [...drawn]) if (wanted(place, one)) await draw(place, one.spec);
  }

  /* Panels adapt to the width of the screen by themselves; their legends do not. */
  let waiting;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => redraw((place, one) => columns(place, one.spec) !== one.inRow), 150);
  });
  scheme.addEventListener("change", () => redraw());
  return { draw, json, redraw, scheme };
})();

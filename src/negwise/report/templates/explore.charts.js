/* Charts as SVG: two scales, a frame, and marks that are text. Colours come from the style sheet. */

const EDGE = { top: 30, right: 16, bottom: 42, left: 50 };

function scale([from, to], [start, end], log = false) {
  const f = log ? Math.log10 : (value) => value;
  const [a, b] = [f(from), f(to)];
  const place = (value) => start + ((f(value) - a) / (b - a)) * (end - start);
  place.back = (pixel) => {
    const value = a + ((pixel - start) / (end - start)) * (b - a);
    return log ? 10 ** value : value;
  };
  return place;
}

/* Round numbers from low to high, about `count` of them. */
function ticks(low, high, count = 5) {
  const rough = (high - low) / count;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * [1, 2, 5, 10].find((size) => size * unit >= rough);
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, i) => (first + i) * step);
}

/* x and y to a path; points closer than half a pixel would only make it longer. */
function path(xs, ys, sx, sy) {
  return Array.from(xs, (x, i) => `${i ? "L" : "M"}${sx(x).toFixed(1)} ${sy(ys[i]).toFixed(1)}`).join("");
}

/* The area between two lines over the same x. */
const area = (xs, low, high, sx, sy) =>
  `${path(xs, high, sx, sy)}${path([...xs].reverse(), [...low].reverse(), sx, sy).replace("M", "L")}Z`;

const line = (x1, y1, x2, y2, kind) => `<line class="${kind}" x1="${x1}" y1="${y1}" x2="${x2}" y2="${y2}"/>`;
const words = (x, y, text, kind = "", anchor = "start") =>
  `<text class="${kind}" x="${x}" y="${y}" text-anchor="${anchor}">${text}</text>`;

/* Draw into `place`: {x: {domain, log, ticks, title}, y: {domain, ticks, title}, summary, marks(frame) -> SVG text}. */
function draw(place, chart) {
  const width = Math.max(place.clientWidth, 200);
  const height = Number(place.dataset.height);
  const [left, right, top, bottom] = [EDGE.left, width - EDGE.right, EDGE.top, height - EDGE.bottom];
  const x = scale(chart.x.domain, [left, right], chart.x.log);
  const y = scale(chart.y.domain, [bottom, top]);
  const frame = { x, y, left, right, top, bottom, width };
  const rows = chart.y.ticks.map(([value, text]) =>
    line(left, y(value), right, y(value), "grid") + words(left - 8, y(value) + 4, text, "tick", "end"));
  const columns = chart.x.ticks.map(([value, text]) => {
    const last = x(value) + 3.5 * text.length > width; // half of the text would stick out
    const label = words(last ? width : x(value), bottom + 19, text, "tick", last ? "end" : "middle");
    return line(x(value), bottom, x(value), bottom + 5, "axis") + label;
  });
  place.innerHTML = `<svg width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img"
    aria-label="${chart.summary}">${rows.join("")}${chart.marks(frame)}${line(left, bottom, right, bottom, "axis")}
    ${columns.join("")}${words((left + right) / 2, height - 4, chart.x.title, "title", "middle")}
    ${words(left - 40, 11, chart.y.title, "title")}<g class="cross"></g></svg><div class="tip" hidden></div>`;
  place.frame = frame;
}

/* A vertical line at x with dots, [[value, class], ...], on it. */
function crosshair(place, value, dots, kind = "look") {
  const { x, y, top, bottom } = place.frame;
  const at = x(value);
  place.querySelector(".cross").innerHTML = line(at, top, at, bottom, kind) +
    dots.map(([height, kind]) => `<circle class="${kind}" cx="${at}" cy="${y(height)}" r="4"/>`).join("");
}

/* A box beside x with lines of [name, value, class]; no lines hide it. */
function tip(place, value, lines) {
  const box = place.querySelector(".tip");
  box.hidden = !lines.length;
  if (box.hidden) return;
  box.replaceChildren(...lines.map(([name, text, kind]) => {
    const row = document.createElement("div");
    row.className = kind ?? "";
    row.append(Object.assign(document.createElement("span"), { textContent: name }),
      Object.assign(document.createElement("b"), { textContent: text }));
    return row;
  }));
  const { x, left, right, width } = place.frame;
  const over = x(value) > (left + right) / 2;
  box.style.left = over ? "auto" : `${x(value) + 12}px`;
  box.style.right = over ? `${width - x(value) + 12}px` : "auto";
}

/* Call move(x) while the pointer is over the plot, move(null) when it leaves, and pick(x) on a click. */
function watch(place, move, pick) {
  const value = (event) => {
    const { x, left, right } = place.frame;
    const pixel = event.clientX - place.getBoundingClientRect().left;
    return x.back(Math.min(Math.max(pixel, left), right));
  };
  place.addEventListener("pointermove", (event) => move(value(event)));
  place.addEventListener("pointerdown", (event) => move(value(event)));
  place.addEventListener("pointerleave", () => move(null));
  if (pick) place.addEventListener("click", (event) => pick(value(event)));
}

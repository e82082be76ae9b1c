/* The page: controls to a state, the state to an answer, the answer to words, charts and the address. */

const data = JSON.parse(document.getElementById("explore-data").textContent);
const table = readTable(data);
const { rules, presets } = data;
const byId = (id) => document.getElementById(id);
const { train, val } = presets[1];
const START = { mode: "numbers", train, val, lam: 0.9, stage: 0.5, k: null, candidates: 3416, text: "" };
const LONGEST_LINK = 8000;

let state = { ...START };
let shown = null; // what is drawn: {reading, curves, found}; a broken paste leaves it as it was
let problem = ""; // of what is pasted

/* ---- controls: a slider for the hand, a number for the exact value */

const within = (low, high, hint = "") => (value) =>
  Number.isFinite(value) && value >= low && value <= high ? "" : `expected a number from ${low} to ${high}.${hint}`;
const aucRange = (value) => {
  const said = within(0.5, 0.99999)(value);
  return said && value > 1 && value < 100 ? `${said} Divide a percentage by 100.` : said;
};
const AUC_CONTROL = { // a slider even in separation has room near 1, where AUCs that differ look alike
  check: aucRange, text: aucText, onSlider: (auc) => separationOf(table, auc), offSlider: (mu) => aucOf(table, mu),
};
const CONTROLS = {
  train: AUC_CONTROL,
  val: AUC_CONTROL,
  lam: { check: within(0.5, 1), text: (lam) => `${+lam.toFixed(4)}` },
  stage: { check: within(0, 1), text: (stage) => `${+stage.toFixed(4)}` },
  k: { check: within(1, 1e6), text: (k) => `${+k.toPrecision(4)}`, onSlider: Math.log10, offSlider: (x) => 10 ** x },
  candidates: {
    check: within(rules.top.least, 1e6, " With fewer no share was measured."), text: (n) => `${Math.round(n)}`,
    onSlider: Math.log10, offSlider: (x) => 10 ** x,
  },
};

for (const [name, control] of Object.entries(CONTROLS)) {
  const [slider, exact] = [byId(`${name}-slider`), byId(name)];
  slider.addEventListener("input", () => {
    const value = (control.offSlider ?? Number)(Number(slider.value));
    change({ [name]: Number(control.text(value)) });
  });
  exact.addEventListener("change", () => {
    const value = exact.value.trim() === "" ? NaN : Number(exact.value);
    const wrong = control.check(value);
    complain(name, wrong && `Got ${exact.value.trim() || "nothing"}, ${wrong} Still at ${controlText(name)}.`);
    if (!wrong) change({ [name]: value });
  });
}

function complain(name, text) {
  byId(`${name}-wrong`).textContent = text;
  byId(name).setAttribute("aria-invalid", text ? "true" : "false");
}

/* The value of a control as text; what was typed with more digits than a slider gives keeps them. */
function controlText(name) {
  const { text } = CONTROLS[name];
  if (name === "k" && state.k === null) return text(shown.found.k);
  return Number(text(state[name])) === state[name] ? text(state[name]) : String(state[name]);
}

function showControls() {
  for (const [name, control] of Object.entries(CONTROLS)) {
    const text = controlText(name);
    const [slider, exact] = [byId(`${name}-slider`), byId(name)];
    slider.value = (control.onSlider ?? Number)(Number(text));
    slider.setAttribute("aria-valuetext", text);
    if (exact.getAttribute("aria-invalid") !== "true") exact.value = text;
  }
  const curve = state.mode === "curve";
  document.querySelectorAll("input[name=mode]").forEach((radio) => { radio.checked = radio.value === state.mode; });
  byId("val-control").hidden = curve;
  byId("train-control").hidden = curve && !problem && shown.curves.train !== null;
  byId("curve-control").hidden = !curve;
  byId("follow").hidden = state.k === null;
  if (byId("curve").value !== state.text) byId("curve").value = state.text;
}

document.querySelectorAll("input[name=mode]").forEach((radio) =>
  radio.addEventListener("change", () => change({ mode: radio.value })));
byId("curve").addEventListener("input", () => change({ text: byId("curve").value }));
byId("follow").addEventListener("click", () => change({ k: null }));
document.querySelectorAll("[data-preset]").forEach((button) => button.addEventListener("click", () => {
  const { train, val, text } = presets[Number(button.dataset.preset)];
  change(text ? { mode: "curve", text, k: null } : { mode: "numbers", train, val, k: null });
}));

/* ---- from state to answer */

function read() {
  if (state.mode === "numbers") return { reading: readPair(table, rules, state.train, state.val), curves: null };
  const range = [table.first + table.step, table.first + table.step * (table.count - 1)].map((mu) => aucOf(table, mu));
  const curves = parseCurve(state.text, range);
  return { reading: readCurve(table, rules, curves, state.train), curves };
}

/* A change of state; a control that had complained is right again once its value moves. */
function change(part) {
  for (const name of Object.keys(part)) if (name in CONTROLS) complain(name, "");
  state = { ...state, ...part };
  update();
}

function update() {
  try {
    const { reading, curves } = read();
    shown = { reading, curves, found: answer(table, rules, reading, state.lam, state.stage) };
    problem = "";
  } catch (error) {
    if (!(error instanceof PasteError)) throw error;
    problem = error.message;
  }
  byId("curve-wrong").textContent = problem;
  byId("curve").setAttribute("aria-invalid", problem ? "true" : "false");
  for (const id of ["answer", "results"]) byId(id).classList.toggle("stale", problem !== "");
  if (problem !== "") put("headline", "No answer yet: the curve cannot be read.");
  else {
    showAnswer();
    drawCharts();
    look(lookedAt());
  }
  showControls();
  remember();
}

const lookedAt = () => state.k ?? shown.found.k;

/* ---- words */

function put(id, text, value) {
  byId(id).textContent = text;
  if (value !== undefined) byId(id).dataset.value = value;
}

function showAnswer() {
  const { found, reading } = shown;
  put("headline", headline(found));
  put("best", told(found) ? kText(found.k) : "—", found.k);
  put("flat", told(found) ? flatText(found.flat) : "—", JSON.stringify(found.flat));
  put("margin", vText(found.margin), found.margin);
  put("verdict", found.verdict);
  const enough = kAtTopShare(rules, state.candidates, 0.9);
  put("plateau", plateauText(enough, state.candidates, found), enough);
  byId("answer").dataset.verdict = found.verdict;
  const notes = [...found.because, ...reading.notes].map((text) =>
    Object.assign(document.createElement("li"), { textContent: text }));
  byId("notes").replaceChildren(...notes);
  byId("notes").hidden = !notes.length;
  const label = aucText(aucOf(table, reading.label));
  put("label-read", `Label separation ${reading.label.toFixed(3)} (AUC ${label})`, reading.label);
  put("horizon-read", reading.horizon === null ? "" : `T = step ${reading.horizon}`, reading.horizon ?? "");
}

/* What K gives: the numbers under the charts, the crosshair, and what a tip says. */
function valuesAt(k) {
  const { found } = shown;
  const [label, now] = [atK(table, found.label, k), atK(table, found.now, k)];
  const stage = effectiveness(label, now, found.lam);
  const gain = { auc: atK(table, aucShares(found.mean), k), top: topShare(rules, state.candidates, k) };
  return { k, label, now, mean: atK(table, found.mean, k), stage, gain, ...sampleKinds(label, now) };
}

const onlineText = (k) => (k === Infinity ? "over 1,000,000" : kText(k));

function look(k) {
  const at = valuesAt(k);
  put("at-k", kText(k), k);
  for (const name of ["mean", "stage"]) put(`at-${name}`, vText(at[name]), at[name]);
  for (const name of ["good", "bad", "easy", "label", "now"]) put(`at-${name}`, shareText(at[name]), at[name]);
  put("at-gain-auc", told(shown.found) ? shareText(at.gain.auc) : "—", at.gain.auc);
  put("at-gain-top", shareText(at.gain.top), at.gain.top);
  const online = onlineK(table, rules, shown.found.now, state.candidates);
  for (const name of ["auc", "top"]) put(`online-${name}`, onlineText(online[name]), online[name]);
  crosshair(byId("gain-chart"), k, [...(told(shown.found) ? [[at.gain.auc, "mean"]] : []), [at.gain.top, "train"]]);
  const best = told(shown.found) && k === shown.found.k; // which the charts mark already
  crosshair(byId("v-chart"), k, [...(best ? [] : [[at.mean, "mean"]]), [at.stage, "stage"]], best ? "best" : "look");
  crosshair(byId("kinds-chart"), k, [], best ? "best" : "look");
  return at;
}

function hover(k) {
  const at = look(k ?? lookedAt());
  tip(byId("v-chart"), at.k, k === null ? [] : [
    ["K", kText(k)], ["v, mean over training", vText(at.mean), "mean"], ["v at this stage", vText(at.stage), "stage"]]);
  tip(byId("kinds-chart"), at.k, k === null ? [] : [
    ["K", kText(k)], ...["good", "easy", "bad"].map((kind) => [kind, shareText(at[kind]), kind])]);
  tip(byId("gain-chart"), at.k, k === null ? [] : [
    ["K", kText(k)], ...(told(shown.found) ? [["AUC", shareText(at.gain.auc), "mean"]] : []),
    ["nDCG@10", shareText(at.gain.top), "train"]]);
}

/* ---- charts */

function drawCharts() {
  drawEffectiveness(byId("v-chart"), table.ks, shown.found);
  drawKinds(byId("kinds-chart"), table.ks, shown.found);
  drawGain(byId("gain-chart"), rules, table.ks, shown.found, state.candidates);
  drawTraining(byId("training-chart"), table, shown);
}

function hoverTraining(step) {
  const place = byId("training-chart");
  if (step === null) return tip(place, 0, []);
  const { train, val } = trainingLines(table, shown);
  const trainAuc = train ? lineAt(train.steps, train.auc, step) : aucOf(table, shown.reading.label);
  const when = shown.curves
    ? ["step", whole(+step.toPrecision(4))]
    : ["share of training", `${Math.round(100 * step)}%`];
  tip(place, step, [
    when,
    ["training AUC", aucText(trainAuc), "train"],
    ["validation AUC", aucText(lineAt(val.steps, val.auc, step)), "val"]]);
}

for (const id of ["v-chart", "kinds-chart", "gain-chart"]) watch(byId(id), hover, (k) => change({ k: Number(CONTROLS.k.text(k)) }));
watch(byId("training-chart"), hoverTraining);
new ResizeObserver(() => { drawCharts(); look(lookedAt()); }).observe(byId("results"));

/* ---- the address: a view can be sent */

let later = 0;
let known = location.hash; // another one was put there by hand, and its hashchange is on the way
function remember() {
  clearTimeout(later);
  later = setTimeout(() => { // browsers take a few addresses a second, not one for each move of a slider
    if (location.hash !== known) return;
    const parts = { lam: state.lam, stage: state.stage };
    if (!byId("train-control").hidden) parts.train = state.train;
    if (state.mode === "numbers") parts.val = state.val;
    else if (state.text.length <= LONGEST_LINK) parts.curve = state.text;
    if (state.k !== null) parts.k = state.k;
    if (state.candidates !== START.candidates) parts.candidates = state.candidates;
    byId("link-long").hidden = state.mode === "numbers" || state.text.length <= LONGEST_LINK;
    history.replaceState(null, "", `#${new URLSearchParams(parts)}`);
    known = location.hash;
  }, 150);
}

function recall() {
  known = location.hash;
  if (!location.hash.includes("=")) return; // a place on the page, not a view
  const parts = new URLSearchParams(location.hash.slice(1));
  const [next, wrong] = [{ ...START }, []];
  for (const [name, text] of parts) {
    if (name === "curve") Object.assign(next, { mode: "curve", text });
    else if (!(name in CONTROLS)) wrong.push(`"${name}" is not known to this page.`);
    else {
      const said = text === "" ? "expected a number." : CONTROLS[name].check(Number(text));
      if (said) wrong.push(`${name}: got "${text}", ${said}`);
      else next[name] = Number(text);
    }
  }
  byId("link-wrong").hidden = !wrong.length;
  put("link-wrong", wrong.length ? `Parts of the address were left out. ${wrong.join(" ")}` : "");
  state = next;
  update();
}

addEventListener("hashchange", recall);
update(); // the view to fall back on, should the address bring a broken curve
recall();

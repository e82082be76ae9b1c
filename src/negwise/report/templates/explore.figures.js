/* The four figures, and how numbers read: what of an answer goes where. */

const aucText = (auc) => auc.toFixed(Math.max(4, Math.ceil(-Math.log10(1 - auc)) + 2));
const kText = (k) => (k < 9.995 ? k.toFixed(2) : k < 99.95 ? k.toFixed(1) : Math.round(k).toLocaleString("en"));
const whole = (k) => k.toLocaleString("en");
const flatText = ([low, high]) => (high === null ? `${whole(low)} and more` : `${whole(low)}..${whole(high)}`);
const vText = (v) => v.toFixed(4);
const shareText = (share) => `${(100 * share).toFixed(1)}%`;

/* Whether a K should be read from the answer at all. */
const told = ({ verdict }) => verdict === "ok" || verdict === "capped";

function headline({ verdict, kInt, flat }) {
  if (verdict === "ok") return `In theory K = ${whole(kInt)} is best for AUC, and ${flatText(flat)} are as good.`;
  if (verdict === "capped")
    return `In theory K = ${whole(kInt)} is the best found for AUC, but its size is not pinned down.`;
  if (verdict === "vacuous") return "These curves do not determine K.";
  if (verdict === "incomplete") return "These curves do not determine K: their start is missing.";
  return "These curves contradict each other; no K should be read from them.";
}

/* What measured runs say beside the theory, whatever the curves determine. */
const plateauText = (k, candidates, found) =>
  `${told(found) ? "In measured runs more negatives than that were level or better. " : ""}By a curve fitted on measured ` +
  `runs, K = ${whole(k)} has nine tenths of the gain in nDCG@10 among ${whole(candidates)} candidates.`;

const K_TICKS = [[1, "1"], [10, "10"], [100, "100"], [1e3, "1k"], [1e4, "10k"], [1e5, "100k"], [1e6, "1M"]];
const kAxis = () => ({ domain: [1, 1e6], log: true, ticks: K_TICKS, title: "K, negatives per positive (log scale)" });

function drawEffectiveness(place, ks, found) {
  const every = [...found.mean, ...found.atStage, 1 - found.lam];
  const [low, high] = [Math.min(...every), Math.max(...every)];
  const room = 0.1 * (high - low || 1);
  const domain = [low - room, high + room];
  draw(place, {
    x: kAxis(),
    y: { domain, ticks: ticks(...domain).map((v) => [v, String(+v.toFixed(6))]), title: "training effectiveness v" },
    summary: `Effectiveness against K. ${headline(found)}`,
    marks: ({ x, y, left, right, top, bottom }) => {
      const limit = y(1 - found.lam);
      const from = x(found.flat[0]);
      const to = x(found.flat[1] ?? 1e6);
      const side = x(found.k) > (left + right) / 2 ? "end" : "start";
      const band = told(found)
        ? `<rect class="band" x="${from}" y="${top}" width="${Math.max(to - from, 1)}" height="${bottom - top}"/>`
        : "";
      const star = told(found)
        ? line(x(found.k), top, x(found.k), bottom, "best") +
          `<circle class="best" cx="${x(found.k)}" cy="${y(found.value)}" r="5"/>` +
          words(x(found.k) + (side === "end" ? -9 : 9), y(found.value) - 9, `K* = ${kText(found.k)}`, "best", side)
        : "";
      return band + line(left, limit, right, limit, "limit") +
        words(right - 4, limit + (limit > (top + bottom) / 2 ? 14 : -7), "1 − λ: all are easy", "limit", "end") +
        `<path class="stage" d="${path(ks, found.atStage, x, y)}"/>` +
        `<path class="mean" d="${path(ks, found.mean, x, y)}"/>${star}`;
    },
  });
}

function drawKinds(place, ks, found) {
  const kinds = Array.from(found.label, (label, j) => sampleKinds(label, found.now[j]));
  const zero = kinds.map(() => 0);
  const good = kinds.map((kind) => kind.good);
  const easy = kinds.map((kind) => kind.good + kind.easy);
  const one = kinds.map(() => 1);
  const quarters = [0, 0.25, 0.5, 0.75, 1].map((v) => [v, `${100 * v}%`]);
  draw(place, {
    x: kAxis(),
    y: { domain: [0, 1], ticks: quarters, title: "share of training samples" },
    summary: "Shares of good, easy and bad samples against K at this stage of training",
    marks: ({ x, y }) => [["good", zero, good], ["easy", good, easy], ["bad", easy, one]]
      .map(([kind, low, high]) => `<path class="${kind}" d="${area(ks, low, high, x, y)}"/>`).join(""),
  });
}

/* What each K brings, of all that any K brings over K = 1; the lines level off and do not fall. */
function drawGain(place, rules, ks, found, candidates) {
  const quarters = [0, 0.25, 0.5, 0.75, 1].map((v) => [v, `${100 * v}%`]);
  const top = Array.from(ks, (k) => topShare(rules, candidates, k));
  draw(place, {
    x: kAxis(),
    y: { domain: [0, 1.04], ticks: quarters, title: "share of the gain over K = 1" },
    summary: "Share of the gain against K, for AUC and for nDCG@10",
    marks: ({ x, y }) => (told(found) ? `<path class="mean" d="${path(ks, aucShares(found.mean), x, y)}"/>` : "") +
      `<path class="train" d="${path(ks, top, x, y)}"/>`,
  });
}

/* AUC over training: the ramp, or the pasted curve with T. */
function trainingLines(table, { reading, curves }) {
  if (curves) return { train: curves.train, val: curves.val, last: reading.horizon };
  const steps = Array.from({ length: 101 }, (_, i) => i / 100);
  return { train: null, val: { steps, auc: steps.map((share) => aucOf(table, reading.at(share))) }, last: 1 };
}

function drawTraining(place, table, { reading, curves, found: { stage } }) {
  const { train, val, last } = trainingLines(table, { reading, curves });
  const labelAuc = aucOf(table, reading.label);
  const end = Math.max(val.steps[val.steps.length - 1], train ? train.steps[train.steps.length - 1] : 0);
  const every = [labelAuc, ...val.auc, ...(train ? train.auc : []), 0.5];
  const [low, high] = [Math.min(...every), Math.max(...every)];
  const domain = [low - 0.02 * (high - low || 0.1), high + 0.06 * (high - low || 0.1)];
  const now = { step: stage * last, auc: aucOf(table, reading.at(stage)) };
  const stepText = (step) => (curves ? whole(+step.toPrecision(6)) : `${Math.round(100 * step)}%`);
  const xTicks = ticks(0, end, 4).map((step) => [step, stepText(step)]);
  const horizon = ({ x, right, top, bottom }) => {
    const [side, off] = x(last) > right - 90 ? ["end", -5] : ["start", 5];
    const text = words(x(last) + off, bottom - 7, `T = ${whole(last)}`, "limit", side);
    return line(x(last), top, x(last), bottom, "limit") + text;
  };
  draw(place, {
    x: { domain: [0, end], ticks: xTicks, title: curves ? "training step" : "share of training done" },
    y: { domain, ticks: ticks(...domain, 4).map((auc) => [auc, String(+auc.toFixed(6))]), title: "AUC" },
    summary: `Training AUC ${labelAuc.toFixed(4)}; validation AUC over training`,
    marks: (frame) => {
      const { x, y, left, right, top, bottom } = frame;
      return (train
        ? `<path class="train" d="${path(train.steps, train.auc, x, y)}"/>`
        : line(left, y(labelAuc), right, y(labelAuc), "train flat")) +
        `<path class="val" d="${path(val.steps, val.auc, x, y)}"/>${curves ? horizon(frame) : ""}` +
        line(x(now.step), top, x(now.step), bottom, "look") +
        `<circle class="stage" cx="${x(now.step)}" cy="${y(now.auc)}" r="5"/>`;
    },
  });
}

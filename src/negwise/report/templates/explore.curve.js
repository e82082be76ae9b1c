/* A pasted curve: text to numbers, and numbers to a reading by the rules of the estimate. */

class PasteError extends Error {}

const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
const NOT_AN_AUC = ["pr", "prc", "loss", "min", "max", "best", "std", "sd", "var", "se", "sem", "stderr", "err",
  "error", "ci", "low", "lower", "high", "upper", "test"];

/* {steps, auc} of training (null: no such column) and of validation, or a PasteError that names the line. */
function parseCurve(text, range) {
  const lines = text.split(/\r\n|\r|\n/).map((line, i) => ({ number: i + 1, text: line.trim() }))
    .filter((line) => line.text && !line.text.startsWith("#"));
  if (!lines.length) throw new PasteError("Nothing pasted yet. Expected lines of: step, training AUC, validation AUC.");
  const mark = ["\t", ";", ","].find((one) => lines[0].text.includes(one)) ?? /\s+/;
  const cut = (line) => line.text.split(mark).map((cell) => cell.trim().replace(/^"(.*)"$/, "$1"));
  const head = cut(lines[0]);
  const named = head.some((cell) => cell && !NUMBER.test(cell));
  const roles = named ? byName(head, lines[0].number) : byPlace(head, lines[0].number);
  const curves = { train: roles.train === undefined ? null : { steps: [], auc: [] }, val: { steps: [], auc: [] } };
  let before = -Infinity;
  for (const line of named ? lines.slice(1) : lines) {
    const cells = cut(line);
    const at = `Line ${line.number}: `;
    if (cells.length !== head.length)
      throw new PasteError(`${at}got ${cells.length} cells, expected ${head.length}, as on line ${lines[0].number}.`);
    const step = number(cells[roles.step], `${at}step`);
    if (step < 0) throw new PasteError(`${at}got step ${step}, expected numbers from 0 up.`);
    if (step <= before) throw new PasteError(`${at}got step ${step} after ${before}, expected rising steps.`);
    before = step;
    for (const side of ["train", "val"]) {
      if (roles[side] === undefined || cells[roles[side]] === "") continue; // not evaluated at this step
      curves[side].steps.push(step);
      curves[side].auc.push(checkAuc(number(cells[roles[side]], `${at}AUC`), at, range));
    }
  }
  if (curves.val.auc.length < 2) {
    const came = `got ${curves.val.auc.length} validation AUC${curves.val.auc.length === 1 ? "" : "s"}`;
    throw new PasteError(`In all ${came}, expected at least 2. A single pair of numbers goes on the sliders.`);
  }
  if (curves.train && !curves.train.auc.length) throw new PasteError("The column of the training AUC is empty.");
  return curves;
}

function byPlace(head, line) {
  if (head.length === 2) return { step: 0, val: 1 };
  if (head.length === 3) return { step: 0, train: 1, val: 2 };
  throw new PasteError(`Line ${line}: got ${head.length} column${head.length === 1 ? "" : "s"}, expected 2 (step, ` +
    "validation AUC) or 3 (step, training AUC, validation AUC), or a first line of names.");
}

function byName(head, line) {
  const cut = (name) => name.match(/[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+/g) ?? [];
  const words = head.map((name) => cut(name).map((word) => word.toLowerCase()));
  const has = (known) => (i) => words[i].some((word) => known.includes(word));
  const columns = [...head.keys()];
  const aucs = columns.filter(has(["auc", "auroc", "rocauc", "aucroc"])).filter((i) => !has(NOT_AN_AUC)(i));
  const one = (role, found) => {
    if (found.length > 1) {
      const names = found.map((i) => head[i]).join(" and ");
      throw new PasteError(`Line ${line}: ${names} could both be the ${role}, expected one. Delete the other column.`);
    }
    return found[0];
  };
  const isTrain = has(["train", "training"]);
  const isVal = has(["val", "valid", "validation", "dev", "eval"]);
  const steps = columns.filter(has(["step", "steps", "iteration", "iter"])).filter((i) => !aucs.includes(i));
  const epochs = columns.filter(has(["epoch", "epochs"])).filter((i) => !aucs.includes(i));
  const roles = {
    step: one("step", steps.length ? steps : epochs),
    train: one("training AUC", aucs.filter((i) => isTrain(i) && !isVal(i))),
    val: one("validation AUC", aucs.filter((i) => isVal(i) && !isTrain(i))),
  };
  for (const [role, what] of [["step", "step"], ["val", "validation AUC"]])
    if (roles[role] === undefined)
      throw new PasteError(`Line ${line}: found no ${what} among ${head.join(", ")}. Expected names such as ` +
        "step,train_auc,val_auc.");
  return roles;
}

function number(cell, what) {
  if (!NUMBER.test(cell)) {
    const came = cell === "" ? "nothing" : `"${cell.length > 30 ? `${cell.slice(0, 27)}...` : cell}"`;
    throw new PasteError(`${what}: got ${came}, expected a number.`);
  }
  return Number(cell);
}

function checkAuc(value, at, [least, most]) {
  if (value > 1 && value <= 100)
    throw new PasteError(`${at}got AUC ${value}, expected a number between 0 and 1. Divide a percentage by 100.`);
  if (!(value > 0 && value < 1))
    throw new PasteError(`${at}got AUC ${value}, expected a number between 0 and 1, both excluded.`);
  if (value < least || value > most)
    throw new PasteError(`${at}got AUC ${value}; this page's table holds ${least.toFixed(2)} to ${most}. Use negwise ` +
      "estimate for this curve.");
  return value;
}

/* A straight line through each value and its neighbours, 5% of the curve to either side (at least one). */
function smooth(values) {
  const n = values.length;
  if (n < 5) return values;
  const half = Math.max(1, Math.floor(n / 20));
  return values.map((_, i) => {
    const [low, high] = [Math.max(i - half, 0), Math.min(i + half + 1, n)];
    const centre = (low + high - 1) / 2;
    let [total, moment, spread] = [0, 0, 0];
    for (let j = low; j < high; j++) {
      total += values[j];
      moment += (j - centre) * values[j];
      spread += (j - centre) ** 2;
    }
    return total / (high - low) + (moment / spread) * (i - centre);
  });
}

/* The value at x of the line through (xs, ys), level beyond its ends. */
function lineAt(xs, ys, x) {
  if (x <= xs[0]) return ys[0];
  const i = xs.findIndex((one) => one >= x);
  if (i < 0) return ys[ys.length - 1];
  return ys[i - 1] + ((ys[i] - ys[i - 1]) * (x - xs[i - 1])) / (xs[i] - xs[i - 1]);
}

/* Whether a line through the last third rises by 3% of its end and beyond noise. */
function stillRising(steps, values) {
  const n = steps.length;
  const border = steps[0] + ((steps[n - 1] - steps[0]) * 2) / 3;
  const start = Math.max(Math.min(steps.findIndex((step) => step >= border), n - 4), 0);
  const [t, y] = [steps.slice(start), values.slice(start)];
  if (t.length < 3) return false;
  const mean = (list) => list.reduce((a, b) => a + b) / list.length;
  const [middle, level] = [mean(t), mean(y)];
  const away = t.map((one) => one - middle);
  const spread = away.reduce((sum, one) => sum + one * one, 0);
  const slope = away.reduce((sum, one, i) => sum + one * y[i], 0) / spread;
  const rest = y.reduce((sum, one, i) => sum + (one - level - slope * away[i]) ** 2, 0);
  const error = Math.sqrt(rest / (t.length - 2) / spread);
  const end = level + slope * away[away.length - 1];
  return slope * (t[t.length - 1] - t[0]) > 0.03 * Math.abs(end) && slope > 2 * error;
}

/* Separations of a curve, each with its weight in the trapezoid mean. */
function trapezoidPairs(times, mu) {
  const [first, end] = [times[0], times[times.length - 1]];
  return mu.map((one, i) => {
    const gaps = (times[i + 1] ?? end) - (times[i - 1] ?? first);
    return [one, end > first ? gaps / (2 * (end - first)) : 1];
  });
}

/* Label separation, the model's training up to T, and T, from a curve; `trainAuc` where it has no training column. */
function readCurve(table, rules, curves, trainAuc) {
  const toMu = (auc) => separationOf(table, auc);
  const { steps } = curves.val;
  const mu = curves.val.auc.map(toMu);
  const smoothed = smooth(mu);
  const peak = smoothed.indexOf(Math.max(...smoothed));
  const lastFrom = (start) => {
    const top = smoothed[peak];
    const begin = start > rules.well_above_chance * top ? start : 0; // a pretrained model: its share of the way
    return smoothed.findIndex((one) => one >= (top > 0 ? begin + rules.horizon * (top - begin) : top));
  };
  const last = lastFrom(steps[0] === 0 ? smoothed[0] : 0);
  const horizon = steps[last];

  const trainMu = curves.train && curves.train.auc.map(toMu);
  const label = trainMu ? lineAt(curves.train.steps, smooth(trainMu), steps[peak]) : toMu(trainAuc);

  const seen = { times: steps.slice(0, last + 1), mu: mu.slice(0, last + 1) };
  if (steps[0] > 0) seen.times.unshift(0) && seen.mu.unshift(0); // an untrained model is at chance
  const [first, length] = [seen.times[0], horizon - seen.times[0]];
  // Without step 0, the other extreme: the model began where it was first evaluated, as a pretrained one may.
  const until = lastFrom(smoothed[0]) + 1;
  const elsewhere = steps[0] > 0 && steps.length > 1 ? trapezoidPairs(steps.slice(0, until), mu.slice(0, until)) : null;
  return {
    label,
    pairs: trapezoidPairs(seen.times, seen.mu),
    elsewhere,
    firstStep: steps[0],
    firstAuc: curves.val.auc[0],
    at: (part) => lineAt(seen.times, seen.mu, first + part * length),
    against: contradictions(curves, aucOf(table, label), aucOf(table, smoothed[peak])),
    horizon,
    notes: curveNotes(curves, mu, trainMu, peak, last),
  };
}

function contradictions({ train, val }, labelAuc, peakAuc) {
  const found = aboveTraining(labelAuc, peakAuc);
  for (const [name, curve] of [["Training", train], ["Validation", val]]) {
    // A model that has not learned (step 0) may stand on either side.
    const trained = (i) => curve.steps[i] > 0 || curve.steps.length === 1;
    const low = curve ? curve.auc.findIndex((auc, i) => auc < 0.5 - TOLERANCE && trained(i)) : -1;
    if (low >= 0)
      found.push(`${name} AUC ${curve.auc[low].toFixed(4)} at step ${curve.steps[low]} is below 0.5: negatives score ` +
        "above positives. If smaller scores are better in your model, flip their sign.");
  }
  if (train && train.steps.length > 1) {
    const ends = [train, val].map(({ steps }) => [steps[0], steps[steps.length - 1]]);
    const shared = Math.min(ends[0][1], ends[1][1]) - Math.max(ends[0][0], ends[1][0]);
    const whole = Math.max(ends[0][1], ends[1][1]) - Math.min(ends[0][0], ends[1][0]);
    if (shared < 0.1 * whole)
      found.push("The curves share less than a tenth of their steps. If one counts epochs and the other steps, bring " +
        "them to one unit.");
  }
  return found;
}

function curveNotes({ train, val }, valMu, trainMu, peak, last) {
  const notes = [];
  if (last === 0 && val.steps[0] > 0)
    notes.push(`The first evaluation (step ${val.steps[0]}) already is at 95% of the peak, so the rise itself was ` +
      "not seen. Evaluate more often at the start.");
  if (val.steps[last] > 0.9 * val.steps[val.steps.length - 1] && stillRising(val.steps, valMu))
    notes.push("Validation AUC still rises at the end of the pilot; T may move with a longer one.");
  const late = train && val.steps[peak] >= 0.9 * train.steps[train.steps.length - 1];
  if (late && trainMu.length > 2 && stillRising(train.steps, trainMu))
    notes.push("The training AUC still crept up at the end. K* is for what was measured; negwise estimate " +
      "--curves FILE tells whether a longer run would move it.");
  return notes;
}

/* Effectiveness from the table of P(mu, K): eq. 5 and 6, their mean over training, and its maximum.

   A training curve enters as a row of weights on the table's separations, since v is linear in P(B). Curves over K are
   arrays on the table's own K, even in log K; between its points everything is read off by one polynomial. */

const POINTS = 6; // of each interpolating polynomial; its error is below the effect of the table's 32 bits
const TOLERANCE = 0.02; // in AUC: what may be noise

/* The table: row i holds P at separation first + i step, column j at K = 10^(j / perDecade). */
function readTable(data) {
  const bytes = Uint8Array.from(atob(data.reliability), (letter) => letter.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  const columns = data.ks.count;
  const rows = Array.from({ length: data.separations.count }, (_, i) =>
    Float64Array.from({ length: columns }, (_, j) => view.getFloat32(4 * (i * columns + j), true)));
  const ks = Float64Array.from({ length: columns }, (_, j) => 10 ** (j / data.ks.per_decade));
  return { ...data.separations, perDecade: data.ks.per_decade, rows, ks, logOdds: data.log_odds };
}

/* Where the points around position x of an even grid begin, and Lagrange's weights of each of them. */
function stencil(x, count) {
  const first = Math.min(Math.max(Math.floor(x) - POINTS / 2 + 1, 0), count - POINTS);
  const weights = new Array(POINTS).fill(1);
  for (let a = 0; a < POINTS; a++)
    for (let b = 0; b < POINTS; b++) if (a !== b) weights[a] *= (x - first - b) / (a - b);
  return { first, weights };
}

function interpolate(values, x) {
  const { first, weights } = stencil(x, values.length);
  return weights.reduce((sum, weight, i) => sum + weight * values[first + i], 0);
}

/* A curve over K, read at any K. */
const atK = (table, curve, k) => interpolate(curve, Math.log10(k) * table.perDecade);

/* AUC and separation: the log-odds of the AUC at each separation of the table, there and back. */
const aucOf = (table, mu) => 1 / (1 + Math.exp(-interpolate(table.logOdds, (mu - table.first) / table.step)));

function separationOf(table, auc) {
  const wanted = Math.log(auc / (1 - auc));
  let [low, high] = [0, table.count - 1];
  for (let i = 0; i < 60; i++) {
    const middle = (low + high) / 2;
    if (interpolate(table.logOdds, middle) < wanted) low = middle;
    else high = middle;
  }
  return table.first + table.step * low;
}

/* The mean of P(mu, K) over [separation, weight] pairs, at each K of the table. */
function reliabilityCurve(table, pairs) {
  const onRows = new Float64Array(table.count);
  for (const [mu, weight] of pairs) {
    const { first, weights } = stencil((mu - table.first) / table.step, table.count);
    weights.forEach((share, i) => { onRows[first + i] += weight * share; });
  }
  const mean = new Float64Array(table.ks.length);
  onRows.forEach((weight, i) => { if (weight) table.rows[i].forEach((p, j) => { mean[j] += weight * p; }); });
  return mean;
}

/* Eq. 5: shares of samples from P(A) and P(B). */
function sampleKinds(label, model) {
  const good = label * (1 - model);
  const bad = model * (1 - label);
  return { good, bad, easy: 1 - good - bad };
}

/* Eq. 6. */
function effectiveness(label, model, lam) {
  const { good, bad, easy } = sampleKinds(label, model);
  return lam * (good - bad) + (1 - lam) * easy;
}

/* How far a training that ends at 1 has come at a share of its time: (1 - e^-t) / (1 - e^-3), t from 0 to 3. */
const rampAt = (share, end) => Math.expm1(-end * share) / Math.expm1(-end);

/* A training that ends at separation `last`, as pairs of separation and Simpson's weight. */
function rampPairs(last, end) {
  const steps = 128;
  return Array.from({ length: steps + 1 }, (_, i) => {
    const weight = i === 0 || i === steps ? 1 : i % 2 ? 4 : 2;
    return [last * rampAt(i / steps, end), weight / (3 * steps)];
  });
}

/* The maximum of v over K, and the whole K of the connected range around it with v within `flat` (null: open). */
function optimum(table, vs, flat) {
  const last = vs.length - 1;
  const v = (x) => interpolate(vs, x);
  const top = vs.indexOf(Math.max(...vs));
  let [low, high] = [Math.max(top - 1, 0), Math.min(top + 1, last)];
  let x = top;
  while (high - low > 1e-7) {
    const gap = (high - low) / 16;
    const tries = Array.from({ length: 17 }, (_, i) => low + i * gap);
    x = tries.reduce((best, one) => (v(one) > v(best) ? one : best));
    [low, high] = [Math.max(x - gap, low), Math.min(x + gap, high)];
  }
  const atEnd = last - x < 1e-6;
  const k = atEnd ? table.ks[last] : x < 1e-6 ? 1 : 10 ** (x / table.perDecade);
  const value = v(x);
  const vAt = (one) => atK(table, vs, one);
  const kInt = Math.ceil(k) <= table.ks[last] && vAt(Math.ceil(k)) > vAt(Math.floor(k)) ? Math.ceil(k) : Math.floor(k);

  const least = value - flat * Math.abs(value);
  const crossing = (outside, inside) => {
    for (let i = 0; i < 50; i++) {
      const middle = (outside + inside) / 2;
      if (v(middle) >= least) inside = middle;
      else outside = middle;
    }
    return 10 ** (inside / table.perDecade);
  };
  let left = Math.floor(x);
  while (left >= 0 && vs[left] >= least) left--;
  let right = Math.ceil(x);
  while (right <= last && vs[right] >= least) right++;
  const from = left < 0 ? 1 : Math.ceil(crossing(left, Math.min(left + 1, x)));
  const to = right > last ? null : Math.floor(crossing(right, Math.max(right - 1, x)));
  return { k, kInt, value, atEnd, flat: [Math.min(from, kInt), to === null ? null : Math.max(to, kInt)] };
}

/* The share of the gain in AUC at each K of the table: v held at its maximum, from K = 1 on. */
function aucShares(mean) {
  const top = Math.max(...mean);
  let risen = -Infinity;
  return mean.map((v) => {
    risen = Math.max(risen, v);
    return top > mean[0] ? (risen - mean[0]) / (top - mean[0]) : 1;
  });
}

/* The same for the top of a list among `candidates`: a saturating curve, fitted on measured runs. */
const topShare = (rules, candidates, k) =>
  (k - 1) / (k - 1 + rules.top.scale * (candidates / rules.top.area) ** rules.top.power);

/* The smallest whole K with a share of that gain. */
const kAtTopShare = (rules, candidates, share) =>
  Math.ceil(1 + (share / (1 - share)) * rules.top.scale * (candidates / rules.top.area) ** rules.top.power);

/* The K at which a falling curve over the table's K is at r; 1 if it is below r there, Infinity beyond the table. */
function kAtReliability(table, curve, r) {
  const last = curve.length - 1;
  if (curve[0] <= r) return 1;
  if (curve[last] > r) return Infinity;
  let [low, high] = [0, last];
  for (let i = 0; i < 50; i++) {
    const middle = (low + high) / 2;
    if (interpolate(curve, middle) > r) low = middle;
    else high = middle;
  }
  return 10 ** (low / table.perDecade);
}

/* Online K at this stage: for AUC, and for the top of a list, where K for the metric bounds it. */
function onlineK(table, rules, now, candidates) {
  const bound = Math.max(candidates / rules.top.area, rules.top.information);
  return {
    auc: kAtReliability(table, now, rules.online.auc),
    top: Math.min(kAtReliability(table, now, rules.online.top), bound, candidates - 1),
  };
}

/* Everything that one view shows: curves over K, the best K, and what to think of it.

   `reading` has the label separation, `pairs` (the model's training, as separations with weights), `at(share)` (the
   model's separation at a share of training), and `against` (what in it cannot be). */
function answer(table, rules, reading, lam, stage) {
  const label = reliabilityCurve(table, [[reading.label, 1]]);
  const model = reliabilityCurve(table, reading.pairs);
  const now = reliabilityCurve(table, [[reading.at(stage), 1]]);
  const mean = label.map((p, j) => effectiveness(p, model[j], lam));
  const atStage = label.map((p, j) => effectiveness(p, now[j], lam));
  const best = optimum(table, mean, rules.flat);
  const margin = best.value - (1 - lam);
  let other = null;
  if (reading.elsewhere) {
    const begun = reliabilityCurve(table, reading.elsewhere);
    other = optimum(table, label.map((p, j) => effectiveness(p, begun[j], lam)), rules.flat);
  }
  return { ...best, margin, lam, stage, label, now, mean, atStage, ...judge(rules, reading, best, other, margin, lam) };
}

/* Whether a K lies in the range of those as good as another's best. */
const inFlat = ([low, high], k) => low <= k && (high === null || k <= high);

function judge(rules, reading, best, other, margin, lam) {
  if (reading.against.length) return { verdict: "inconsistent", because: reading.against };
  if (reading.horizon === 0) {
    return { verdict: "vacuous", because: ["Validation is at 95% of its peak before training starts (step 0), so " +
      "there is no rise to average over: K* is that of a model which never changes."] };
  }
  if (margin < rules.least_margin) {
    const gains = margin > 0 ? `gains ${margin.toFixed(4)}` : "gains nothing";
    const why = lam === 0.5
      ? "At lambda 0.5 no K ever gains anything, whatever the data: take a larger one."
      : `The labels are too noisy, the model is too close to them, or lambda (${lam}) is too small.`;
    const limit = `over a K so large that every sample is easy; under ${rules.least_margin} that is no maximum.`;
    return { verdict: "vacuous", because: [`The best K ${gains} ${limit} ${why}`] };
  }
  if (other && !inFlat(best.flat, other.k) && !inFlat(other.flat, best.k)) {
    return { verdict: "incomplete", because: [`The curve begins at step ${reading.firstStep}, and K* depends on what ` +
      `came before: ${Number(best.k.toPrecision(3))} if the model began at chance, ${Number(other.k.toPrecision(3))} if ` +
      `it began at AUC ${reading.firstAuc.toFixed(4)}, as a pretrained one may. Evaluate at step 0 too.`] };
  }
  if (best.atEnd) {
    return { verdict: "capped", because: ["Effectiveness still rises where the table ends, at K = 1,000,000."] };
  }
  return { verdict: "ok", because: [] };
}

/* Validation above training by more than noise: `inconsistent`, as the estimate calls it. */
function aboveTraining(trainAuc, valAuc) {
  if (!(valAuc - trainAuc > TOLERANCE)) return [];
  return [`Validation AUC ${valAuc.toFixed(4)} lies above training AUC ${trainAuc.toFixed(4)} by more than noise. ` +
    "The labels bound what a model can reach, so the two are not the same AUC."];
}

/* Two numbers: the end of a simulated training. */
function readPair(table, rules, trainAuc, valAuc) {
  const last = separationOf(table, valAuc);
  return {
    label: separationOf(table, trainAuc),
    pairs: rampPairs(last, rules.ramp_end),
    at: (share) => last * rampAt(share, rules.ramp_end),
    against: aboveTraining(trainAuc, valAuc),
    horizon: null,
    notes: [],
  };
}

"""Online K in simulation: positives N(mu, sd), negatives N(0, 1), hits drawn with their true probability."""

import json
import math

import numpy as np
import pytest
from scipy.special import ndtr

from negwise import k_for_metric
from negwise.errors import InputError
from negwise.protocols import VALIDATION_KS, Observation, OpenLoopRule, Rule
from negwise.schedule import KBatchSampler, OnlineK, parse_rule
from negwise.schedule.online_k import k_at

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(101)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def reliability(mu, sd, k):
    """The chance that a positive beats k negatives, by Gauss-Hermite quadrature."""
    return float(WEIGHTS @ ndtr(mu + sd * NODES) ** k)


def log_k_of(mu, sd, r):
    """ln K with that reliability, by bisection."""
    low, high = -5.0, 25.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if reliability(mu, sd, math.exp(middle)) > r else (low, middle)
    return low


def simulate(rule, mus, sd=1.0, lag=0, rows=256, seed=0, have=math.inf, count_hits=True, validation=None):
    """ln K of each step. ``have``: the most negatives of a row. ``validation`` (step -> P at `VALIDATION_KS`)."""
    rng, state, past, log_ks = np.random.default_rng(seed), rule.init(), [], []
    for step, mu in enumerate(mus):
        known = {}
        if step > lag:
            k, used, hits, wins = past[step - lag - 1]
            known = {"k": k, "pairs": round(used * rows), "wins": wins}
            known |= {"hits": hits, "rows": rows} if count_hits else {}
        if validation and step in validation:
            known["val_reliability"] = validation[step]
        state = state if step % 50 else json.loads(json.dumps(state))
        k, state = rule.update(Observation(step, len(mus), **known), state)
        used = min(k, have)
        auc = float(ndtr(mu / math.sqrt(1 + sd**2)))
        past.append((k, used, float(rng.binomial(rows, reliability(mu, sd, used))), auc * used * rows))
        log_ks.append(math.log(k))
    return np.array(log_ks), state


def curve_at(mu, sd=1.0):
    """P of validation ranks at `VALIDATION_KS`."""
    return [reliability(mu, sd, k) for k in VALIDATION_KS]


@pytest.mark.parametrize("r", [0.1, 0.2, 0.4])
@pytest.mark.parametrize("sd", [0.6, 1.0, 1.5])
@pytest.mark.parametrize("lag", [0, 16, 64])
def test_k_settles_where_the_reliability_is_held(r, sd, lag):
    """After a jump of the model from nothing to mu = 2: no bias, no swinging, whatever the spread and the lag."""
    late = [simulate(OnlineK(r), [0.0] * 100 + [2.0] * 1300, sd, lag, seed=seed)[0][1000:] for seed in range(2)]
    assert abs(np.mean(late) - log_k_of(2.0, sd, r)) < 0.1
    assert np.std(late, axis=1).mean() < 0.1


@pytest.mark.parametrize("r", [0.1, 0.2, 0.4, 0.7])
def test_an_untrained_model_stays_at_the_start(r):
    """h = 1 / (K + 1), so that K stays at 1 / r - 1."""
    log_ks, _ = simulate(OnlineK(r, min_k=0.1), [0.0] * 400)
    assert math.exp(log_ks[0]) == pytest.approx(1 / r - 1)
    assert abs(log_ks[200:].mean() - math.log(1 / r - 1)) < 0.1


def test_a_model_that_learns_and_forgets_is_followed():
    mus = np.concatenate([np.linspace(0, 3, 600), np.full(300, 3.0), np.full(600, 1.0)])
    log_ks, _ = simulate(OnlineK(0.3), mus, lag=8)
    assert abs(log_ks[850:900].mean() - log_k_of(3.0, 1.0, 0.3)) < 0.1
    assert abs(log_ks[-100:].mean() - log_k_of(1.0, 1.0, 0.3)) < 0.1
    assert np.corrcoef(log_ks[100:600], mus[100:600])[0, 1] > 0.98


def test_a_bound_that_is_released_is_not_overshot():
    """The sampler has 20 negatives for 500 steps; validation holds K below 32 from step 500 to 700."""
    mus, want = [2.0] * 1500, log_k_of(2.0, 1.0, 0.2)
    log_ks, _ = simulate(OnlineK(0.2), mus, have=20)
    assert log_ks[400:500].max() <= math.log(20) + 1 + 1e-9  # never further than e from what rows had
    low, free = ([max(0.0, 1 - k / c) for k in VALIDATION_KS] for c in (10.0, 1e9))
    log_ks, _ = simulate(OnlineK(0.2), mus, validation={500: low, 700: free})
    assert log_ks[600:700].max() <= math.log(4 * 8.001) and log_ks[700:].max() < want + 1
    assert abs(log_ks[-200:].mean() - want) < 0.1


QUARTERS = range(0, 1000, 250)


@pytest.mark.parametrize("evaluated", [[0], QUARTERS, range(0, 1000, 100)])
@pytest.mark.parametrize(("r", "lag"), [(0.1, 0), (0.2, 8)])
def test_rare_evaluations_do_not_hold_back_a_model_that_learns(r, lag, evaluated):
    """Its K_r on new data is half of that on training data, as with healthy data, and grows a hundredfold."""
    mus = np.linspace(0, 3, 1000)

    def curve(step):
        return [reliability(mus[step], 1.0, 2 * k) for k in VALIDATION_KS]

    log_ks, state = simulate(OnlineK(r), mus, lag=lag, validation={at: curve(at) for at in evaluated})
    without, _ = simulate(OnlineK(r), mus, lag=lag)
    assert np.array_equal(log_ks, without) and state["held_k"] is None
    assert log_ks[-1] > log_k_of(3.0, 1.0, r) - 0.8  # behind by the length of the averages


@pytest.mark.parametrize("rows", [1, 16, 256])
def test_an_evaluation_of_an_untrained_model_says_nothing(rows):
    """However few rows were seen beside it: noise of the hit rate is no memory of the training data."""
    for seed in range(40):
        _, state = simulate(OnlineK(0.2), [0.0] * 12, rows=rows, seed=seed, validation={1: curve_at(0.0)})
        assert state["held_k"] is None


@pytest.mark.parametrize(("r", "mu"), [(0.2, 1.5), (0.1, 1.2)])
@pytest.mark.parametrize("sd", [0.6, 1.0, 1.5])
@pytest.mark.parametrize("evaluated", [range(0, 1000, 100), QUARTERS])
def test_a_model_that_memorises_is_held_by_its_validation_ranks(r, mu, sd, evaluated):
    """Training looks better and better, new data does not: K ends at four times K_r of the validation ranks."""
    rule = OnlineK(r, metric="ndcg@10", candidates=100_000)
    k_r = math.exp(log_k_of(mu, sd, r))
    mus = np.linspace(0, 9, 1000)
    log_ks, state = simulate(rule, mus, sd, validation=dict.fromkeys(evaluated, curve_at(mu, sd)))
    assert state["reason"] == "bounded by validation, far behind training"
    assert 3.8 * k_r < math.exp(log_ks[-1]) <= 4.01 * k_r  # K_r is read off ranks at powers of two
    assert log_ks[600:].min() > math.log(3.8 * k_r)  # nor does K fall while it waits for the next evaluation
    without, _ = simulate(rule, mus, sd)
    assert math.exp(without[-1]) == pytest.approx(k_for_metric("ndcg@10", 100_000))


def test_a_model_that_learns_again_is_let_go_by_the_next_evaluation():
    bad, good = curve_at(1.0), curve_at(2.8)
    log_ks, state = simulate(OnlineK(0.2), [3.0] * 900, validation={300: bad, 600: good})
    assert log_ks[599] == pytest.approx(math.log(4) + math.log(k_at(bad, 0.2)))
    assert state["held_k"] is None and abs(log_ks[-100:].mean() - log_k_of(3.0, 1.0, 0.2)) < 0.1


@pytest.mark.parametrize("r", [0.1, 0.2, 0.4])
@pytest.mark.parametrize("sd", [0.6, 1.0, 1.5])
def test_k_of_validation_ranks(r, sd):
    for mu in (0.0, 0.7, 1.5, 2.5):
        assert k_at(curve_at(mu, sd), r) == pytest.approx(math.exp(log_k_of(mu, sd, r)), rel=0.01)


def test_k_of_validation_ranks_at_both_ends():
    """A share K of the rows has one negative, so that P = 1 - K / 2 where AUC is one half."""
    coin = [0.5 / k for k in VALIDATION_KS]
    assert k_at(coin, 0.7) == pytest.approx(0.6) and k_at(coin, 0.5) == 1
    assert k_at([1.0] * len(VALIDATION_KS), 0.5) == VALIDATION_KS[-1]
    assert 1 <= k_at([0.9] + [0.0] * 20, 0.5) <= 2


def simulate_mixed(rule, mus, short, share, lag=8, rows=256, seed=0):
    """ln K of each step where a ``share`` of the rows has ``short`` negatives and the others all they are asked for."""
    rng, state, past, log_ks = np.random.default_rng(seed), rule.init(), [], []
    few = round(share * rows)
    for step, mu in enumerate(mus):
        known = past[step - lag - 1] if step > lag else {}
        k, state = rule.update(Observation(step, len(mus), **known), state)
        sizes = [(few, min(short, k)), (rows - few, k)]
        known = {"k": k, "rows": rows, "pairs": round(sum(n * own for n, own in sizes))}
        known["hits"] = float(sum(rng.binomial(n, reliability(mu, 1.0, own)) for n, own in sizes))
        known["log_k1"] = sum(n * math.log1p(own) for n, own in sizes)
        past.append(known)
        log_ks.append(math.log(k))
    return np.array(log_ks)


@pytest.mark.parametrize("r", [0.1, 0.2, 0.4])
@pytest.mark.parametrize(("short", "share", "mu"), [(3, 0.5, 2.0), (1, 0.3, 1.0), (30, 0.5, 2.0), (10, 0.2, 1.0)])
def test_rows_with_few_negatives_do_not_drive_k_of_the_others(r, short, share, mu):
    """Half the rows with three negatives have a hit rate above r at any K. K is near that of the other rows, or where
    it is e times the geometric mean of all: at short e^(1 / share)."""
    late = simulate_mixed(OnlineK(r), [mu] * 500, short, share)[-150:]
    want, end = log_k_of(mu, 1.0, r), math.log(short) + 1 / share
    assert min(want, end) - 0.35 < late.mean() < min(want, end) + 0.65 and late.std() < 0.2


def test_rows_that_all_have_few_negatives():
    """K asked stays within e of what rows have; told by row or by the mean, it is the same."""
    by_row = simulate_mixed(OnlineK(0.2), [2.0] * 600, 20, 1.0)
    assert by_row[300:].max() <= math.log(20) + 1 + 1e-9 and by_row[300:].min() > math.log(20)
    by_mean, _ = simulate(OnlineK(0.2), [2.0] * 600, have=20, lag=7)
    assert by_row[0] == by_mean[0] and abs(by_row[300:].mean() - by_mean[300:].mean()) < 0.1


def test_bounds_name_themselves():
    mus = [3.0] * 300
    for rule, k, reason in (
        (OnlineK(0.2, max_k=50), 50, "bounded by max_k, 50"),
        (OnlineK(metric="ndcg@10", candidates=1000), 1000 / 4.5436, "bounded by K for ndcg@10, 220.1"),
        (OnlineK(metric="ndcg@10", candidates=30), 29, "bounded by K for ndcg@10, 29"),
        (OnlineK(metric="ndcg@10", candidates=30, max_k=90), 64, "bounded by K for ndcg@10, 64"),
        (OnlineK(metric="auc", candidates=1000), 64, "bounded by K for auc, 64"),
        (OnlineK(metric="ndcg@10", candidates=3416, max_k=9), 9, "bounded by max_k, 9"),
        (OnlineK(0.9, min_k=500), 500, "min_k, 500"),
    ):
        log_ks, state = simulate(rule, mus)
        assert math.exp(log_ks[-1]) == pytest.approx(k, rel=1e-4) and state["reason"] == reason
        assert state["asked"] != pytest.approx(k)
    log_ks, state = simulate(OnlineK(metric="auc"), mus)
    assert state["reason"] == "P(K) held at 0.2" and math.exp(log_ks[-1]) == pytest.approx(state["asked"])


def test_a_loss_without_hits_is_followed_by_its_win_rate():
    """By the Gaussian, so right where positives have sd 1; the reason says so."""
    log_ks, state = simulate(OnlineK(0.3), [2.0] * 800, count_hits=False)
    assert abs(log_ks[-200:].mean() - log_k_of(2.0, 1.0, 0.3)) < 0.05
    assert state["reason"] == "P(K) held at 0.3, by the win rate"


def test_buckets_move_in_steps_of_the_square_root_of_two():
    mus = np.concatenate([np.linspace(0, 2, 800), np.full(400, 2.0)])
    log_ks, _ = simulate(OnlineK(0.2, buckets=True), mus)
    places = log_ks / (math.log(2) / 2)
    assert np.abs(places - places.round()).max() < 1e-9
    assert len(set(places.round())) < 20 and np.count_nonzero(np.diff(log_ks)) < 25
    assert abs(log_ks[-1] - log_k_of(2.0, 1.0, 0.2)) < 0.35


@pytest.mark.parametrize("hits", [0.0, 256.0])
def test_rates_of_nothing_and_of_all_are_safe(hits):
    """Below chance K falls to its floor, above all negatives it rises by e at most: never NaN, never infinite."""
    rule = OnlineK(0.3)
    state, k = rule.init(), 4.0
    for step in range(50):
        seen = Observation(step, 50, hits=hits, rows=256, pairs=int(256 * k), wins=hits * k, k=k)
        after, state = rule.update(seen, state)
        assert math.isfinite(after) and 1 <= after <= math.e * k * 1.0001
        k = after
    assert k == 1 if hits == 0 else k > 20


def test_one_row_tells_little():
    """A hit of a batch of one is no reliability of 1: K moves by less than it may."""
    rule = OnlineK(0.4)
    k, _ = rule.update(Observation(1, 9, hits=1.0, rows=1, pairs=2, wins=2.0, k=2.0), rule.init())
    assert 2 < k < 0.75 * math.e * 2


def test_nothing_to_see_changes_nothing():
    rule = OnlineK(0.25)
    state = rule.init()
    for step in range(5):
        k, state = rule.update(Observation(step, 5, k=3.0, rows=0, pairs=0), state)
        assert k == 3 and state["reason"] == "nothing seen yet"


def test_it_is_a_frozen_rule_with_plain_state():
    rule = OnlineK(0.3, metric="hit@5", candidates=500)
    assert isinstance(rule, Rule) and not isinstance(rule, OpenLoopRule)
    assert hash(rule) == hash(OnlineK(0.3, "hit@5", 500))
    first, second = (simulate(rule, np.linspace(0, 2, 60)) for _ in range(2))
    assert np.array_equal(first[0], second[0]) and first[1] == second[1] == json.loads(json.dumps(first[1]))
    with pytest.raises(InputError, match="closed-loop"):
        KBatchSampler([[0, 1]], rule, 10, 0)


def test_targets_by_metric():
    assert OnlineK().target == OnlineK(metric="hit@100").target == 0.2
    assert OnlineK(metric="ndcg@10").target == OnlineK(metric="mrr").target == 0.1
    assert OnlineK(0.33, metric="mrr").target == 0.33


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"reliability": 0}, "reliability=0, expected a share above 0 and below 1"),
        ({"reliability": 1.0}, r"reliability=1\.0"),
        ({"reliability": "0.3"}, "reliability='0.3'"),
        ({"min_k": 5, "max_k": 4}, "min_k=5 and max_k=4, expected 0 < min_k <= max_k"),
        ({"min_k": 0}, "min_k=0"),
        ({"metric": "accuracy"}, "metric: got 'accuracy'"),
    ],
)
def test_wrong_arguments(words, said):
    with pytest.raises(InputError, match=said):
        OnlineK(**words)


def test_rules_as_they_are_typed():
    assert parse_rule("online", metric="ndcg@10", candidates=3416, max_k=99) == OnlineK(
        metric="ndcg@10", candidates=3416, max_k=99
    )
    assert parse_rule(" Online:0.3") == OnlineK(0.3)
    assert parse_rule("metric", metric="ndcg@10", candidates=3416)(0.5) == pytest.approx(752, abs=0.5)
    assert parse_rule("metric", metric="ndcg@10", candidates=3416, max_k=99)(0) == 99
    for text in ("online:2", "online:x", "online:0.3:4", "metric:3"):
        with pytest.raises(InputError, match="cannot "):
            parse_rule(text, candidates=100)
    with pytest.raises(InputError, match="number of candidates is not known"):
        parse_rule("metric")

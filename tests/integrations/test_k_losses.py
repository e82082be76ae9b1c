"""The two losses that hold a controller, against `info_nce` and `nn.CrossEntropyLoss` on the same tensors."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import roc_auc_score
from torch import nn

from negwise.errors import InputError
from negwise.integrations import KCrossEntropy, KInfoNCE
from negwise.integrations.column_choice import keep_ids, keep_mask
from negwise.integrations.step_control import COUNTS
from negwise.losses import info_nce

B, D, G = 24, 6, 2


def world(rows=B, given=G):
    generator = torch.Generator().manual_seed(1)
    query, positive = (torch.randn(rows, D, generator=generator, requires_grad=True) for _ in range(2))
    return query, positive, torch.randn(rows, given, D, generator=generator, requires_grad=True)


def begun(loss):
    loss.control.begin(0)
    return loss


def chosen(rule, rows=B, given=0, **options):
    """The mask (B, C, W) of a loss that has begun, drawn again from a controller like its own."""
    control = begun(KInfoNCE(rule, total_steps=5)).control
    counts, order = control.draws(rows, (given + 1) * (rows - 1), torch.device("cpu"))
    return keep_mask(order, counts, 0, given + 1, rows, besides_given=control.draws_besides_given, **options)


@pytest.mark.parametrize("k", ["0.5", "1.25", "7.5", "22.5", "23"])
def test_in_batch_loss_and_gradients_are_those_of_info_nce(k):
    query, positive, _ = world()
    loss = begun(KInfoNCE(k, total_steps=5, temperature=0.5))(query, positive)
    found = torch.autograd.grad(loss, (query, positive))
    mask = chosen(k)[:, 0] if k != "23" else ~torch.eye(B, dtype=torch.bool)
    expected = info_nce(query, positive, mask=mask, temperature=0.5).loss
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(found, torch.autograd.grad(expected, (query, positive)))


@pytest.mark.parametrize("k", ["1", "2.5", "9.5"])
def test_given_negatives_come_first(k):
    query, positive, given = world()
    present = torch.rand(B, G, generator=torch.Generator().manual_seed(2)) < 0.7
    control = begun(KInfoNCE(k, total_steps=5)).control
    counts, order = control.draws(B, 3 * (B - 1), torch.device("cpu"))
    missing = torch.cat([torch.zeros(B, 1, dtype=torch.bool), ~present], 1).t()[None].expand(B, -1, -1)
    mask = keep_mask(order, counts, 0, 3, B, present, missing)
    rows = torch.arange(B)
    own = mask[rows, 1:, rows]
    expected_given = torch.minimum(counts, present.sum(1))
    assert torch.equal(own.sum(1), expected_given) and not mask[rows, 0, rows].any()
    assert torch.equal(
        mask.sum((1, 2)), torch.minimum(counts, present.sum(1) + (~missing).sum((1, 2)) - 1 - present.sum(1))
    )
    assert not (mask & missing & (torch.arange(B) != rows[:, None])[:, None]).any()
    candidates = torch.cat([positive, *given.unbind(1)])
    expected = info_nce(query, positive, candidates, mask=mask.flatten(1)).loss
    loss = begun(KInfoNCE(k, total_steps=5))
    torch.testing.assert_close(loss(query, positive, given, present), expected)


def test_ids_and_mask_are_the_same_choice():
    control = begun(KInfoNCE("4.5", total_steps=5)).control
    counts, order = control.draws(B, 3 * (B - 1), torch.device("cpu"))
    present = torch.rand(B, 2, generator=torch.Generator().manual_seed(3)) < 0.6
    for besides in (False, True):
        mask = keep_mask(order, counts, 0, 3, B, present, besides_given=besides).flatten(1)
        ids, real = keep_ids(order, counts, 5, 0, 3, B, present, besides)
        again = torch.zeros_like(mask)
        for row in range(B):
            picked = ids[row, real[row]]
            assert len(set(picked.tolist())) == len(picked)
            again[row, picked] = True
        assert torch.equal(again, mask)


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("first", [0, 4])
def test_what_is_left_out_gives_its_place_to_the_next(columns, first):
    """Counted by a loop: each row goes through the order from its own place on and takes what it may."""
    generator = torch.Generator().manual_seed(columns)
    rows, width = 5, 9
    order = torch.randperm(columns * (width - 1), generator=generator)
    counts = torch.randint(0, columns * (width - 1) + 2, (rows,), generator=generator)
    excluded = torch.rand(rows, columns, width, generator=generator) < 0.4
    for left_out in (None, excluded):
        expected = torch.zeros(rows, columns, width, dtype=torch.bool)
        for row in range(rows):
            for place in order.tolist():
                column, shift = place // (width - 1), place % (width - 1) + 1
                there = row, column, (first + row + shift) % width
                if expected[row].sum() < counts[row] and (left_out is None or not left_out[there]):
                    expected[there] = True
        assert torch.equal(keep_mask(order, counts, first, columns, width, None, left_out), expected)


def test_each_negative_is_equally_likely_and_used_equally_often():
    control = KInfoNCE("3", total_steps=3000).control
    seen = torch.zeros(8, 8)
    for step in range(3000):
        control.begin(step)
        counts, order = control.draws(8, 7, torch.device("cpu"))
        mask = keep_mask(order, counts, 0, 1, 8)[:, 0]
        assert (mask.sum(0) == 3).all() and (mask.sum(1) == 3).all()
        seen += mask
    off = seen[~torch.eye(8, dtype=torch.bool)]
    assert seen.diagonal().sum() == 0
    # Rows share a shift, so there are 7 free frequencies of 3/7 each: five standard errors of a share.
    assert (off / 3000 - 3 / 7).abs().max() < 5 * (3 / 7 * 4 / 7 / 3000) ** 0.5


@pytest.mark.parametrize("k", [2.3, 7.75, 15.5])
def test_mean_of_k_is_exact(k):
    query, positive, _ = world(64)
    loss = KInfoNCE(str(k), total_steps=200)
    for step in range(200):
        loss.control.begin(step)
        loss(query, positive)
    loss.control.end()
    fraction = k - int(k)
    error = (fraction * (1 - fraction) / (64 * 200)) ** 0.5
    assert abs(loss.control.logs()["k_used"] - k) < 4 * error


def test_equal_texts_are_no_negatives_and_the_next_ones_take_their_place():
    query, positive, _ = world()
    ids = torch.arange(B) % 20  # rows 0 to 3 have the positives of rows 20 to 23
    loss = begun(KInfoNCE("20", total_steps=5))
    loss(query, positive, positive_ids=ids)
    loss.control.end()
    assert loss.control.logs()["k_used"] == 20.0
    with pytest.warns(
        UserWarning, match="K is 40 at step 0, and a row has 23 negatives.*For more use a larger batch, or gather=True"
    ):
        loss = begun(KInfoNCE("40", total_steps=5))
        loss(query, positive, positive_ids=ids)
    loss.control.end()
    assert loss.control.logs()["k_used"] == (16 * 23 + 8 * 22) / 24


def test_k_is_what_there_is_said_once(recwarn):
    query, positive, _ = world()
    loss = KInfoNCE("100", total_steps=5)
    for step in range(3):
        loss.control.begin(step)
        torch.testing.assert_close(loss(query, positive), info_nce(query, positive).loss)
    loss.control.end()
    assert loss.control.logs() == {
        "k": 100.0,
        "k_used": 23.0,
        "win_rate": pytest.approx(loss_win_rate(query, positive)),
    }
    assert len([w for w in recwarn if "a row has 23 negatives" in str(w.message)]) == 1


def loss_win_rate(query, positive):
    return float(info_nce(query, positive).win_rate)


def test_online_counts_drawn_negatives_and_keeps_given_ones_besides():
    query, positive, given = world()
    loss = begun(KInfoNCE("online"))  # starts at 4
    loss(query, positive, given)
    loss.control.end()
    sums = dict(zip(COUNTS, loss.control._log_sums.tolist(), strict=True))
    assert sums["pairs"] == B * (4 + G) and sums["drawn_pairs"] == B * 4 and sums["rows"] == B
    mask = chosen("online", given=G, present=torch.ones(B, G, dtype=torch.bool))
    rows = torch.arange(B)
    assert mask[rows, 1:, rows].all()
    mask[rows, 1:, rows] = False
    scores = query @ torch.cat([positive, *given.unbind(1)]).t()
    own = (query * positive).sum(1, keepdim=True)
    best = scores.masked_fill(~mask.flatten(1), -torch.inf).max(1).values
    assert sums["hits"] == float((own[:, 0] > best).sum())
    assert sums["drawn_wins"] == float(((scores < own) & mask.flatten(1)).sum())


def test_evaluation_has_all_candidates_and_the_auc():
    query, positive, given = world()
    loss = KInfoNCE("2", total_steps=5).eval()
    candidates = torch.cat([positive, *given.unbind(1)])
    scores = query @ candidates.t()
    torch.testing.assert_close(loss(query, positive, given), F.cross_entropy(scores, torch.arange(B)))
    loss(query[:5], positive[:5], given[:5])  # a small last batch: rows count alike
    found = loss.scores()
    shares = [roc_auc_score(np.arange(len(row)) == at, row) for at, row in enumerate(scores.detach().numpy())]
    small = query[:5] @ torch.cat([positive[:5], *given[:5].unbind(1)]).t()
    shares += [roc_auc_score(np.arange(15) == at, row) for at, row in enumerate(small.detach().numpy())]
    assert found.auc == pytest.approx(np.mean(shares))
    assert found.auc_se == pytest.approx(np.std(shares, ddof=1) / 29**0.5)
    assert (found.queries, found.pairs) == (29, 24 * 71 + 5 * 14)
    with pytest.raises(InputError, match="nothing was evaluated"):
        loss.scores()


# Scores in


@pytest.mark.parametrize("given", [0, 3])
def test_cross_entropy_over_all_columns_is_torchs(given):
    scores = torch.randn(9, 12, generator=torch.Generator().manual_seed(4), requires_grad=True)
    target = torch.tensor([0, 3, 11, 5, 5, 2, 7, -100, 1])
    for loss in (begun(KCrossEntropy("11", total_steps=5, given=given)), KCrossEntropy("1", 5, given=given).eval()):
        found, expected = loss(scores, target), nn.CrossEntropyLoss()(scores, target)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(torch.autograd.grad(found, scores), torch.autograd.grad(expected, scores))


@pytest.mark.parametrize("k", ["2", "3.5", "6.25"])
def test_cross_entropy_keeps_k_columns_given_ones_first(k):
    torch.manual_seed(5)
    scores = torch.randn(400, 12, requires_grad=True)
    target = torch.randint(0, 12, (400,))
    loss = begun(KCrossEntropy(k, total_steps=5, given=3))
    (grad,) = torch.autograd.grad(loss(scores, target), scores)
    kept = grad != 0
    assert kept.gather(1, target[:, None]).all()
    number = kept.sum(1) - 1
    assert set(number.tolist()) == {int(float(k)), -int(-float(k) // 1)}
    after = (target[:, None] + torch.arange(1, 4)) % 12
    assert torch.equal(kept.gather(1, after).sum(1), number.clamp(max=3))
    # The same loss from the kept columns alone.
    again = begun(KCrossEntropy(k, total_steps=5, given=3))(scores, target)
    torch.testing.assert_close(again, F.cross_entropy(scores.masked_fill(~kept, -torch.inf), target))
    loss.control.end()
    assert loss.control.logs()["k_used"] == float(number.double().mean())


def test_columns_of_minus_infinity_are_not_there():
    scores = torch.randn(50, 8, generator=torch.Generator().manual_seed(6))
    scores[:, 5:] = -torch.inf
    scores[0, 1:] = -torch.inf
    scores.requires_grad_()
    loss = begun(KCrossEntropy("4", total_steps=5))
    value = loss(scores, torch.zeros(50, dtype=torch.long))
    torch.testing.assert_close(value, F.cross_entropy(scores, torch.zeros(50, dtype=torch.long)))
    value.backward()
    assert torch.isfinite(scores.grad).all()
    loss.control.end()
    assert loss.control.logs()["k_used"] == 49 * 4 / 50  # the first row has none


def test_what_helps_where_columns_of_scores_are_too_few():
    loss = begun(KCrossEntropy("12", total_steps=5))
    with pytest.warns(UserWarning, match=r"a row has 7 negatives to draw from: .*For more use more columns of scores$"):
        loss(torch.randn(4, 8), torch.zeros(4, dtype=torch.long))


def test_what_comes_beside_the_vectors_has_its_shape():
    loss, query = begun(KInfoNCE("1", 5)), torch.zeros(3, 2)
    given, there, ids = torch.zeros(3, 1, 2), torch.ones(3, 1, dtype=torch.bool), torch.arange(3)
    for arguments, message in (
        ((query,), r"given has shape \(3, 2\); expected \(rows, negatives, width\): 3 rows"),
        ((given, there[:, 0]), r"present has shape \(3,\); expected \(3, 1\)"),
        ((given, there.float()), r"present has dtype torch.float32; .*present.bool\(\)"),
        ((None, there), "present came without given"),
        ((None, None, torch.arange(4)), r"positive_ids has shape \(4,\); expected \(3,\)"),
        ((None, None, [1, 2, 3]), "positive_ids is a list; expected a torch tensor"),
        ((given, there, ids), "of positive_ids and given_ids one came without the other"),
        ((given, there, ids, ids), r"given_ids has shape \(3,\); expected \(3, 1\)"),
    ):
        with pytest.raises(InputError, match=message):
            loss(query, query, *arguments)


def test_a_folder_needs_a_rule_and_is_none_yet(tmp_path):
    with pytest.raises(InputError, match=r"run= came without a rule: pass both"):
        KInfoNCE(run=tmp_path)
    (tmp_path / "file").write_text("")
    for run in (True, tmp_path / "file"):
        with pytest.raises(InputError, match=r"run=.*expected a folder that is to be made"):
            KInfoNCE("4", 5, run=run)


def test_bad_scores():
    loss = begun(KCrossEntropy("2", total_steps=5))
    with pytest.raises(InputError, match=r"scores have shape \(4,\).*expected \(rows, columns\)"):
        loss(torch.zeros(4), torch.zeros(4, dtype=torch.long))
    with pytest.raises(InputError, match=r"target has dtype torch.float32"):
        loss(torch.zeros(4, 3), torch.zeros(4))
    with pytest.raises(InputError, match=r"target has dtype torch.bool"):
        loss(torch.zeros(4, 3), torch.zeros(4, dtype=torch.bool))
    for wrong in (3, -1):
        with pytest.raises(InputError, match=f"target of row 1 is {wrong}; expected 0 to 2, .*ignore_index=-100"):
            loss(torch.zeros(3, 3), torch.tensor([-100, wrong, 0]))
    with pytest.raises(InputError, match="scores is a list; expected a torch tensor"):
        loss([[0.0, 1.0]], torch.zeros(1, dtype=torch.long))
    with pytest.raises(InputError, match="given=7; expected 0 to 2"):
        begun(KCrossEntropy("2", 5, given=7))(torch.zeros(4, 3), torch.zeros(4, dtype=torch.long))
    with pytest.raises(InputError, match=r"shapes \[\(2, 3\), \(3, 3\)\]"):
        begun(KInfoNCE("2", 5))(torch.zeros(2, 3), torch.zeros(3, 3))

"""The loss of one pass against `info_nce`: values, gradients and counts, whatever fits into a block."""

import pytest
import torch

from negwise.errors import InputError
from negwise.integrations import KInfoNCE
from negwise.integrations.batch_loss import batch_sums
from negwise.integrations.one_pass_loss import BLOCK_SCORES, one_pass_loss
from negwise.integrations.step_control import COUNTS, LAG
from negwise.losses import info_nce

B, M, D = 9, 27, 5


def world(dtype=torch.float64, scale=1.0):
    generator = torch.Generator().manual_seed(0)
    query = (scale * torch.randn(B, D, generator=generator, dtype=dtype)).requires_grad_()
    return query, torch.randn(M, D, generator=generator, dtype=dtype).requires_grad_()


@pytest.fixture(params=[B * M, 4 * M, 1], ids=["one-block", "three-blocks", "a-row-each"])
def block(request, monkeypatch):
    """How many scores are in memory at a time."""
    monkeypatch.setitem(BLOCK_SCORES, "cpu", request.param)


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize("scale", [1.0, 60.0])  # large scores must not overflow
@pytest.mark.parametrize("masked", [False, True])
def test_values_gradients_and_counts(masked, scale):
    query, candidates = world(scale=scale)
    own = torch.arange(3, 3 + B)
    others = torch.ones(B, M, dtype=torch.bool).scatter(1, own[:, None], False)
    mask = others & (torch.rand(B, M, generator=torch.Generator().manual_seed(1)) < 0.4) if masked else others
    mask[0] = ~torch.ones(M, dtype=torch.bool) if masked else mask[0]  # a row without negatives
    found = one_pass_loss(query, candidates, own, mask if masked else None, None)
    expected = info_nce(query, candidates[own], candidates, mask=mask, reduction="none", impl="reference")
    torch.testing.assert_close(found.loss, expected.loss)
    for mine, name in (("wins", "wins"), ("sizes", "pairs"), ("hits", "hits"), ("rows", "rows")):
        assert getattr(found.counts, mine).tolist() == getattr(expected, name).tolist()
    torch.testing.assert_close(found.mean, expected.loss.mean())
    # A trainer scales the loss, by the accumulation or for half precision.
    grads = [torch.autograd.grad(7 * mean, (query, candidates)) for mean in (found.mean, expected.loss.mean())]
    torch.testing.assert_close(*grads)
    for frozen, learns in ((candidates, query), (query, candidates)):
        sides = [one.detach() if one is frozen else one for one in (query, candidates)]
        alone = torch.autograd.grad(7 * one_pass_loss(*sides, own, mask if masked else None, None).mean, learns)
        torch.testing.assert_close(alone[0], grads[1][0 if learns is query else 1])
    with torch.no_grad():
        quiet = one_pass_loss(query, candidates, own, mask if masked else None, None)
    assert (
        quiet.mean == found.mean
        and quiet.counts.wins.tolist() == found.counts.wins.tolist()
        and not quiet.mean.requires_grad
    )


@pytest.mark.usefixtures("block")
def test_drawn_ones_are_counted_apart():
    query, candidates = world()
    own = torch.arange(B)
    given = own[:, None] + torch.tensor([9, 18])
    mask = torch.rand(B, M, generator=torch.Generator().manual_seed(2)) < 0.5
    mask = mask.scatter(1, own[:, None], False)
    drawn = mask.scatter(1, given, False)
    found = one_pass_loss(query, candidates, own, mask, given)
    expected = info_nce(query, candidates[own], candidates, mask=drawn, reduction="none")
    for mine, name in (("wins", "wins"), ("sizes", "pairs"), ("hits", "hits")):
        assert getattr(found.of_drawn, mine).tolist() == getattr(expected, name).tolist()


def test_ties_are_half_won():
    vectors = torch.ones(4, 3)
    found = one_pass_loss(torch.ones(4, 3), vectors, torch.arange(4), None, None)
    assert found.counts.wins.tolist() == [1.5] * 4 and found.counts.hits.tolist() == [0.25] * 4
    torch.testing.assert_close(found.loss, torch.full((4,), 4.0).log())


def test_what_is_not_finite_is_said():
    loss = KInfoNCE("3", total_steps=2)
    loss.control.begin(0)
    query = torch.ones(4, 3)
    query[2, 1] = torch.nan
    with pytest.raises(InputError, match="query is not finite: nan first in row 2"):
        loss(query, torch.ones(4, 3))


@pytest.mark.parametrize("given", [0, 2])
@pytest.mark.parametrize("equal", [False, True])
@pytest.mark.parametrize("rule", ["0.5", "3.5", "100", "online"])
@pytest.mark.filterwarnings("ignore:K is 100 at step 0")
def test_what_is_not_taken_has_the_same_loss(monkeypatch, rule, equal, given):
    generator = torch.Generator().manual_seed(3)
    query, positive = (torch.randn(12, D, generator=generator, requires_grad=True) for _ in range(2))
    more = torch.randn(12, given, D, generator=generator, requires_grad=True) if given else None
    present = torch.rand(12, given, generator=generator) < 0.8 if given and equal else None
    ids = torch.arange(12) % 10 if equal else None
    given_ids = 100 + torch.arange(12 * given).view(12, given) if equal and given else None
    found = []
    for taken in (True, False):
        monkeypatch.setattr("negwise.integrations.batch_loss.takes", lambda _, taken=taken: taken)
        loss = KInfoNCE(rule, total_steps=3, temperature=0.5)
        loss.control.begin(0)
        value = loss(query, positive, more, present, ids, given_ids)
        grads = torch.autograd.grad(value, [one for one in (query, positive, more) if one is not None])
        loss.eval()
        with torch.no_grad():
            evaluated = loss(query, positive, more, present, ids, given_ids)
        loss.control.end()
        loss.control.check_losses()
        found.append((value, grads, evaluated, loss.control._log_sums[:-1], loss.scores()))
    torch.testing.assert_close(found[0][:4], found[1][:4])
    assert found[0][4] == found[1][4]


@pytest.mark.filterwarnings("ignore:K is 100 at step")
def test_steps_that_are_added_up_at_once_count_each_of_their_batches():
    """Logs in the middle of a step and after a few, batches of two sizes, two a step."""
    generator = torch.Generator().manual_seed(6)
    loss = KInfoNCE("100", total_steps=2 * LAG)
    expected, found = [], []
    for step in range(LAG + 3):
        loss.control.begin(step)
        for rows in (5, 3 + step % 2):
            query, positive = (torch.randn(rows, D, generator=generator) for _ in range(2))
            loss(query, positive)
            result = info_nce(query, positive, reduction="none")
            expected.append((step, batch_sums(result, (result.wins, result.pairs, result.hits))))
            if step in (2, LAG + 1):
                found.append((step, loss.control.log_values()))
    loss.control.end()
    found.append((LAG + 3, loss.control.log_values()))
    start = 0
    for end, values in [one for one in found if one[1]]:
        sums = dict(zip(COUNTS, sum(one for step, one in expected if start <= step < end).tolist(), strict=True))
        assert values["win_rate"] == pytest.approx(sums["wins"] / sums["pairs"])
        assert values["hit_rate"] == pytest.approx(sums["hits"] / sums["rows"])
        assert values["k_used"] == sums["pairs"] / sums["queries"]
        assert values["loss"] == pytest.approx(sums["loss"] / sums["queries"])
        start = end
    assert start == LAG + 3 and sum(bool(values) for _, values in found) == 3


@pytest.mark.parametrize("rule", ["7", "online"])
@pytest.mark.filterwarnings("ignore:K is [47] at step")
def test_a_loss_that_is_not_finite_is_told_where_nobody_looks_at_it(monkeypatch, rule):
    """As on a GPU, whose losses are not looked at."""
    monkeypatch.setattr("negwise.integrations.batch_loss.check_finite", lambda *_: None)
    loss = KInfoNCE(rule, total_steps=100)
    with pytest.raises(InputError, match="is not finite: a vector is not finite"):
        for step in range(4 + 2 * LAG):
            loss.control.begin(step)
            loss(torch.full((4, D), torch.nan if step == 3 else 1.0), torch.ones(4, D))
    assert loss.control.step > 3


@pytest.mark.filterwarnings("ignore:K is 7 at step")
def test_a_loss_of_the_last_steps_is_looked_at_when_training_ends(monkeypatch):
    monkeypatch.setattr("negwise.integrations.batch_loss.check_finite", lambda *_: None)
    loss = KInfoNCE("7", total_steps=100)
    loss.control.begin(0)
    loss(torch.full((4, D), torch.nan), torch.ones(4, D))
    loss.control.end()
    with pytest.raises(InputError, match="up to step 0 is not finite"):
        loss.finish(loss)
    KInfoNCE().finish(loss)  # without a rule there is nothing to look at

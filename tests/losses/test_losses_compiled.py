"""`info_nce` inside torch.compile: one graph while K changes, at a fixed width."""

import pytest
import torch

from negwise.losses import info_nce, info_nce_scores

B, M, D = 16, 12, 8


def world():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(rows, D, generator=generator) for rows in (B, B, M)]


def masks(kind):
    """A mask for each of 12 values of K, at the width M."""
    for k in range(1, 13):
        counts = torch.full((B,), k) - (torch.arange(B) % 2) * (k > 1)
        yield counts if kind == "counts" else torch.arange(M) < counts[:, None]


IDS = torch.arange(B * M).view(B, M) % M
CALLS = {
    "shared": lambda q, p, n, mask, t: info_nce(q, p, n, mask=mask, temperature=t),
    "table": lambda q, p, n, mask, t: info_nce(q, p, n, ids=IDS, mask=mask, temperature=t),
    "per row": lambda q, p, n, mask, t: info_nce(q, p, n[IDS], mask=mask, temperature=t),
    "scores": lambda q, p, n, mask, t: info_nce_scores((q * p).sum(1), q @ n.t(), mask, temperature=t),
}


@pytest.mark.parametrize("kind", ["counts", "mask"])
@pytest.mark.parametrize("name", list(CALLS))
def test_one_graph_while_k_changes(name, kind):
    torch._dynamo.reset()
    graphs = []

    def count(graph, inputs):
        graphs.append(inputs)
        return graph.forward

    query, positive, negatives = world()
    temperature = torch.tensor(0.5)

    def call(mask):
        result = CALLS[name](query, positive, negatives, mask, temperature)
        return result.loss, result.wins.sum(), result.hits.sum()

    compiled = torch.compile(call, backend=count, fullgraph=True)
    for mask in masks(kind):
        torch.testing.assert_close(compiled(mask), call(mask))
    assert len(graphs) == 1


def test_masked_ids_may_hold_any_value_in_a_graph_too():
    torch._dynamo.reset()
    query, positive, negatives = world()
    ids = IDS.clone()
    ids[:, 3:] = 10**9
    counts = torch.full((B,), 3)
    compiled = torch.compile(
        lambda ids: info_nce(query, positive, negatives, ids=ids, mask=counts).loss, backend="eager"
    )
    torch.testing.assert_close(compiled(ids), info_nce(query, positive, negatives, ids=ids, mask=counts).loss)

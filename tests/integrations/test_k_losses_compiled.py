"""The losses inside torch.compile: one graph over a whole run, while K changes with every step."""

import pytest
import torch

from negwise.integrations import KCrossEntropy, KInfoNCE

B, D, STEPS = 32, 8, 40


def train(rule, kind, compiled):
    """Losses, the K of each step and the number of graphs of a tiny training run."""
    torch.manual_seed(0)
    encoder = torch.nn.Linear(D, D, bias=False)
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.5)
    loss = (KInfoNCE if kind == "vectors" else KCrossEntropy)(rule, STEPS, optimizer=optimizer)
    target, graphs = torch.arange(B), []

    def forward(x):
        query = encoder(x)
        return loss(query, x) if kind == "vectors" else loss(query @ x.t(), target)

    def count(graph, inputs):
        graphs.append(inputs)
        return graph.forward

    step = torch.compile(forward, backend=count, fullgraph=True) if compiled else forward
    losses, ks = [], []
    for number in range(STEPS):
        x = torch.randn(B, D, generator=torch.Generator().manual_seed(number))
        ks.append(loss.control.k)
        value = step(x)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(float(value.detach()))
    return losses, ks, len(graphs)


@pytest.mark.filterwarnings("ignore:K is .* and a row has 31 negatives")
@pytest.mark.parametrize("kind", ["vectors", "scores"])
@pytest.mark.parametrize("rule", ["ans:20", "online"])
def test_one_graph_over_a_run(rule, kind):
    torch._dynamo.reset()
    plain, ks, _ = train(rule, kind, compiled=False)
    losses, same, graphs = train(rule, kind, compiled=True)
    assert graphs == 1
    assert same == ks and len(set(ks)) > 9  # more values than the recompile limit of 8
    assert losses == pytest.approx(plain, rel=1e-5)

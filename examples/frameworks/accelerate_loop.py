"""A loop of one's own with accelerate: the loss holds K, and steps along with the optimizer."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

from negwise.integrations import KInfoNCE
from negwise.integrations.accelerate import attach

WIDTH, EPOCHS = 16, 4
torch.manual_seed(0)
x = torch.randn(3840, WIDTH)
data = TensorDataset(x, x.roll(1, 1) + 0.5 * torch.randn(3840, WIDTH))
held_out = data[3200:]

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = torch.nn.Linear(WIDTH, WIDTH, bias=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(*data[:3200]), 32, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
loss = attach(accelerator, KInfoNCE("online", temperature=0.25), optimizer)


def evaluate():
    loss.eval()
    with torch.no_grad():
        loss(model(held_out[0]), held_out[1])
    loss.train()
    return loss.scores()


print(f"AUC before training {evaluate().auc:.3f}")
for epoch in range(EPOCHS):
    for query, positive in loader:
        with accelerator.accumulate(model):
            accelerator.backward(loss(model(query), positive))
            optimizer.step()
            optimizer.zero_grad()
    found, scores = loss.logs(), evaluate()
    print(
        f"epoch {epoch}  K {found['k']:.1f}  win rate {found['win_rate']:.3f}  AUC {scores.auc:.3f}±{scores.auc_se:.3f}"
    )

"""Plain torch: `KCrossEntropy` in the place of ``nn.CrossEntropyLoss``. ``python torch_loop.py OUT``"""

import sys

import torch

from negwise.integrations import KCrossEntropy

WIDTH, ITEMS, STEPS = 16, 200, 300
torch.manual_seed(0)
users = torch.randn(5000, WIDTH)
items = (users @ torch.randn(WIDTH, ITEMS)).argmax(1)
model = torch.nn.Linear(WIDTH, ITEMS)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
loss = KCrossEntropy("online", optimizer=optimizer, run=f"{sys.argv[1]}/run")


def evaluate():
    loss.eval()
    with torch.no_grad():
        loss(model(users[-500:]), items[-500:])
    loss.train()
    return loss.scores()


print(f"AUC before training {evaluate().auc:.3f}")
for step in range(STEPS):
    rows = torch.randint(4500, (128,))
    optimizer.zero_grad()
    loss(model(users[rows]), items[rows]).backward()
    optimizer.step()
    if step % 100 == 99:
        print(f"step {step + 1}  K {loss.logs()['k']:.1f}  AUC {evaluate().auc:.3f}")
loss.finish(model)

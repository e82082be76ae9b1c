"""Your own loop, with a K that changes: a rule, a sampler, a key and a loss.

Users click items of a simulated world; the model is a dot product of two embeddings. ``python examples/own_loop.py``
"""

import torch

from negwise import WarmK
from negwise.draws import Key
from negwise.losses import info_nce
from negwise.protocols import Observation
from negwise.samplers import Exclusions, Lists, Uniform

USERS, ITEMS, WIDTH, BATCH, STEPS, SEED = 500, 400, 16, 256, 600, 0

torch.manual_seed(SEED)
taste = torch.randn(USERS, 8) @ torch.randn(8, ITEMS)
clicked = taste + 2.0 * torch.randn(USERS, ITEMS) > 5.0  # what users clicked; never drawn as a negative
user_of, item_of = clicked.nonzero(as_tuple=True)

users, items = torch.nn.Embedding(USERS, WIDTH), torch.nn.Embedding(ITEMS, WIDTH)
optimizer = torch.optim.Adam([*users.parameters(), *items.parameters()], lr=0.02)
sampler = Uniform(ITEMS, exclude=Exclusions.of(Lists.of_pairs(user_of, item_of, USERS), ITEMS))
rule = WarmK(peak=8.5)  # up from 1 over a tenth of training, then 8.5: half of the rows get 8, half get 9
state, seen = rule.init(), Observation(0, STEPS)
for step in range(STEPS):
    row = torch.randint(len(user_of), (BATCH,))
    user, positive = user_of[row], item_of[row]
    k, state = rule.update(seen, state)
    negatives = sampler(positive, k, Key(SEED, step), owner=user)
    result = info_nce(users(user), items(positive), items.weight, ids=negatives.ids, mask=negatives.mask)
    optimizer.zero_grad()
    result.loss.backward()
    optimizer.step()
    seen = Observation(step + 1, STEPS, wins=float(result.wins.sum()), pairs=int(result.pairs.sum()))
    if step % 100 == 99:
        print(
            f"step {step + 1}  K {k:.2f}  loss {result.loss.item():.3f}  AUC of the batch {result.win_rate.item():.3f}"
        )

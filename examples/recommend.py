"""Recommend from a CSV with the columns user, item and time: python examples/recommend.py FILE [OUT [STEPS]]"""

import sys

import negwise as nw

file, out, steps = (*sys.argv[1:], None, None)[:3]
out = out or "negwise-train"

nw.train(file, out=out, steps=int(steps) if steps else None)
model = nw.load(out)  # from now on the CSV is not needed

user = model.user_ids()[0]
print(f"{user} had {', '.join(model.history(user)[-3:])} and gets:")
for item, score in model.recommend([user], n=5)[0]:
    print(f"  {item}  {score:.2f}")

stranger = model.item_ids()[:2]
print(f"somebody with {' and '.join(stranger)} gets:")
for item, score in model.recommend(histories=[stranger], n=5)[0]:
    print(f"  {item}  {score:.2f}")

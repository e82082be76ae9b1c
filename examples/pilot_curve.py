"""A pilot run of your own: train with K = 1, log the AUC curves, read off K.

Matches the first paragraph of a docstring to the rest of it; the docstrings are those of NumPy, SciPy and Python as
installed. ``python examples/pilot_curve.py [curves.csv [steps]]`` takes about a minute on one core.
"""

import ast
import csv
import re
import sys
import sysconfig
import zlib
from pathlib import Path

import torch

import negwise as nw
from negwise.losses import info_nce
from negwise.metrics import evaluate, rank_catalogue

STEPS = int(sys.argv[2]) if len(sys.argv) > 2 else 3000
EVERY, BATCH, BUCKETS, HELD_OUT = 100, 256, 2**15, 1000
paths = sysconfig.get_paths()
files = [f for f in Path(paths["stdlib"]).rglob("*.py") if "site-packages" not in f.parts]
files += [f for name in ("numpy", "scipy") for f in Path(paths["purelib"], name).rglob("*.py")]
texts = {}  # body -> title
for file in sorted(f for f in files if not {"test", "tests", "lib2to3"} & set(f.parts)):
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            title, _, body = (ast.get_docstring(node) or "").partition("\n\n")
            if len(title.split()) > 3 and len(body.split()) > 5:
                texts.setdefault(body, title)


def bags(texts, width):
    """Hashed words (n, width), padded with 0."""
    words = [[zlib.crc32(w.encode()) % BUCKETS + 1 for w in re.findall(r"[a-z]+", t.lower())[:width]] for t in texts]
    return torch.tensor([row + [0] * (width - len(row)) for row in words])


torch.manual_seed(0)
order = torch.randperm(len(texts))
titles, bodies = bags(texts.values(), 20)[order], bags(texts.keys(), 60)[order]
words = torch.nn.EmbeddingBag(BUCKETS + 1, 64, mode="mean", padding_idx=0)
optimizer = torch.optim.Adam(words.parameters(), lr=3e-3)
training = len(texts) - HELD_OUT
log = {"step": [], "train_auc": [], "train_se": [], "val_auc": [], "val_se": []}
for step in range(STEPS + 1):
    if step % EVERY == 0:
        log["step"].append(step)
        for split, rows in (("train", slice(HELD_OUT, 2 * HELD_OUT)), ("val", slice(HELD_OUT))):
            with torch.no_grad():
                scores = words(titles[rows]) @ words(bodies[rows]).T
            auc = evaluate(rank_catalogue(scores, torch.arange(HELD_OUT))).auc
            log[f"{split}_auc"].append(round(auc.value, 6))
            log[f"{split}_se"].append(round(auc.se, 6))
    row = torch.randint(training, (BATCH,))
    other = (row + torch.randint(1, training, (BATCH,))) % training  # any body but the title's own
    query, positive = words(titles[HELD_OUT + row]), words(bodies[HELD_OUT + row])
    result = info_nce(query, positive, words(bodies[HELD_OUT + other])[:, None], temperature=0.1)  # K = 1
    optimizer.zero_grad()
    result.loss.backward()
    optimizer.step()

found = nw.optimal_k(
    log["train_auc"], log["val_auc"], steps=log["step"], train_se=log["train_se"], val_se=log["val_se"]
)
print(found.explain())
if len(sys.argv) > 1:
    with Path(sys.argv[1]).open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([log, *zip(*log.values(), strict=True)])

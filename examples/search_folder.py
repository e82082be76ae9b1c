"""Semantic search over a folder of texts: python examples/search_folder.py FOLDER QUESTION [PAIRS [OUT [STEPS]]]

PAIRS is what to learn from; without it, docstrings of the libraries that are installed here.
"""

import sys
from pathlib import Path

import negwise as nw

folder, question, pairs, out, steps = (*sys.argv[1:], None, None, None)[:5]
out = out or "negwise-train"

nw.train(pairs or "docs", out=out, steps=int(steps) if steps else None)
model = nw.load(out)

files = sorted(Path(folder).glob("*.txt"))
vectors = model.encode(file.read_text() for file in files)  # keep them: numpy.save("vectors.npy", vectors)
for place, score in model.search([question], vectors, n=3)[0]:
    print(f"{score:7.2f}  {files[place].name}")

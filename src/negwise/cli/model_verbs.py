"""`encode`, `recommend` and `export`: a trained model, used and taken elsewhere."""

from __future__ import annotations

import json
import sys

from negwise.requests import EncodeRequest, ExportRequest, RecommendRequest
from negwise.stages import signs_of_life, stage

LOADING = "loading torch"


def encode_verb(request: EncodeRequest, as_json: bool) -> None:
    """Turn the texts or news articles of a file into vectors, a batch at a time.

    \b
    Examples:
      negwise encode runs/a texts.txt --out vectors.npy
      negwise encode jobs/mine questions.csv --column question --side left --out vectors.parquet
      negwise encode jobs/news articles.jsonl --out vectors.csv.gz
    """
    with signs_of_life():
        with stage(LOADING):
            from negwise.inference import encode_file

        done = encode_file(request)
    if as_json:
        print(json.dumps(done))
    else:
        read = ", ".join(done["columns"])
        print(f"{done['texts']:,} vectors of width {done['width']} from {read}: {done['out']}")


def recommend_verb(request: RecommendRequest, as_json: bool) -> None:
    """Recommend items for users of the data, or for histories of people who are not in it.

    \b
    Examples:
      negwise recommend jobs/mine --user 42 --user 43 --n 5
      negwise recommend jobs/mine --history item7,item9
      negwise recommend jobs/mine --input users.csv --out found.csv --unknown skip
      negwise recommend jobs/news --input users.csv --items new_articles.jsonl --out found.csv.gz
    """
    with signs_of_life():
        with stage(LOADING):
            from negwise.inference import recommend_file

        done = recommend_file(request)
    if as_json:
        print(json.dumps(done))
    elif request.out is not None:
        print(f"{done['rows']:,} rows for {done['queries']:,}, {done['left_out']:,} left out: {done['out']}")
    else:
        for one in done["found"]:
            print(f"{one['query']}: " + ", ".join(f"{row['item']} {row['score']:.3f}" for row in one["items"]))
        for name in done["left_out"]:
            print(f"left out: {name}", file=sys.stderr)


def export_verb(request: ExportRequest, as_json: bool) -> None:
    """Write a folder that holds all of a model: weights, ids or words, settings and a model card.

    \b
    Examples:
      negwise export jobs/mine --out model
      negwise export jobs/mine --out model --vectors --histories
    """
    with signs_of_life():
        with stage(LOADING):
            from negwise.inference import export_job

        done = export_job(request)
    print(json.dumps(done) if as_json else "\n".join(f"{done['out']}/{name}" for name in done["files"]))

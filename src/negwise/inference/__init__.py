"""What comes out of training: a model that can be used, on a machine that never saw the data.

model = load("jobs/mine")                       # a job, a run or an exported folder
model.recommend(["user 42"], n=10)              # a `Recommender`
model.encode(["any text"])                      # a `TextModel`
model.export("folder")
"""

from __future__ import annotations

from negwise.errors import require

require("torch", extra="train")

from negwise.inference.best_candidates import TopN, top_n
from negwise.inference.file_jobs import encode_file, export_job, recommend_file
from negwise.inference.open_model import TrainedModel, load
from negwise.inference.recommender import Recommender
from negwise.inference.text_model import TextModel

__all__ = [
    "Recommender",
    "TextModel",
    "TopN",
    "TrainedModel",
    "encode_file",
    "export_job",
    "load",
    "recommend_file",
    "top_n",
]

"""The paper's seven models, all with the same two methods: encode candidates by id, encode queries.

The score of a query and a candidate is the dot product of their vectors. Token tables are buffers of the model and move
with it to the device; batches hold ids only. `build` makes a model by name. `PAPER` is the paper's table of
hyper-parameters; `CHOICES` lists what the paper leaves open.
"""

from __future__ import annotations

from negwise.errors import require

require("torch", extra="torch")

from negwise.models.bert4rec import BERT4Rec
from negwise.models.build import MODELS, build
from negwise.models.cloze import MaskedItems, mask_sequence
from negwise.models.hyperparameters import CHOICES, PAPER, OpenChoice, PaperSettings
from negwise.models.lstur import LSTUR
from negwise.models.naml import NAML
from negwise.models.nrms import NRMS
from negwise.models.siamese import Siamese, siamese_cnn, siamese_lstm, siamese_transformer
from negwise.models.text import WordTokenizer
from negwise.models.word_vectors import WordVectors, load_vectors

__all__ = [
    "CHOICES",
    "LSTUR",
    "MODELS",
    "NAML",
    "NRMS",
    "PAPER",
    "BERT4Rec",
    "MaskedItems",
    "OpenChoice",
    "PaperSettings",
    "Siamese",
    "WordTokenizer",
    "WordVectors",
    "build",
    "load_vectors",
    "mask_sequence",
    "siamese_cnn",
    "siamese_lstm",
    "siamese_transformer",
]

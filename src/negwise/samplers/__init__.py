"""Negative samplers: ``sampler(positives, k, key) -> Negatives``, for a real-valued K, on any device.

=============  ==================================================  ==============  ================
sampler        draws                                               replacement     ``log_q``
=============  ==================================================  ==============  ================
`Uniform`      ids of the catalogue, uniformly                     with            exact
`Popularity`   ids of the catalogue, by their count to a power     with            exact
`InBatch`      the other rows' positives                           without         given the batch
`BatchFirst`   the other rows' positives, then the catalogue       without         none
`Queue`        past ids and vectors, first in, first out           without         given the queue
`Impression`   ids that were shown and not clicked                 without         exact
`Given`        the row's own list, in order                        -               none
`GivenFirst`   the row's own list, then another sampler            as its fill     none
`Pool`         candidates that all rows of a step share            without         exact
`Hardest`      the highest scores of a larger draw                 without         none
`Mixture`      each slot from one of several samplers              as its parts    exact
=============  ==================================================  ==============  ================

A sampler never draws the row's positive, nor the ids that `Exclusions` lists for the row's owner. `Uniform` and
`Popularity` run as numba loops on the CPU if numba is installed, else in plain torch. The draws are the same, and
``sampler.which(device)`` says which one runs. To encode few candidates for many draws, see ``pool`` and ``index`` of
`Negatives`.

Shared by samplers: ``draw_request``, ``exclusions``, ``lists``, ``distribution``, ``without_replacement``; in numba
``compiled_draws``.
"""

from __future__ import annotations

from negwise.errors import require

require("torch", extra="torch")

from negwise.protocols import Negatives, Sampler
from negwise.samplers.exclusions import Exclusions
from negwise.samplers.given import Given, GivenFirst
from negwise.samplers.hardest import Hardest
from negwise.samplers.impression import Impression
from negwise.samplers.in_batch import BatchFirst, InBatch
from negwise.samplers.lists import Lists
from negwise.samplers.mixture import Mixture
from negwise.samplers.pool import Pool
from negwise.samplers.queue import Queue
from negwise.samplers.uniform_popularity import Popularity, Uniform

__all__ = [
    "BatchFirst",
    "Exclusions",
    "Given",
    "GivenFirst",
    "Hardest",
    "Impression",
    "InBatch",
    "Lists",
    "Mixture",
    "Negatives",
    "Pool",
    "Popularity",
    "Queue",
    "Sampler",
    "Uniform",
]

"""Where negatives come from: ``sampler(positives, k, key) -> Negatives``, K real-valued, on any device.

=============  ==================================================  ==============  ================
sampler        draws                                               replacement     ``log_q``
=============  ==================================================  ==============  ================
`Uniform`      ids of the catalogue, alike                         with            exact
`Popularity`   ids of the catalogue, by count to a power           with            exact
`InBatch`      the other rows' positives                           without         given the batch
`Queue`        past ids and vectors, first in, first out           without         given the queue
`Impression`   what was shown and not clicked                      without         exact
`Given`        the row's own list, in order                        -               none
`Pool`         a few candidates a step for all rows                without         exact
`Hardest`      the top of a larger draw by score                   without         none
`Mixture`      each slot from one of several samplers              as its parts    exact
=============  ==================================================  ==============  ================

The row's positive is never drawn, nor what its owner knows (`Exclusions`). `Uniform` and `Popularity` run as numba
loops on the CPU where numba is installed, and in plain torch elsewhere; ``sampler.which(device)`` tells, and
the draws are the same. To turn draws into few encodings, see ``pool`` and ``index`` of `Negatives`.
"""

from __future__ import annotations

from negwise.errors import require

require("torch", extra="torch")

from negwise.protocols import Negatives, Sampler
from negwise.samplers.catalogue import Popularity, Uniform
from negwise.samplers.exclusions import Exclusions
from negwise.samplers.given import Given
from negwise.samplers.hardest import Hardest
from negwise.samplers.impression import Impression
from negwise.samplers.in_batch import InBatch
from negwise.samplers.lists import Lists
from negwise.samplers.mixture import Mixture
from negwise.samplers.pool import Pool
from negwise.samplers.queue import Queue

__all__ = [
    "Exclusions",
    "Given",
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

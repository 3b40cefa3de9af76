"""One seed for each thing that is drawn.

Neither the order in which things are drawn nor how many processes share the work can matter when the seed of each is a
function of the user's seed and of what the thing is.
"""

from __future__ import annotations

import hashlib
import os

__all__ = ["seed_of"]


def seed_of(*what: str | int) -> int:
    """A seed, below 2^64, for what is named.

    >>> seed_of(0, "tom.jpg", 1) == seed_of(0, "tom.jpg", 1) != seed_of(0, "tom.jpg", 2)
    True
    """
    key = os.fsencode("\0".join(map(str, what)))  # as the system encodes them: names of files need not be valid text
    return int.from_bytes(hashlib.sha256(key).digest()[:8])

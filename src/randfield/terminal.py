"""What all commands share: the kinds of their options, and how they stop."""

from __future__ import annotations

import sys
from typing import Annotated, NoReturn

from cyclopts import Parameter
from cyclopts.validators import Number

__all__ = ["Count", "Flag", "Json", "stop"]

Count = Annotated[int, Parameter(validator=Number(gte=1))]
Flag = Annotated[bool, Parameter(show_default=False)]
Json = Annotated[
    bool, Parameter(name="--json", help="Print the result as one JSON object on the last line.", show_default=False)
]


def stop(message: str, *, status: int = 1) -> NoReturn:
    """End with a sentence on standard error: status 1 for a job that was not done, 2 for what cannot be asked."""
    print(f"randfield: {message}", file=sys.stderr)
    sys.exit(status)

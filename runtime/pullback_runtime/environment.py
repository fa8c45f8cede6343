"""Debugging aids that environment variables turn on. A value that means nothing is spoken of, once."""

from __future__ import annotations

import os
from collections.abc import Sequence

_told: set[tuple[str, str]] = set()


def asked(variable: str, known: Sequence[str]) -> frozenset[str]:
    """The names, separated by commas, that an environment variable asks for; empty and ``0`` ask for nothing."""
    given = os.environ.get(variable, "")
    if not given or given == "0":
        return frozenset()
    names = frozenset(name.strip() for name in given.split(","))
    for name in sorted(names - {"", *known}):
        if (variable, name) not in _told:
            _told.add((variable, name))
            import warnings  # for this only

            warnings.warn(f"{variable}={name} means nothing; known are {', '.join(known)}", stacklevel=2)
    return names

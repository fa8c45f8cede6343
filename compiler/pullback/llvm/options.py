"""What the user may choose about code generation; apart from it, so that nothing is loaded before something is compiled."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """``fast_math`` allows reassociation, contraction and the absence of NaN and infinities: the user's choice."""

    fast_math: bool = False

"""What the user may choose about code generation; apart from it, so that nothing is loaded before something is compiled."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """``fast_math`` allows reassociation, contraction and the absence of NaN and infinities: the user's choice.

    ``max_trips``: a loop that makes more is an error. ``checkpoint``: how the tapes of loops are bounded; see ``pb.compile``.
    ``opt``: how much time machine code is worth. ``parallel``: whether threads share outermost loops.
    """

    fast_math: bool = False
    max_trips: int | None = None
    checkpoint: int | str | None = None
    opt: int | str = "auto"
    parallel: bool = False


OPTS: tuple[int | str, ...] = ("auto", 0, 1, 2, 3)  # what ``opt`` may be

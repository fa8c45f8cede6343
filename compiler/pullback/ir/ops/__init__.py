"""THE op table: every op of the IR, in one closed mapping by name. To add an op, add a record to its family's file."""

from collections.abc import Mapping
from types import MappingProxyType

from pullback.ir.ops import (
    choice,
    contract,
    control,
    elementwise,
    index,
    linalg,
    matrix_functions,
    reduce,
    shape,
    special,
    spectral,
    transcendental,
)
from pullback.ir.ops.base import Op

_FAMILIES = (
    elementwise.OPS,
    choice.OPS,
    transcendental.OPS,
    special.OPS,
    reduce.OPS,
    shape.OPS,
    index.OPS,
    contract.OPS,
    linalg.OPS,
    spectral.OPS,
    matrix_functions.OPS,
    control.OPS,
)
OPS: Mapping[str, Op] = MappingProxyType({name: op for family in _FAMILIES for name, op in family.items()})
assert len(OPS) == sum(map(len, _FAMILIES)), "two families define one op"

__all__ = ["OPS", "Op"]

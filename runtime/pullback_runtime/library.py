"""Kernels from shared libraries: a library and its manifest make the same Kernel that the compiler would.

A manifest is the Signature as JSON; it is data, and nothing in it is executed.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from pullback_runtime.kernel import Array, Failure, Kernel, Signature


def manifest(signature: Signature) -> str:
    """A signature as text."""
    return json.dumps(dataclasses.asdict(signature), indent=2)


def signature(text: str) -> Signature:
    """The signature that ``manifest`` wrote."""
    return signature_of(json.loads(text))


def signature_of(data: Mapping[str, Any]) -> Signature:
    """The signature that JSON's objects say."""
    return Signature(
        name=str(data["name"]),
        params=tuple(_array(a) for a in data["params"]),
        results=tuple(_array(a) for a in data["results"]),
        symbols=tuple(map(str, data["symbols"])),
        defined=tuple(map(str, data["defined"])),
        bounds=tuple(_polynomial(b) for b in data["bounds"]),
        workspace=_polynomial(data["workspace"]),
        failures=tuple(Failure(str(f["error"]), str(f["text"]), str(f["where"])) for f in data["failures"]),
        local=int(data["local"]),
        loops=bool(data["loops"]),
        parallel=bool(data["parallel"]),
    )


def load(path: str, text: str, symbol: str = "k") -> Kernel:
    """The kernel in the shared library at ``path``."""
    library = ctypes.CDLL(path)
    address = ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value
    assert address is not None
    return Kernel(signature(text), address, keep=library)


def _array(data: Mapping[str, Any]) -> Array:
    return Array(str(data["dtype"]), tuple(_polynomial(s) for s in data["shape"]), str(data["text"]), bool(data["tape"]))


def _polynomial(data: Any) -> Any:
    """JSON has lists where the runtime has tuples."""
    return tuple(_polynomial(d) for d in data) if isinstance(data, list) else int(data)

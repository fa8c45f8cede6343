"""Kernels as they are kept on disk: from bytes to code in memory and what the runtime has to know of it.

Loaded in processes that find everything on disk, so it needs neither the rest of the compiler nor LLVM.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakValueDictionary

from pullback.llvm.image import Image, Loaded, symbol
from pullback_runtime.kernel import Kernel, Signature
from pullback_runtime.library import signature_of

BLAS = "pullback_"  # how the names of BLAS functions begin in objects
_live: WeakValueDictionary[str, Any] = WeakValueDictionary()  # code in memory, as long as some kernel has it


@dataclass(frozen=True, slots=True)
class Code:
    """What is kept of a kernel: how to load it, and its signature without name and places, which each function has its own.

    ``origins``: which instruction (in the order of ``walk``) each of the failures belongs to.
    """

    signature: Signature
    origins: tuple[int, ...]
    blas: tuple[str, ...]
    image: Image | None
    objects: tuple[bytes, ...]  # where there is no image


def packed(about: dict[str, Any], image: Image | None, objects: Sequence[bytes]) -> bytes:
    """A line of JSON, then the image or the objects. ``about`` has the signature, the origins and the BLAS functions."""
    parts = objects if image is None else [image.blob]
    where = None if image is None else [image.entry, image.imports]
    line = json.dumps({**about, "image": where, "sizes": [len(part) for part in parts]})
    return b"".join([line.encode(), b"\n", *parts])


def unpacked(data: bytes) -> Code:
    """What ``packed`` gave."""
    end = data.index(b"\n")
    about = json.loads(data[:end])
    ends = list(itertools.accumulate(about["sizes"], initial=end + 1))
    parts = tuple(data[start:stop] for start, stop in itertools.pairwise(ends))
    image = None
    if about["image"] is not None:
        entry, imports = about["image"]
        image, parts = Image(parts[0], entry, tuple((name, slot) for name, slot in imports)), ()
    return Code(signature_of(about["signature"]), tuple(about["origins"]), tuple(about["blas"]), image, parts)


def kernel(code: Code, name: str, places: Sequence[str], texts: Any, entry: str = "") -> Kernel:
    """The kernel in memory, for a function of this name. OSError or KeyError if something that it needs is not there.

    ``entry``: what all kernels with this code have in common, so that it is in memory once."""
    loaded = _live.get(entry)
    if loaded is None:
        loaded = _loaded(code)
        if entry:
            loaded = _live.setdefault(entry, loaded)
    return Kernel(renamed(code.signature, name, places), loaded.address, loaded, texts)


def renamed(signature: Signature, name: str, places: Sequence[str]) -> Signature:
    """The signature with a function's name, and the place of each failure."""
    failures = tuple(replace(f, where=where) for f, where in zip(signature.failures, places, strict=True))
    return replace(signature, name=name, failures=failures)


def _loaded(code: Code) -> Any:
    """The code in memory, with its ``address``."""
    if code.image is not None:
        return Loaded(code.image, _foreign)
    from pullback.llvm import engine

    return engine.Linked(code.objects, "k", code.blas)


def _foreign(name: str) -> int:
    """The address of a function that kernels call."""
    if name.startswith(BLAS):
        from pullback.llvm import blas  # for SciPy's

        return blas.address(name.removeprefix(BLAS))
    return symbol(name)

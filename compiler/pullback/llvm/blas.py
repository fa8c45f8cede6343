"""BLAS and LAPACK by SciPy's function pointers. SciPy is imported only when a kernel that calls them is compiled or loaded."""

from __future__ import annotations

import ctypes
import functools


@functools.cache
def address(symbol: str) -> int:
    """The address of a Fortran-style function with 32-bit integers."""
    from scipy.linalg import cython_blas

    capsule = cython_blas.__pyx_capi__.get(symbol)
    if capsule is None:
        from scipy.linalg import cython_lapack  # few need it

        capsule = cython_lapack.__pyx_capi__[symbol]
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    found = pointer(capsule, name(capsule))
    assert found is not None
    return int(found)

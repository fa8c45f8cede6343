"""From LLVM text to machine code in this process: parse, verify, optimise, emit an object, link it with ORC.

One lock serialises all of it, as llvmlite does itself; target machines and pass builders are made once per level.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Sequence
from typing import Any

import llvmlite.binding as llvm

from pullback.llvm import blas

LOCK = threading.RLock()
_names = itertools.count()


@functools.cache
def features() -> str:
    return str(llvm.get_host_cpu_features().flatten())


@functools.cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()


@functools.cache
def _machine(level: int) -> Any:
    _initialize()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features(), opt=level, reloc="pic", codemodel="small"
    )


@functools.cache
def _builder(level: int) -> Any:
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = options.loop_interleaving = options.loop_unrolling = level > 2  # nests come in vectors
    options.slp_vectorization = level > 2  # the costliest switch by far
    return llvm.create_pass_builder(_machine(level), options)


@functools.cache
def _inliner() -> Any:
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    return passes


@functools.cache
def _short_list() -> Any:
    """Passes for code that is as good as written: better instructions, what one expression computes twice, what no one needs.
    A tenth of the time that the standard pipeline takes, for code as quick, and unlike that one it can run again."""
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_new_gvn_pass()
    passes.add_dead_store_elimination_pass()
    return passes


@functools.cache
def _jit() -> Any:
    return llvm.create_lljit_compiler(_machine(2), use_jit_link=True, suppress_errors=True)


class Module:
    """A parsed and verified module. ``level`` 0 emits it as it is, 1 runs a short list of passes, 2 what LLVM does for each
    function (which knows loops; half of what its pipeline for modules takes, with the same code for ours), 3 all it can do."""

    def __init__(self, text: str, level: int):
        with LOCK:
            machine = _machine(level)
            self._machine = machine
            self.module = llvm.parse_assembly(text)
            self.module.verify()
            self.module.triple = machine.triple
            self.module.data_layout = str(machine.target_data)
            self._optimize(level)

    def _optimize(self, level: int) -> None:
        if level == 1:
            _short_list().run(self.module, _builder(level))
        elif level == 2:
            builder = _builder(level)
            _inliner().run(self.module, builder)
            passes = builder.getFunctionPassManager()
            for function in self.module.functions:
                if not function.is_declaration:
                    passes.run(function, builder)
        elif level:
            builder = _builder(level)
            builder.getModulePassManager().run(self.module, builder)

    def text(self) -> str:
        with LOCK:
            return str(self.module)

    def assembly(self) -> str:
        with LOCK:
            return str(self._machine.emit_assembly(self.module))

    def object(self) -> bytes:
        with LOCK:
            return bytes(self._machine.emit_object(self.module))


def object_of(text: str) -> bytes:
    """The object of a module whose code is written as it should be: good instructions, but no pass over the module."""
    with LOCK:
        machine = _machine(2)
        module = llvm.parse_assembly(text)
        module.verify()
        module.triple = machine.triple
        module.data_layout = str(machine.target_data)
        return bytes(machine.emit_object(module))


class Linked:
    """Code in memory, for as long as this object lives."""

    def __init__(self, objects: Sequence[bytes], entry: str, blas_symbols: Sequence[str] = ()):
        with LOCK:
            builder = llvm.JITLibraryBuilder()
            for image in objects:
                builder.add_object_img(image)
            for symbol in blas_symbols:
                builder.import_symbol(f"pullback_{symbol}", blas.address(symbol))
            builder.add_current_process().export_symbol(entry)
            self._tracker = builder.link(_jit(), f"pullback{next(_names)}")
            self.address: int = self._tracker[entry]

"""``python -m tests.bench``. Everybody gets one thread; libraries ask for that when they are imported."""

import os


def main() -> None:
    for name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR"):
        os.environ[f"{name}_NUM_THREADS"] = "1"
    os.environ["NPROC"] = "1"  # JAX's, and its matrix products
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a second process finds compiled modules, as its user's would
    from tests.bench import command

    command.main()


main()

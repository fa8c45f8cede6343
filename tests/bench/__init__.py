"""Benchmarks: ``python -m tests.bench [--quick] [--only TASK]..``. Each task has contestants that compute the same; all are
measured in one process, in turns, and compared by ratios of medians.

``programs.py`` has the programs as a user writes them, ``inputs.py`` what they are run on, ``loops.py`` tasks that are loops;
``by_numpy.py``, ``formulas.c`` and ``models.c`` are gradients by hand, each ``peers_*.py`` is a library, if installed."""

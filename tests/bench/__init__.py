"""Benchmarks: ``python -m tests.bench [--quick] [--only TASK]..``. Each task has contestants that compute the same; all are
measured in one process, in turns, and compared by ratios of medians."""

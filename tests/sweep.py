"""A long run of the random programs: ``python -m tests.sweep COUNT [SEED]``. Prints every failure, and the count."""

from __future__ import annotations

import sys

from tests.test_random import examine


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    start = int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000
    failures = 0
    for seed in range(start, start + count):
        problem = examine(seed)
        if problem is not None:
            failures += 1
            print(problem, end="\n\n", flush=True)
    print(f"{count} programs from seed {start}: {failures} failed")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())

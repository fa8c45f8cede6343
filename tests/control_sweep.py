"""A long run of the random programs with control flow: ``python -m tests.control_sweep COUNT SEED [PROPERTY..]``.

Prints every failure, and the count; how far it has got goes to stderr.
"""

from __future__ import annotations

import os
import sys
import time

os.environ.setdefault("PULLBACK_CHECK", "1")  # the verifier runs after every pass

from tests import test_control_random


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    start = int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000
    properties = [getattr(test_control_random, name) for name in sys.argv[3:]] or None
    failures, begun = 0, time.monotonic()
    for seed in range(start, start + count):
        problem = test_control_random.examine(seed, properties)
        if problem is not None:
            failures += 1
            print(problem, end="\n\n", flush=True)
        if (seed - start) % 100 == 99:
            print(f"... {seed}", file=sys.stderr, flush=True)
    print(f"{count} programs from seed {start}: {failures} failed, {time.monotonic() - begun:.0f} s")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())

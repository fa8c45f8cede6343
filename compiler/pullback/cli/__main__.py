"""``python -m pullback.cli``."""

from pullback.cli import main

main()

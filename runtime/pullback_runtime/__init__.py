"""What a compiled function needs when it runs: NumPy and the standard library only."""

__version__ = "0.1.0"

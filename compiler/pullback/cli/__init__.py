"""The ``pullback`` command."""

from __future__ import annotations


def main() -> None:
    """The entry point. The command's libraries are imported only here."""
    from pullback.cli.commands import cli

    cli(prog_name="pullback")


__all__ = ["main"]

"""Errors of the command: a message on stderr and exit status 2."""

from __future__ import annotations

from typing import Any, TextIO

import click


class CommandError(click.ClickException):
    """Whatever the user can put right."""

    exit_code = 2

    def show(self, file: TextIO | Any = None) -> None:
        click.echo(f"error: {self.format_message()}", err=True, file=file)

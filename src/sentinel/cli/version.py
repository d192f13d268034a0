"""`sentinel version`."""

from __future__ import annotations

import platform
import sys

import click

from sentinel.cli import options
from sentinel.cli.options import OutputFormat
from sentinel.version import __version__


@click.command()
@options.output_option
def version(output: OutputFormat) -> None:
    """Print the version."""
    if output is OutputFormat.TABLE:
        click.echo(f"sentinel {__version__}")
        return
    facts = {"version": __version__, "python": platform.python_version(), "platform": sys.platform}
    click.echo(options.encode(facts, output))

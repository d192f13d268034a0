"""The name of a version on the command line, `<config>@<n>`."""

from __future__ import annotations

import click

from sentinel.core.hub import versions
from sentinel.core.hub.versions import VersionName
from sentinel.runtime.settings.report import quoted


class VersionType(click.ParamType[VersionName]):
    """Reads `edge@3`."""

    name = "version"

    def convert(
        self, value: str | VersionName, param: click.Parameter | None, ctx: click.Context | None
    ) -> VersionName:
        if isinstance(value, VersionName):
            return value
        found = versions.parse(value)
        if found is None:
            self.fail(f"expected a version such as edge@3, got {quoted(value)}", param, ctx)
        return found


VERSION = VersionType()

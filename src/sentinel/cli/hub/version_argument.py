"""The names of configurations and versions on the command line: `edge`, `edge@3`."""

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


class ConfigType(click.ParamType[str]):
    """Checks `edge`, before anything is asked of a hub."""

    name = "config"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not versions.is_config_id(value):
            self.fail(f"expected a configuration such as edge, got {quoted(value)}", param, ctx)
        return value


VERSION = VersionType()
CONFIG = ConfigType()

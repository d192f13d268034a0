"""Every setting is read by the code that runs with it.

A setting that nobody reads is worse than none: users set it and wonder. This looks for each key of a settings
struct as an attribute in the modules that use the struct. What the setting does is tested where it is used.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import sentinel
from sentinel.adapter.settings import AdapterSettings
from sentinel.agent.settings import AgentSettings
from sentinel.api.settings import FleetApiSettings
from sentinel.drift.settings import DriftSettings
from sentinel.operator.sentinel_config import SentinelConfigSpec
from sentinel.pulse.settings import LabelMatch, PulseSettings
from sentinel.runtime.settings.schema import Section, StructList, section

ROOT = Path(sentinel.__file__).parent
SHARED = ("cli/wiring/serve.py", "cli/wiring/hyperfleet_api.py")
USERS = {
    PulseSettings: ("cli/wiring/pulse.py", "cli/pulse/run.py", "pulse/settings.py", *SHARED),
    SentinelConfigSpec: ("operator/sentinel_config.py", "operator/resolve.py"),
    DriftSettings: (
        *("cli/wiring/drift.py", "cli/drift/command.py", "cli/wiring/serve.py"),
        *("drift/settings.py", "drift/setting_types.py"),
    ),
    AdapterSettings: ("cli/wiring/adapter.py", "cli/adapter/command.py", *SHARED),
    AgentSettings: (
        *("cli/wiring/agent.py", "cli/wiring/applier.py", "cli/agent/command.py", "cli/wiring/serve.py"),
        *("agent/settings.py", "core/agent/proxy_metrics.py"),
    ),
    FleetApiSettings: (
        *("cli/wiring/api.py", "cli/wiring/server.py", "cli/api/command.py", "cli/wiring/serve.py"),
        *("api/maintenance.py", "runtime/settings/server.py"),
    ),
}


def attributes_in(files: tuple[str, ...]) -> set[str]:
    """The names of all attributes that the modules read."""
    trees = (ast.parse((ROOT / file).read_text()) for file in files)
    return {node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def names_in(declared: Section) -> Iterator[str]:
    for field in declared.fields:
        yield field.name
        if isinstance(field.type, Section):
            yield from names_in(field.type)
        elif isinstance(field.type, StructList):
            yield from names_in(field.type.item)


@pytest.mark.parametrize("struct", USERS)
def test_every_setting_is_read_where_it_should_take_effect(struct: type[msgspec.Struct]) -> None:
    names = set(names_in(section(struct)))

    assert len(names) > 10
    assert names - attributes_in(USERS[struct]) == set()


def test_the_walk_covers_inner_sections_and_lists() -> None:
    names = set(names_in(section(PulseSettings)))

    assert {"endpoint", "page_size", "token", "level", *LabelMatch.__struct_fields__} <= names

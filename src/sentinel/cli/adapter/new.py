"""`sentinel adapter new`: write a small adapter project with passing tests.

Its modules are named after the adapter: Python identifies a module by its name, so projects with equal names could
not be tested in one run, and a traceback would not tell them apart.
"""

from __future__ import annotations

import re
from pathlib import Path
from string import Template

import click

from sentinel.core.fleet.reports import is_adapter_name
from sentinel.runtime.process import ExitCode

_ADAPTER = '''\
"""The adapter $name: an example to change."""

from sentinel.adapter import (
    Adapter,
    Context,
    Done,
    Failed,
    Finalized,
    InProgress,
    Outcome,
    PreconditionsNotMet,
    Resource,
)

SERVICE = "http://$name.internal"

adapter = Adapter("$name")


@adapter.task(kinds=["Cluster"])
async def ensure(cluster: Resource, context: Context) -> Outcome:
    """Check the state and do what is missing. This runs at every pulse, so it must be safe to repeat."""
    if not cluster.is_available("validation"):
        return PreconditionsNotMet("Waiting for validation to complete")
    response = await context.http.put(f"{SERVICE}/clusters/{cluster.id}", json=cluster.spec)
    if response.status == 202:
        return InProgress("the work has been started")
    if not response.is_success:
        return Failed(f"the service answered {response.status}: {response.text()[:200]}")
    return Done(data={"generation": cluster.generation})


@adapter.finalizer(kinds=["Cluster"])
async def remove(cluster: Resource, context: Context) -> Outcome:
    """Clean up when the cluster is being deleted."""
    response = await context.http.delete(f"{SERVICE}/clusters/{cluster.id}")
    if response.is_success or response.status == 404:
        return Finalized()
    return Failed(f"the service answered {response.status}")
'''

_TEST = '''\
"""Tests of the adapter $name, without a broker or an API."""

from $module import SERVICE, adapter

from sentinel.testing.adapter import START, FakeHttp, make_resource, report_on, reported

VALIDATED = make_resource("Cluster", id="c1", spec={"region": "us-east"}, reports=[reported("validation")])


def test_an_unvalidated_cluster_waits():
    report = report_on(adapter, make_resource("Cluster"))

    assert report.status_of("Applied") == "False"
    assert report.status_of("Available") == "False"
    assert report.status_of("Health") == "True"


def test_a_validated_cluster_is_sent_to_the_service():
    http = FakeHttp()
    http.answer("PUT", f"{SERVICE}/clusters/c1", status=200)

    report = report_on(adapter, VALIDATED, http=http)

    assert report.status_of("Available") == "True"
    assert http.requests[0].json() == {"region": "us-east"}


def test_work_in_progress_is_reported_as_unknown():
    http = FakeHttp()
    http.answer("PUT", f"{SERVICE}/clusters/c1", status=202)

    assert report_on(adapter, VALIDATED, http=http).status_of("Available") == "Unknown"


def test_an_unreachable_service_makes_the_adapter_unhealthy():
    assert report_on(adapter, VALIDATED).status_of("Health") == "False"


def test_a_deleted_cluster_is_finalized_when_the_service_has_deleted_it():
    http = FakeHttp()
    http.answer("DELETE", f"{SERVICE}/clusters/c1", status=404)

    report = report_on(adapter, make_resource("Cluster", id="c1", deleted_time=START), http=http)

    assert report.status_of("Finalized") == "True"
'''

_CONFIG = """\
# Run it with: sentinel adapter --config adapter.yaml
# The broker is configured by environment variables: BROKER_TYPE, BROKER_URL and so on.
task: $module:adapter
hyperfleet_api:
  endpoint: http://127.0.0.1:8000
  # token_file: token
concurrency: 10
task_timeout: 30s
report_max_age: 0s
"""

_README = """\
# $name

An adapter for HyperFleet: at every pulse it checks a resource and reports its status.

| file | content |
|---|---|
| `$module.py` | the task for clusters, and the finalizer that cleans up |
| `adapter.yaml` | the settings |
| `test_$module.py` | the tests, without a broker or an API |
| `pytest.ini` | the configuration of pytest |

    pytest
    BROKER_TYPE=rabbitmq BROKER_URL=amqp://guest:guest@127.0.0.1/ sentinel adapter --config adapter.yaml
"""

_PYTEST = """\
[pytest]
# These tests are synchronous and do not need pytest-asyncio. Remove this line to write asynchronous tests.
addopts = -p no:asyncio
"""

_FILES = {
    "$module.py": _ADAPTER,
    "adapter.yaml": _CONFIG,
    "test_$module.py": _TEST,
    "pytest.ini": _PYTEST,
    "README.md": _README,
}


@click.command()
@click.argument("name")
@click.option(
    "--directory",
    metavar="D",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder to write to; by default one named after the adapter.",
)
def new(name: str, directory: Path | None) -> int:
    """Write a small adapter project with passing tests: for the adapter dns, adapter_dns.py, adapter.yaml,
    test_adapter_dns.py, pytest.ini and README.md.

    Nothing is overwritten: if one of the files exists, none is written.
    """
    if not is_adapter_name(name):
        raise click.BadParameter(
            f'expected letters, digits, dashes, dots and underscores, got "{name}"', param_hint="NAME"
        )
    folder = Path(name) if directory is None else directory
    files = _render(name)
    existing = [file for file in files if (folder / file).exists()]
    if existing:
        raise click.UsageError(f"{folder}: expected a folder without {', '.join(existing)}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, content in files.items():
            (folder / file).write_text(content, encoding="utf-8")
    except OSError as error:
        click.echo(f"{folder}: cannot be written: {(error.strerror or str(error)).lower()}", err=True)
        return ExitCode.FAILURE
    for file in files:
        click.echo(folder / file)
    return ExitCode.SUCCESS


def _render(name: str) -> dict[str, str]:
    values = {"name": name, "module": "adapter_" + re.sub(r"\W", "_", name)}
    return {Template(file).substitute(values): Template(text).substitute(values) for file, text in _FILES.items()}

"""`sentinel adapter new`: a small project to begin with, whose test passes before anything was changed.

Its modules are named after the adapter. Python knows a module by its name alone, so several projects whose modules
have the same one could not be tested in one run, nor be told apart in a traceback.
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
    """Looks, does what is missing, and says how it is. It runs at every pulse, so it must be safe to repeat."""
    if not cluster.is_available("validation"):
        return PreconditionsNotMet("Waiting for validation to complete")
    answer = await context.http.put(f"{SERVICE}/clusters/{cluster.id}", json=cluster.spec)
    if answer.status == 202:
        return InProgress("the work has been started")
    if not answer.is_success:
        return Failed(f"the service answered {answer.status}: {answer.text()[:200]}")
    return Done(data={"generation": cluster.generation})


@adapter.finalizer(kinds=["Cluster"])
async def remove(cluster: Resource, context: Context) -> Outcome:
    """Undoes it, once the cluster is to be deleted."""
    answer = await context.http.delete(f"{SERVICE}/clusters/{cluster.id}")
    if answer.is_success or answer.status == 404:
        return Finalized()
    return Failed(f"the service answered {answer.status}")
'''

_TEST = '''\
"""The adapter $name against resources, without a broker and without an API."""

from $module import SERVICE, adapter

from sentinel.testing.adapter import START, FakeHttp, make_resource, report_on, reported

VALIDATED = make_resource("Cluster", id="c1", spec={"region": "us-east"}, reports=[reported("validation")])


def test_a_cluster_that_is_not_validated_waits():
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


def test_work_that_goes_on_is_reported_as_unknown():
    http = FakeHttp()
    http.answer("PUT", f"{SERVICE}/clusters/c1", status=202)

    assert report_on(adapter, VALIDATED, http=http).status_of("Available") == "Unknown"


def test_a_service_that_does_not_answer_is_the_adapters_own_trouble():
    assert report_on(adapter, VALIDATED).status_of("Health") == "False"


def test_a_deleted_cluster_is_finalised_when_the_service_has_forgotten_it():
    http = FakeHttp()
    http.answer("DELETE", f"{SERVICE}/clusters/c1", status=404)

    report = report_on(adapter, make_resource("Cluster", id="c1", deleted_time=START), http=http)

    assert report.status_of("Finalized") == "True"
'''

_CONFIG = """\
# Run it with: sentinel adapter --config adapter.yaml
# The broker is set apart from this file, by BROKER_TYPE, BROKER_URL and so on.
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

An adapter: it answers the pulses of a fleet for its kinds of resource, and reports what it found.

| file | what it is |
|---|---|
| `$module.py` | what is done for a cluster, and what is undone when it is deleted |
| `adapter.yaml` | how it is run |
| `test_$module.py` | how it is tested, without a broker and without an API |
| `pytest.ini` | that these tests need no plugin |

    pytest
    BROKER_TYPE=rabbitmq BROKER_URL=amqp://guest:guest@127.0.0.1/ sentinel adapter --config adapter.yaml
"""

_PYTEST = """\
[pytest]
# Where pytest-asyncio is installed, it wants settings of its own that nothing here needs. Take this out to write
# tests that are asynchronous themselves.
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
    help="Where to put it; a folder of the adapter's name where nothing is said.",
)
def new(name: str, directory: Path | None) -> int:
    """Write a small adapter project with a passing test: for the adapter dns, adapter_dns.py, adapter.yaml,
    test_adapter_dns.py, pytest.ini and README.md.

    Nothing is overwritten: where one of the files exists, none is written.
    """
    if not is_adapter_name(name):
        raise click.BadParameter(
            f'expected letters, digits, dashes, dots and underscores, got "{name}"', param_hint="NAME"
        )
    folder = Path(name) if directory is None else directory
    files = _filled(name)
    taken = [file for file in files if (folder / file).exists()]
    if taken:
        raise click.UsageError(f"{folder}: expected a folder without {', '.join(taken)}")
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


def _filled(name: str) -> dict[str, str]:
    known = {"name": name, "module": "adapter_" + re.sub(r"\W", "_", name)}
    return {Template(file).substitute(known): Template(text).substitute(known) for file, text in _FILES.items()}

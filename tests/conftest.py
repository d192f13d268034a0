"""What tests of every room share. Those that need a broker fail without one; none is ever skipped."""

from __future__ import annotations

import gc
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import hypothesis
import pytest
import trustme

from tests.support.brokers.rabbitmq import Inbox, PrivateRabbitMQ, open_inbox, url_of
from tests.support.databases.postgresql import database
from tools.services import (
    POSTGRESQL,
    RABBITMQ_PORT,
    NotAnswering,
    PostgreSQLServer,
    RabbitMQNode,
    ServiceError,
    TlsFiles,
    free_port,
    greet,
    postgresql_server,
)

# How long an example takes says more about the machine, and who else is at work on it, than about us.
hypothesis.settings.register_profile(
    "unhurried", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("unhurried")


def pytest_collection_finish() -> None:
    """Thousands of tests, and what they import, stay to the end: no need to search them for garbage ever again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def rabbitmq_url() -> str:
    """The RabbitMQ that all tests share; whatever is made on it is removed again by who made it."""
    try:
        greet(RABBITMQ_PORT)
    except (NotAnswering, ServiceError) as error:
        pytest.fail(
            f"no RabbitMQ on port {RABBITMQ_PORT} ({error}): run `make test`, "
            "or `python -m tools.services rabbitmq -- pytest ...`"
        )
    return url_of(RABBITMQ_PORT)


@pytest.fixture
async def inbox(rabbitmq_url: str) -> AsyncIterator[Inbox]:
    """A durable fanout exchange of this test's own, and a durable queue bound to it."""
    async with open_inbox(rabbitmq_url) as box:
        yield box


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    """Who vouches for the private node."""
    return trustme.CA()


@pytest.fixture(scope="session")
def ca_file(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("authority") / "ca.pem"
    authority.cert_pem.write_to_path(str(file))
    return file


@pytest.fixture(scope="session")
def private_rabbitmq(
    authority: trustme.CA, ca_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PrivateRabbitMQ]:
    """A node of our own; who stops it starts it again."""
    directory = tmp_path_factory.mktemp("rabbitmq")
    issued = authority.issue_cert("127.0.0.1", "localhost")
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    for pem in issued.cert_chain_pems:
        pem.write_to_path(str(certificate), append=True)
    issued.private_key_pem.write_to_path(str(key))
    tls = TlsFiles(authority=ca_file, certificate=certificate, key=key, port=free_port())
    with RabbitMQNode(port=free_port(), directory=directory, tls=tls) as node:
        yield PrivateRabbitMQ(node)


@pytest.fixture(scope="session")
def postgresql_url() -> str:
    """The PostgreSQL server that all tests share, by a user who may make databases; ask for one of your own."""
    url = os.environ.get(POSTGRESQL)
    if not url:
        pytest.fail(
            f"no PostgreSQL: run `make test`, or `python -m tools.services postgresql -- pytest ...`, "
            f"or set {POSTGRESQL} to the URL of a server to make databases on"
        )
    return url


@pytest.fixture(scope="session")
def postgresql_database(postgresql_url: str) -> Iterator[str]:
    """A database of this session's own, which those who use it empty first."""
    with database(postgresql_url) as url:
        yield url


@pytest.fixture
def fresh_postgresql_database(postgresql_url: str) -> Iterator[str]:
    """A database of this test's own, without a table."""
    with database(postgresql_url) as url:
        yield url


@pytest.fixture(scope="session")
def private_postgresql() -> Iterator[PostgreSQLServer]:
    """A server of our own; who stops it starts it again."""
    with postgresql_server() as server:
        yield server

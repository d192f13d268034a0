"""Fixtures that all tests share. A test whose service is missing fails; it is not skipped."""

from __future__ import annotations

import gc
import os
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
import trustme

from tests.support.brokers.rabbitmq import Inbox, PrivateRabbitMQ, open_inbox, url_of
from tests.support.databases.postgresql import database
from tests.support.examples import register_profiles
from tests.support.line_numbers import complete_line_numbers
from tools.services import postgresql, rabbitmq
from tools.services.postgresql import POSTGRESQL_URL_VARIABLE, PostgreSQLServer
from tools.services.rabbitmq import RABBITMQ_PORT, RabbitMQNode, TlsFiles
from tools.services.server import NotListening, ServiceError, free_port

register_profiles()


_MAX_ID_LENGTH = 80


def pytest_make_parametrize_id(val: object) -> str | None:
    """Use the values of parameters as ids where pytest would number them: `spec0`, `spec1`."""
    if not isinstance(val, dict | list | tuple | timedelta | BaseException | msgspec.Struct):
        return None
    text = str(val) if isinstance(val, timedelta) else repr(val)
    # Ids must be the same in every process, and an address is not.
    if " at 0x" in text:
        return None
    return text if len(text) <= _MAX_ID_LENGTH else text[:_MAX_ID_LENGTH] + "..."


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests that may restart a broker longer: its start alone may take three minutes on a slow machine."""
    for item in items:
        is_restarting = "private_rabbitmq" in getattr(item, "fixturenames", ())
        if is_restarting and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(400))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Iterator[None]:
    if call.excinfo is not None:
        call.excinfo = pytest.ExceptionInfo.from_exception(complete_line_numbers(call.excinfo.value))
    return (yield)


def pytest_collection_finish() -> None:
    """Exclude tests and modules from garbage collection: they stay until the end."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def rabbitmq_url() -> str:
    """The RabbitMQ that all tests share. Each test deletes what it creates."""
    try:
        rabbitmq.ping(RABBITMQ_PORT)
    except (NotListening, ServiceError) as error:
        pytest.fail(
            f"no RabbitMQ on port {RABBITMQ_PORT} ({error}): run `make test`, "
            "or `python -m tools.services rabbitmq -- pytest ...`"
        )
    return url_of(RABBITMQ_PORT)


@pytest.fixture
async def inbox(rabbitmq_url: str) -> AsyncIterator[Inbox]:
    """A durable fanout exchange for this test, with a durable queue."""
    async with open_inbox(rabbitmq_url) as box:
        yield box


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    """The certificate authority of the private node."""
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
    """A node that tests may stop. A test that stops it starts it again."""
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
    """The PostgreSQL server that all tests share, with a user that may create databases."""
    url = os.environ.get(POSTGRESQL_URL_VARIABLE)
    if not url:
        pytest.fail(
            f"no PostgreSQL: run `make test`, or `python -m tools.services postgresql -- pytest ...`, "
            f"or set {POSTGRESQL_URL_VARIABLE} to the URL of a server to create databases on"
        )
    return url


@pytest.fixture(scope="session")
def postgresql_database(postgresql_url: str) -> Iterator[str]:
    """A database for this session. Tests empty it before they use it."""
    with database(postgresql_url) as url:
        yield url


@pytest.fixture
def fresh_postgresql_database(postgresql_url: str) -> Iterator[str]:
    """An empty database for this test."""
    with database(postgresql_url) as url:
        yield url


@pytest.fixture(scope="session")
def private_postgresql() -> Iterator[PostgreSQLServer]:
    """A server that tests may stop. A test that stops it starts it again."""
    with postgresql.temporary_server() as server:
        yield server

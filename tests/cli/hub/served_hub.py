"""A hub's REST API on loopback, and commands against it."""

from __future__ import annotations

import json
from typing import Any, Self

from sentinel.cli.hub.command import hub as command
from sentinel.runtime.listening import Address
from sentinel.runtime.log import get_logger
from sentinel.web.server import Server
from tests.cli.client import serving
from tests.hub.rest.rest_hub import RestHub
from tests.web.rest_caller import ADMIN


class ServedHub(RestHub):
    """A hub whose REST API listens."""

    def __init__(self) -> None:
        super().__init__()
        self._server = Server(self.app, address=Address("127.0.0.1", 0), log=get_logger("test"))

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        await self._server.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.close()
        await super().__aexit__()

    @property
    def url(self) -> str:
        return f"http://{self._server.address}"

    async def run(self, *words: object, token: str = ADMIN, stdin: str = "") -> tuple[int, str, str]:
        """Run `sentinel hub` with these words; return its exit code, stdout and stderr."""
        environ = {"SENTINEL_SERVER": self.url, "SENTINEL_TOKEN": token}
        return await serving.run(command, *words, environ=environ, stdin=stdin)

    async def read(self, *words: object) -> Any:
        """Run a command that succeeds, and return its JSON."""
        code, output, errors = await self.run(*words, "--output", "json")
        assert code == 0, errors
        return json.loads(output)

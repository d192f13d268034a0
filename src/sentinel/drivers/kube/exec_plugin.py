"""Runs a credential plugin of a kubeconfig, such as `aws eks get-token` (client.authentication.k8s.io).

The plugin is a program that prints an `ExecCredential` with a token, a client certificate, or both. It runs
without a shell and without a terminal: a service cannot answer its questions. Its texts may contain secrets, so
only the first line of its error output is shown, redacted.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from sentinel.core.json import DECODE_ERRORS, Json
from sentinel.drivers.rest.responses import excerpt
from sentinel.ports.errors import Misconfigured
from sentinel.ports.kube import KubeUnavailable
from sentinel.runtime.secrets import Redactor, Secret, secrets_in_environment

API_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
TIMEOUT = timedelta(seconds=60)

_MAX_OUTPUT = 1024 * 1024
_STDOUT, _STDERR = 1, 2


class IssuedCredentials(msgspec.Struct, frozen=True):
    """What a plugin issued."""

    token: Secret
    certificate: str
    """PEM, or empty."""
    key: Secret
    expires_at: datetime | None


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: str | None = None


class _ExecCredential(msgspec.Struct, frozen=True, rename="camel"):
    kind: str = ""
    api_version: str = ""
    status: _Status | None = None


class ExecPlugin:
    """A credential plugin of a kubeconfig."""

    def __init__(
        self,
        *,
        name: str,
        command: str,
        arguments: tuple[str, ...] = (),
        variables: Mapping[str, str],
        environ: Mapping[str, str],
        api_version: str,
        cluster: Mapping[str, Json] | None = None,
        install_hint: str = "",
        timeout: timedelta = TIMEOUT,
    ) -> None:
        """`name` is shown in errors. `command` is a path, or a name that is looked up in PATH.

        `variables` are added to `environ`. `cluster` is told to the plugin if it asks for it.
        """
        self._name = name
        self._command = command
        self._arguments = arguments
        info: dict[str, Json] = {"interactive": False}
        if cluster is not None:
            info["cluster"] = dict(cluster)
        document = {"kind": "ExecCredential", "apiVersion": api_version, "spec": info}
        self._environment = {
            **environ,
            **variables,
            "KUBERNETES_EXEC_INFO": msgspec.json.encode(document).decode(),
        }
        self._secrets = tuple(secrets_in_environment(variables))
        self._api_version = api_version
        self._install_hint = install_hint
        self._timeout = timeout

    def find(self) -> Path:
        """Return the path of the program. Raises `Misconfigured` if it is not installed."""
        found = shutil.which(self._command, path=self._environment.get("PATH", os.defpath))
        if found is None:
            hint = f"; {excerpt(self._install_hint)}" if self._install_hint else ""
            raise Misconfigured(f"{self._name}: expected an installed program, got {self._command}{hint}")
        return Path(found)

    async def run(self, *, redact: Callable[[str], str]) -> IssuedCredentials:
        """Run the plugin. Raises `KubeUnavailable` if it fails, `Misconfigured` if it cannot work at all."""
        output = await self._execute(redact)
        try:
            credential = msgspec.json.decode(output, type=_ExecCredential)
        except DECODE_ERRORS:
            # Not the output itself: it may contain the token.
            raise Misconfigured(f"{self._name}: expected an ExecCredential in JSON, got something else") from None
        if credential.kind != "ExecCredential" or credential.api_version != self._api_version:
            got = excerpt(redact(f"{credential.kind} of {credential.api_version}"))
            raise Misconfigured(f"{self._name}: expected an ExecCredential of {self._api_version}, got {got}")
        return self._read_status(credential.status)

    def _read_status(self, status: _Status | None) -> IssuedCredentials:
        if status is None or not (status.token or status.client_certificate_data):
            raise Misconfigured(f"{self._name}: expected a token or a client certificate, got neither")
        certificate, key = status.client_certificate_data or "", status.client_key_data or ""
        if bool(certificate) != bool(key):
            raise Misconfigured(f"{self._name}: expected a client certificate and its key, got only one of them")
        expires_at = None
        if status.expiration_timestamp:
            try:
                expires_at = msgspec.convert(status.expiration_timestamp, datetime, strict=False)
            except msgspec.ValidationError:
                expires_at = None
            if expires_at is None or expires_at.tzinfo is None:
                text = excerpt(status.expiration_timestamp)
                raise Misconfigured(f"{self._name}: expirationTimestamp: expected an RFC 3339 time, got {text!r}")
        return IssuedCredentials(Secret(status.token or ""), certificate, Secret(key), expires_at)

    async def _execute(self, redact: Callable[[str], str]) -> bytes:
        loop = asyncio.get_running_loop()
        starting = asyncio.ensure_future(
            loop.subprocess_exec(
                lambda: _PluginProcess(loop.create_future()),
                self.find(),
                *self._arguments,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # a process group to kill, and no terminal to ask on
            )
        )
        try:
            # Not cancelled with us: asyncio would kill the plugin alone, and wait for its children.
            await asyncio.wait({starting})
            transport, process = starting.result()
            async with asyncio.timeout(self._timeout.total_seconds()):
                await asyncio.shield(process.finished)
        except TimeoutError:
            text = f"{self._name}: {self._command} did not finish within {self._timeout.total_seconds():.3g} s"
            raise KubeUnavailable(text) from None
        except OSError as error:
            raise Misconfigured(f"{self._name}: {self._command}: {error.strerror or error}") from error
        finally:
            await _end(starting)
        output, problems, code = process.output[_STDOUT], process.output[_STDERR], transport.get_returncode()
        if code != 0:
            line = next((line for line in problems.decode("utf-8", "replace").splitlines() if line.strip()), "")
            detail = excerpt(redact(Redactor(self._secrets).redact(line)))
            text = f"{self._name}: {self._command} ended with exit code {code}"
            raise KubeUnavailable(f"{text}: {detail}" if detail else text)
        if len(output) > _MAX_OUTPUT:
            raise Misconfigured(f"{self._name}: expected at most {_MAX_OUTPUT} bytes of output, got more")
        return bytes(output)


class _PluginProcess(asyncio.SubprocessProtocol):
    """Reads all output, so that the plugin never blocks, but keeps only as much as can be used."""

    def __init__(self, finished: asyncio.Future[None]) -> None:
        self.finished = finished
        """Done when the process has exited and its output is closed."""
        self.output = {_STDOUT: bytearray(), _STDERR: bytearray()}

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if len(self.output[fd]) <= _MAX_OUTPUT:
            self.output[fd] += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.finished.set_result(None)


async def _end(starting: asyncio.Future[tuple[asyncio.SubprocessTransport, _PluginProcess]]) -> None:
    """End the plugin and the processes that it started, if they still run."""
    await asyncio.wait({starting})
    if starting.exception() is not None:
        return
    transport, process = starting.result()
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(transport.get_pid(), signal.SIGKILL)
    transport.close()
    await process.finished

"""Credential plugins, which are small shell scripts here."""

from __future__ import annotations

import asyncio
import os
import traceback
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
import trustme

from sentinel.drivers.kube.access import find_access
from sentinel.drivers.kube.client import KubeClient
from sentinel.drivers.kube.exec_plugin import ExecPlugin
from sentinel.ports.errors import Misconfigured
from sentinel.ports.kube import KubeUnavailable, Unauthorized
from tests.drivers.kube.api_server import ApiServer, Exchange, reply_error
from tests.drivers.kube.conftest import MakeClient
from tests.drivers.kube.kinds import NAMESPACE
from tests.drivers.kube.kubeconfigs import encoded, server_context, write_kubeconfig

V1 = "client.authentication.k8s.io/v1"
V1_BETA1 = "client.authentication.k8s.io/v1beta1"
SECRET = "very-secret-77"
NOW = datetime(2030, 1, 1, tzinfo=UTC)


def credential(api_version: str = V1, **status: object) -> str:
    """What a plugin prints."""
    return msgspec.json.encode({"kind": "ExecCredential", "apiVersion": api_version, "status": status}).decode()


class Plugin:
    """A plugin that counts its runs and prints what a test has written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "plugin"
        self.write('echo "$@" >> "$0.runs"; echo "$KUBERNETES_EXEC_INFO" > "$0.info"; cat "$0.output"')

    def write(self, script: str) -> None:
        self.path.write_text(f"#!/bin/sh\n{script}\n")
        self.path.chmod(0o700)

    def prints(self, text: str) -> None:
        (self.folder / "plugin.output").write_text(text)

    @property
    def runs(self) -> list[str]:
        """The arguments of every run so far."""
        file = self.folder / "plugin.runs"
        return file.read_text().splitlines() if file.exists() else []

    @property
    def info(self) -> Mapping[str, object]:
        """What the last run was told."""
        return msgspec.json.decode((self.folder / "plugin.info").read_bytes(), type=dict[str, object])


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    return Plugin(tmp_path)


class PipeProtocol(asyncio.StreamReaderProtocol):
    def __init__(self, reader: asyncio.StreamReader) -> None:
        super().__init__(reader)
        self.closed = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.closed.set()


@pytest.fixture
async def pipe(plugin: Plugin) -> AsyncIterator[asyncio.StreamReader]:
    """A pipe that the plugin can open. It ends when all processes are gone that had it open."""
    path = plugin.folder / "plugin.pipe"
    os.mkfifo(path)
    reader = asyncio.StreamReader()
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb", 0)
    transport, protocol = await asyncio.get_running_loop().connect_read_pipe(lambda: PipeProtocol(reader), file)
    yield reader
    transport.close()
    await protocol.closed.wait()


Connect = Callable[..., KubeClient]


@pytest.fixture
def clock() -> list[datetime]:
    """The current time, as the only item."""
    return [NOW]


@pytest.fixture
def connect(
    server: ApiServer, plugin: Plugin, make_client: MakeClient, clock: list[datetime], tmp_path: Path
) -> Connect:
    """Connects by a kubeconfig with the plugin."""

    def connect(
        cluster: Mapping[str, object] | None = None,
        on_secret: Callable[[str], None] = lambda secret: None,
        **changes: object,
    ) -> KubeClient:
        settings = {"apiVersion": V1, "command": "./plugin", "interactiveMode": "Never", **changes}
        file = write_kubeconfig(
            tmp_path, cluster={"server": server.url, **(cluster or {})}, user={"exec": settings}
        )
        access = find_access(
            kubeconfig=file,
            environ={"PATH": os.environ["PATH"], "HOME": "/home/me"},
            on_secret=on_secret,
            now=lambda: clock[0],
        )
        return make_client(access)

    return connect


def tokens(server: ApiServer) -> list[str]:
    return [call.token.removeprefix("Bearer ") for call in server.calls]


async def failure(client: KubeClient) -> str:
    with pytest.raises(KubeUnavailable) as caught:
        await client.get(NAMESPACE, "east")
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    return str(caught.value)


class TestRuns:
    @pytest.mark.parametrize("api_version", [V1, V1_BETA1])
    async def test_the_issued_token_is_used_until_it_expires(
        self, server: ApiServer, plugin: Plugin, connect: Connect, api_version: str
    ) -> None:
        plugin.prints(credential(api_version, token="first"))
        client = connect(apiVersion=api_version, args=["get-token", "a b"])

        await client.get(NAMESPACE, "east")
        await client.get(NAMESPACE, "east")

        assert tokens(server) == ["first", "first"]
        assert plugin.runs == ["get-token a b"]
        assert plugin.info == {
            "kind": "ExecCredential",
            "apiVersion": api_version,
            "spec": {"interactive": False},
        }

    async def test_a_program_is_found_in_the_path_and_gets_variables(
        self, server: ApiServer, connect: Connect
    ) -> None:
        text = credential(token="$GIVEN")
        script = f'test "$HOME" = /home/me || exit 3; cat <<EOF\n{text}\nEOF\n'

        await connect(command="sh", args=["-c", script], env=[{"name": "GIVEN", "value": "from-a-variable"}]).get(
            NAMESPACE, "east"
        )

        assert tokens(server) == ["from-a-variable"]

    async def test_an_argument_is_not_read_by_a_shell(
        self, server: ApiServer, plugin: Plugin, connect: Connect
    ) -> None:
        plugin.prints(credential(token="first"))

        await connect(args=["$(id); `id`"]).get(NAMESPACE, "east")

        assert plugin.runs == ["$(id); `id`"]

    async def test_the_cluster_is_described_on_request(
        self, server: ApiServer, plugin: Plugin, connect: Connect
    ) -> None:
        plugin.prints(credential(token="first"))
        extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x", "retries": 3}}
        cluster = {"tls-server-name": "kubernetes", "extensions": [{"name": "other"}, extension]}
        client = connect(cluster, provideClusterInfo=True)

        await client.get(NAMESPACE, "east")

        spec = plugin.info["spec"]
        assert spec == {
            "interactive": False,
            "cluster": {
                "server": server.url,
                "tls-server-name": "kubernetes",
                "config": {"audience": "x", "retries": 3},
            },
        }

    async def test_a_plugin_has_nothing_to_read(self, server: ApiServer, plugin: Plugin, connect: Connect) -> None:
        plugin.write(f"read answer && exit 3; printf '%s' '{credential(token='without-an-answer')}'")

        await connect(interactiveMode="IfAvailable").get(NAMESPACE, "east")

        assert tokens(server) == ["without-an-answer"]

    async def test_concurrent_calls_run_the_plugin_once(
        self, server: ApiServer, plugin: Plugin, connect: Connect
    ) -> None:
        plugin.prints(credential(token="first"))
        client = connect()

        await asyncio.gather(*(client.get(NAMESPACE, "east") for _ in range(10)))

        assert len(plugin.runs) == 1
        assert tokens(server) == ["first"] * 10

    async def test_an_issued_token_is_told_to_the_log(self, plugin: Plugin, connect: Connect) -> None:
        plugin.prints(credential(token=SECRET))
        secrets: list[str] = []

        await connect(on_secret=secrets.append).get(NAMESPACE, "east")

        assert secrets == [SECRET]


class TestCertificates:
    @pytest.fixture
    def authority(self) -> trustme.CA:
        return trustme.CA()

    @pytest.fixture
    async def server(self, authority: trustme.CA) -> AsyncIterator[ApiServer]:
        async with ApiServer(tls=server_context(authority, "127.0.0.1")) as running:
            yield running

    async def test_an_issued_certificate_is_presented_and_replaced(
        self, server: ApiServer, authority: trustme.CA, plugin: Plugin, connect: Connect, clock: list[datetime]
    ) -> None:
        def issue(name: str) -> None:
            issued = authority.issue_cert(f"{name}@example.com", common_name=name)
            plugin.prints(
                credential(
                    clientCertificateData=issued.cert_chain_pems[0].bytes().decode(),
                    clientKeyData=issued.private_key_pem.bytes().decode(),
                    expirationTimestamp="2030-01-01T01:00:00Z",
                )
            )

        issue("first")
        client = connect({"certificate-authority-data": encoded(authority.cert_pem)})

        await client.get(NAMESPACE, "east")
        issue("second")
        await client.get(NAMESPACE, "east")
        clock[0] += timedelta(hours=1)
        await client.get(NAMESPACE, "east")

        assert [call.client_name for call in server.calls] == ["first", "first", "second"]
        assert tokens(server) == ["", "", ""]


class TestRenewal:
    @pytest.mark.parametrize(
        ("lives_for", "is_renewed_after"),
        [
            (timedelta(hours=1), timedelta(minutes=59, seconds=30)),
            (timedelta(seconds=10), timedelta(seconds=5)),
            (timedelta(seconds=-5), timedelta(0)),
        ],
    )
    async def test_a_token_is_renewed_shortly_before_it_expires(
        self,
        server: ApiServer,
        plugin: Plugin,
        connect: Connect,
        clock: list[datetime],
        lives_for: timedelta,
        is_renewed_after: timedelta,
    ) -> None:
        plugin.prints(credential(token="first", expirationTimestamp=(NOW + lives_for).isoformat()))
        client = connect()

        await client.get(NAMESPACE, "east")
        plugin.prints(credential(token="second"))
        if is_renewed_after:
            clock[0] = NOW + is_renewed_after - timedelta(seconds=1)
            await client.get(NAMESPACE, "east")
            assert tokens(server) == ["first", "first"]
        clock[0] = NOW + is_renewed_after
        await client.get(NAMESPACE, "east")

        assert tokens(server)[-1] == "second"
        assert len(plugin.runs) == 2

    @pytest.mark.parametrize(
        ("script", "problem"), [("exit 1", "ended with exit code 1"), ("echo x", "expected an ExecCredential")]
    )
    async def test_a_token_stays_in_use_while_it_is_valid_and_renewal_fails(
        self,
        server: ApiServer,
        plugin: Plugin,
        connect: Connect,
        clock: list[datetime],
        script: str,
        problem: str,
    ) -> None:
        plugin.prints(credential(token="first", expirationTimestamp="2030-01-01T01:00:00Z"))
        client = connect()
        await client.get(NAMESPACE, "east")
        plugin.write(script)

        clock[0] = NOW + timedelta(minutes=59, seconds=59)
        await client.get(NAMESPACE, "east")
        clock[0] = NOW + timedelta(hours=1)

        assert problem in await failure(client)
        assert tokens(server) == ["first", "first"]

    @pytest.fixture
    async def outdated(self, plugin: Plugin, connect: Connect) -> KubeClient:
        """A client with the first token, while the plugin prints the second."""
        plugin.prints(credential(token="first"))
        client = connect()
        await client.get(NAMESPACE, "east")
        plugin.prints(credential(token="second"))
        return client

    async def test_a_refused_token_is_renewed_once(
        self, server: ApiServer, plugin: Plugin, outdated: KubeClient
    ) -> None:
        async def script(exchange: Exchange) -> None:
            await exchange.respond({}, status=200 if exchange.call.token == "Bearer second" else 401)

        server.script = script

        await outdated.get(NAMESPACE, "east")

        assert tokens(server) == ["first", "first", "second"]
        assert len(plugin.runs) == 2

    async def test_a_token_that_stays_refused_is_unauthorized(
        self, server: ApiServer, plugin: Plugin, connect: Connect
    ) -> None:
        plugin.prints(credential(token="first"))
        server.script = reply_error(401, "Unauthorized", "unknown")

        with pytest.raises(Unauthorized, match=r"^unknown$"):
            await connect().get(NAMESPACE, "east")

        assert (len(server.calls), len(plugin.runs)) == (2, 2)

    async def test_calls_refused_together_run_the_plugin_once(
        self, server: ApiServer, plugin: Plugin, outdated: KubeClient
    ) -> None:
        all_refused = asyncio.Barrier(5)

        async def script(exchange: Exchange) -> None:
            if exchange.call.token == "Bearer first":
                await all_refused.wait()
                await exchange.respond({}, status=401)
            else:
                await exchange.respond({})

        server.script = script

        await asyncio.gather(*(outdated.get(NAMESPACE, "east") for _ in range(5)))

        assert len(plugin.runs) == 2


class TestFailures:
    async def test_the_first_line_of_the_error_output_is_shown_without_secrets(
        self, server: ApiServer, plugin: Plugin, connect: Connect
    ) -> None:
        plugin.write('echo >&2; echo "no session for $API_TOKEN, log in" >&2; echo "more" >&2; exit 7')

        text = await failure(connect(env=[{"name": "API_TOKEN", "value": SECRET}]))

        assert text.endswith(
            f"users[me].user.exec.command: {plugin.path} ended with exit code 7: no session for ***, log in"
        )
        assert text.startswith(f"{plugin.folder / 'config'}:1:")
        assert server.calls == []

    async def test_a_failure_is_tried_again_by_the_next_call(
        self, server: ApiServer, plugin: Plugin, connect: Connect
    ) -> None:
        works = plugin.path.read_text()
        plugin.write("exit 1")
        client = connect()
        await failure(client)

        plugin.path.write_text(works)
        plugin.prints(credential(token="first"))
        await client.get(NAMESPACE, "east")

        assert tokens(server) == ["first"]

    @pytest.mark.parametrize(
        ("output", "problem"),
        [
            (f"token: {SECRET}", "expected an ExecCredential in JSON, got something else"),
            ("", "expected an ExecCredential in JSON, got something else"),
            ("x" * (1024 * 1024 + 1), "expected at most 1048576 bytes of output, got more"),
            (
                credential(V1_BETA1, token=SECRET),
                f"expected an ExecCredential of {V1}, got ExecCredential of {V1_BETA1}",
            ),
            (credential(), "expected a token or a client certificate, got neither"),
            (f'{{"kind":"ExecCredential","apiVersion":"{V1}"}}', "expected a token or a client certificate"),
            (credential(clientCertificateData="x"), "expected a client certificate and its key, got only one"),
            (
                credential(token=SECRET, clientKeyData="x"),
                "expected a client certificate and its key, got only one",
            ),
            (
                credential(token=SECRET, expirationTimestamp="soon"),
                "expirationTimestamp: expected an RFC 3339 time, got 'soon'",
            ),
            (
                credential(token=SECRET, expirationTimestamp="2030-01-01T00:00:00"),
                "expirationTimestamp: expected an RFC 3339 time",
            ),
            (credential(token="two words"), "token: expected only visible ASCII characters"),
            (
                credential(clientCertificateData="no PEM", clientKeyData=SECRET),
                "client certificate: expected a certificate and its unencrypted key in PEM, got something else",
            ),
        ],
        ids=lambda value: value[:60] if isinstance(value, str) else None,
    )
    async def test_output_that_is_no_credential_is_explained(
        self, plugin: Plugin, connect: Connect, output: str, problem: str, server: ApiServer
    ) -> None:
        server.url = server.url.replace("http:", "https:")  # for the certificate
        plugin.prints(output)

        assert problem in await failure(connect())
        assert server.calls == []

    async def test_a_plugin_has_a_timeout(self, plugin: Plugin) -> None:
        plugin.write("exec sleep 60")
        hanging = ExecPlugin(
            name="plugin",
            command=str(plugin.path),
            variables={},
            environ={"PATH": os.environ["PATH"]},
            api_version=V1,
            timeout=timedelta(milliseconds=50),
        )

        with pytest.raises(KubeUnavailable, match=r"plugin did not finish within 0\.05 s"):
            await hanging.run(redact=str)

    async def test_a_cancelled_call_kills_the_plugin_and_its_children(
        self, plugin: Plugin, connect: Connect, pipe: asyncio.StreamReader
    ) -> None:
        plugin.write('exec 3> "$0.pipe"; sleep 60 & echo started >&3; wait')
        call = asyncio.create_task(connect().get(NAMESPACE, "east"))

        async with asyncio.timeout(10):
            await pipe.readline()
            call.cancel()
            await asyncio.wait({call})
            rest = await pipe.read()

        assert call.cancelled()
        assert rest == b""

    async def test_a_file_that_is_no_program_is_explained(self, plugin: Plugin, connect: Connect) -> None:
        plugin.path.write_text("no program")

        assert (await failure(connect())).endswith(f"exec.command: {plugin.path}: Exec format error")

    def test_a_program_that_is_not_installed_is_named_at_once_with_a_hint(self, connect: Connect) -> None:
        with pytest.raises(
            Misconfigured, match=r"exec\.command: expected an installed program, got kubelogin; get it from x$"
        ):
            connect(command="kubelogin", installHint="get it\nfrom x")

    @pytest.mark.parametrize(
        ("changes", "problem"),
        [
            ({"interactiveMode": "Always"}, "interactiveMode: expected Never or IfAvailable, got Always"),
            ({"interactiveMode": "Maybe"}, 'expected Never, IfAvailable or Always, got "Maybe"'),
            (
                {"apiVersion": "client.authentication.k8s.io/v1alpha1"},
                f"apiVersion: expected {V1} or {V1_BETA1}, got",
            ),
            ({"apiVersion": ""}, "apiVersion: expected text, got nothing"),
            ({"command": ""}, "command: expected text, got nothing"),
            ({"args": [["x"]]}, r"args\[0\]: expected text, got a list"),
            ({"env": [{"value": "x"}]}, r"env\[0\].name: expected text, got nothing"),
            ({"provideClusterInfo": "perhaps"}, 'provideClusterInfo: expected true or false, got "perhaps"'),
        ],
    )
    def test_an_unusable_plugin_is_refused_at_once(
        self, connect: Connect, changes: Mapping[str, object], problem: str
    ) -> None:
        with pytest.raises(Misconfigured, match=problem):
            connect(**changes)

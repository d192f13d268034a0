"""Every way to authenticate, against a server with TLS."""

from __future__ import annotations

import base64
import os
import ssl
import traceback
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import trustme

from sentinel.drivers.kube.access import ClusterAccess, find_access
from sentinel.drivers.kube.client import KubeClient
from sentinel.drivers.kube.credentials import Credentials
from sentinel.drivers.rest.tls import TlsSettings
from sentinel.ports.errors import Misconfigured
from sentinel.ports.kube import KubeUnavailable, Unauthorized
from sentinel.runtime.secrets import Secret
from tests.drivers.kube.api_server import ApiServer, Exchange, Script, reply, reply_error
from tests.drivers.kube.conftest import MakeClient
from tests.drivers.kube.kinds import NAMESPACE
from tests.drivers.kube.kubeconfigs import encoded, server_context, write_kubeconfig
from tests.drivers.rest.http_proxy import HttpProxy

NAME = "kubernetes.example"
SECRET = "very-secret-77"
POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}

Connect = Callable[..., KubeClient]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
async def tls_server(authority: trustme.CA) -> AsyncIterator[ApiServer]:
    async with ApiServer(tls=server_context(authority, "127.0.0.1", NAME)) as running:
        yield running


@pytest.fixture
def connect(tls_server: ApiServer, authority: trustme.CA, make_client: MakeClient, tmp_path: Path) -> Connect:
    """Connects by a kubeconfig with this user and cluster."""

    def connect(
        user: dict[str, object] | None = None, cluster: dict[str, object] | None = None, **environ: str
    ) -> KubeClient:
        trusting: dict[str, object] = {"certificate-authority-data": encoded(authority.cert_pem)}
        file = write_kubeconfig(
            tmp_path,
            cluster={"server": tls_server.url, **(trusting if cluster is None else cluster)},
            user=user,
        )
        return make_client(find_access(kubeconfig=file, environ=environ))

    return connect


async def unavailable(client: KubeClient) -> str:
    with pytest.raises(KubeUnavailable) as caught:
        await client.get(NAMESPACE, "east")
    return str(caught.value)


class TokenFile:
    """A file with a token, which changes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rotate("first")

    def rotate(self, token: str) -> None:
        self.path.write_text(f"{token}\n")


@pytest.fixture
def token_file(tmp_path: Path) -> TokenFile:
    return TokenFile(tmp_path / "token")


def rotating(token_file: TokenFile, script: Script) -> Script:
    """A script that refuses the first token, rotates the file meanwhile, and follows another one afterwards."""

    async def rotate(exchange: Exchange) -> None:
        if exchange.call.token == "Bearer second":
            await script(exchange)
            return
        token_file.rotate("second")
        await exchange.respond({}, status=401)

    return rotate


class TestTokens:
    async def test_a_token_is_sent(self, tls_server: ApiServer, connect: Connect) -> None:
        await connect({"token": SECRET}).get(NAMESPACE, "east")

        assert tls_server.calls[0].token == f"Bearer {SECRET}"

    async def test_a_token_file_is_read_for_every_call(
        self, tls_server: ApiServer, connect: Connect, token_file: TokenFile
    ) -> None:
        client = connect({"tokenFile": token_file.path.name, "token": "ignored"})

        await client.get(NAMESPACE, "east")
        token_file.rotate("second")
        await client.get(NAMESPACE, "east")

        assert [call.token for call in tls_server.calls] == ["Bearer first", "Bearer second"]

    async def test_a_call_is_repeated_if_the_token_was_rotated_meanwhile(
        self, tls_server: ApiServer, connect: Connect, token_file: TokenFile
    ) -> None:
        tls_server.script = rotating(token_file, reply({"spec": 1}))

        assert await connect({"tokenFile": str(token_file.path)}).get(NAMESPACE, "east") == {"spec": 1}
        assert len(tls_server.calls) == 2

    async def test_a_watch_is_repeated_if_the_token_was_rotated_meanwhile(
        self, tls_server: ApiServer, connect: Connect, token_file: TokenFile
    ) -> None:
        async def stream_nothing(exchange: Exchange) -> None:
            await exchange.begin_stream()
            await exchange.end()

        tls_server.script = rotating(token_file, stream_nothing)

        events = connect({"tokenFile": str(token_file.path)}).watch(NAMESPACE, resource_version="1")

        assert [event async for event in events] == []
        assert len(tls_server.calls) == 2

    async def test_a_token_that_stays_refused_is_unauthorized(
        self, tls_server: ApiServer, connect: Connect
    ) -> None:
        tls_server.script = reply_error(401, "Unauthorized", f"unknown token {SECRET}")
        client = connect({"token": SECRET})

        with pytest.raises(Unauthorized, match=r"^unknown token \*\*\*$") as caught:
            await client.get(NAMESPACE, "east")

        assert len(tls_server.calls) == 1
        assert SECRET not in "".join(traceback.format_exception(caught.value))

    async def test_a_token_rotated_at_every_call_is_refused_at_last(
        self, tls_server: ApiServer, connect: Connect, token_file: TokenFile
    ) -> None:
        async def script(exchange: Exchange) -> None:
            token_file.rotate(str(len(tls_server.calls)))
            await exchange.respond({}, status=401)

        tls_server.script = script

        with pytest.raises(Unauthorized):
            await connect({"tokenFile": str(token_file.path)}).get(NAMESPACE, "east")

        assert len(tls_server.calls) == 2

    async def test_a_vanished_token_file_is_unavailable(
        self, tls_server: ApiServer, connect: Connect, token_file: TokenFile
    ) -> None:
        client = connect({"tokenFile": str(token_file.path)})
        token_file.path.unlink()

        assert await unavailable(client) == f"token_file {token_file.path}: No such file or directory"
        assert tls_server.calls == []


class TestPasswords:
    async def test_a_name_and_a_password_are_sent(self, tls_server: ApiServer, connect: Connect) -> None:
        await connect({"username": "me", "password": SECRET}).get(NAMESPACE, "east")

        credentials = base64.b64encode(f"me:{SECRET}".encode()).decode()
        assert tls_server.calls[0].token == f"Basic {credentials}"

    async def test_an_echoed_password_is_redacted(self, tls_server: ApiServer, connect: Connect) -> None:
        encoded_password = base64.b64encode(f"me:{SECRET}".encode()).decode()
        tls_server.script = reply_error(400, "BadRequest", f"what is {SECRET} or {encoded_password} or so")
        client = connect({"username": "me", "password": SECRET})

        with pytest.raises(Exception, match=r"^what is \*\*\* or \*\*\* or so$"):
            await client.get(NAMESPACE, "east")


class TestClientCertificates:
    @pytest.mark.parametrize("certificate_is_data", [False, True])
    @pytest.mark.parametrize("key_is_data", [False, True])
    async def test_a_certificate_is_presented(
        self,
        tls_server: ApiServer,
        connect: Connect,
        authority: trustme.CA,
        tmp_path: Path,
        certificate_is_data: bool,
        key_is_data: bool,
    ) -> None:
        issued = authority.issue_cert("me@example.com", common_name="developer")
        issued.cert_chain_pems[0].write_to_path(str(tmp_path / "me.crt"))
        issued.private_key_pem.write_to_path(str(tmp_path / "me.key"))
        user = {
            **(
                {"client-certificate-data": encoded(issued.cert_chain_pems[0]), "client-certificate": "unused"}
                if certificate_is_data
                else {"client-certificate": "me.crt"}
            ),
            **(
                {"client-key-data": encoded(issued.private_key_pem), "client-key": "unused"}
                if key_is_data
                else {"client-key": "me.key"}
            ),
        }

        await connect(user).get(NAMESPACE, "east")

        assert tls_server.calls[0].client_name == "developer"
        assert tls_server.calls[0].token == ""

    async def test_a_renewed_certificate_is_presented_without_a_restart(
        self, tls_server: ApiServer, connect: Connect, authority: trustme.CA, tmp_path: Path
    ) -> None:
        file = tmp_path / "me.pem"
        authority.issue_cert("a@example.com", common_name="first").private_key_and_cert_chain_pem.write_to_path(
            str(file)
        )
        client = connect({"client-certificate": "me.pem", "client-key": "me.pem"})

        await client.get(NAMESPACE, "east")
        authority.issue_cert("b@example.com", common_name="second").private_key_and_cert_chain_pem.write_to_path(
            str(file)
        )
        await client.get(NAMESPACE, "east")

        assert [call.client_name for call in tls_server.calls] == ["first", "second"]

    async def test_a_refused_certificate_is_unavailable(
        self, authority: trustme.CA, make_client: MakeClient, tmp_path: Path
    ) -> None:
        context = server_context(authority, "127.0.0.1")
        context.verify_mode = ssl.CERT_REQUIRED
        async with ApiServer(tls=context) as server:
            file = write_kubeconfig(
                tmp_path,
                cluster={"server": server.url, "certificate-authority-data": encoded(authority.cert_pem)},
            )

            text = await unavailable(make_client(find_access(kubeconfig=file, environ={})))

        assert text.startswith(f"{server.url}: ")
        assert server.calls == []

    async def test_the_key_of_another_certificate_is_refused_at_once(
        self, connect: Connect, authority: trustme.CA
    ) -> None:
        first, second = authority.issue_cert("a@example.com"), authority.issue_cert("b@example.com")
        user = {
            "client-certificate-data": encoded(first.cert_chain_pems[0]),
            "client-key-data": encoded(second.private_key_pem),
        }

        with pytest.raises(
            Misconfigured,
            match=r'/config: context "dev": client certificate: expected the key of the certificate, got another',
        ):
            connect(user)


class TestServers:
    async def test_an_unknown_authority_is_not_trusted(self, tls_server: ApiServer, connect: Connect) -> None:
        text = await unavailable(connect({"token": SECRET}, {}))

        assert text.startswith(f"{tls_server.url}: its certificate is not trusted (")
        assert text.endswith("); check the cluster's certificate authority")
        assert tls_server.calls == []

    async def test_another_name_is_not_trusted(
        self, authority: trustme.CA, make_client: MakeClient, tmp_path: Path
    ) -> None:
        async with ApiServer(tls=server_context(authority, "other.example")) as server:
            file = write_kubeconfig(
                tmp_path,
                cluster={"server": server.url, "certificate-authority-data": encoded(authority.cert_pem)},
            )

            text = await unavailable(make_client(find_access(kubeconfig=file, environ={})))

        assert "IP address mismatch, certificate is not valid for '127.0.0.1'" in text

    async def test_tls_server_name_replaces_the_host(
        self, authority: trustme.CA, make_client: MakeClient, tmp_path: Path
    ) -> None:
        async with ApiServer(tls=server_context(authority, "other.example")) as server:
            cluster = {
                "server": server.url,
                "certificate-authority-data": encoded(authority.cert_pem),
                "tls-server-name": "other.example",
            }
            file = write_kubeconfig(tmp_path, cluster=cluster)

            assert await make_client(find_access(kubeconfig=file, environ={})).get(NAMESPACE, "east") == {}

    async def test_a_certificate_authority_may_be_a_file(
        self, connect: Connect, authority: trustme.CA, tmp_path: Path
    ) -> None:
        authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))

        assert await connect({}, {"certificate-authority": "ca.crt"}).get(NAMESPACE, "east") == {}

    async def test_an_insecure_cluster_is_not_verified(self, connect: Connect) -> None:
        assert await connect({}, {"insecure-skip-tls-verify": True}).get(NAMESPACE, "east") == {}

    async def test_a_replaced_authority_is_trusted_without_a_restart(
        self, tls_server: ApiServer, connect: Connect, authority: trustme.CA, tmp_path: Path
    ) -> None:
        trustme.CA().cert_pem.write_to_path(str(tmp_path / "ca.crt"))
        client = connect({}, {"certificate-authority": "ca.crt"})
        assert "not trusted" in await unavailable(client)

        authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))

        assert await client.get(NAMESPACE, "east") == {}

    async def test_a_refused_authority_is_read_again_though_it_looks_unchanged(
        self, connect: Connect, authority: trustme.CA, tmp_path: Path
    ) -> None:
        file = tmp_path / "ca.crt"
        file.write_bytes(trustme.CA().cert_pem.bytes().ljust(5000))
        client = connect({}, {"certificate-authority": "ca.crt"})
        status = file.stat()

        file.write_bytes(authority.cert_pem.bytes().ljust(5000))
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))

        assert "not trusted" in await unavailable(client)
        assert await client.get(NAMESPACE, "east") == {}

    async def test_proxy_url_is_used_also_for_loopback(
        self, tls_server: ApiServer, connect: Connect, authority: trustme.CA
    ) -> None:
        target = tls_server.url.removeprefix("https://")
        async with HttpProxy({target: tls_server.url}) as proxy:
            cluster: dict[str, object] = {
                "certificate-authority-data": encoded(authority.cert_pem),
                "proxy-url": f"http://me:{SECRET}@{proxy.address}",
            }
            client = connect({"token": "a-token"}, cluster, NO_PROXY="*")

            await client.get(NAMESPACE, "east")

            [proxied] = proxy.proxied
            assert (proxied.method, proxied.target) == ("CONNECT", target)
            assert "proxy-authorization" in proxied.headers
            assert "authorization" not in proxied.headers
            await client.close()


class TestServiceAccount:
    @pytest.fixture
    def folder(self, authority: trustme.CA, tmp_path: Path) -> Path:
        authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
        (tmp_path / "token").write_text("first")
        (tmp_path / "namespace").write_text("blue\n")
        return tmp_path

    @staticmethod
    def access(server: ApiServer, folder: Path) -> ClusterAccess:
        host, port = server.url.removeprefix("https://").split(":")
        environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
        return find_access(environ=environ, service_account=folder)

    async def test_a_pod_connects_as_its_service_account(
        self, tls_server: ApiServer, make_client: MakeClient, folder: Path
    ) -> None:
        access = self.access(tls_server, folder)
        client = make_client(access)

        await client.get(NAMESPACE, "east")
        (folder / "token").write_text("second")
        await client.get(NAMESPACE, "east")

        assert access.namespace == "blue"
        assert [call.token for call in tls_server.calls] == ["Bearer first", "Bearer second"]

    def test_an_address_of_ipv6_is_put_into_brackets(self, folder: Path) -> None:
        environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}

        assert find_access(environ=environ, service_account=folder).server == "https://[fd00::1]:443"

    def test_a_pod_without_a_namespace_file_uses_the_default(self, tls_server: ApiServer, folder: Path) -> None:
        (folder / "namespace").unlink()

        assert self.access(tls_server, folder).namespace == "default"

    def test_a_missing_authority_is_named_at_once(self, tls_server: ApiServer, folder: Path) -> None:
        (folder / "ca.crt").unlink()

        with pytest.raises(Misconfigured, match=r"ca_file .*/ca\.crt: No such file"):
            self.access(tls_server, folder)


class TestChoice:
    """Where the API server is looked for."""

    @pytest.fixture
    def folder(self, authority: trustme.CA, tmp_path: Path) -> Path:
        folder = tmp_path / "serviceaccount"
        folder.mkdir()
        authority.cert_pem.write_to_path(str(folder / "ca.crt"))
        (folder / "token").write_text("of-the-pod")
        return folder

    def test_a_named_kubeconfig_wins_in_a_pod(self, folder: Path, tmp_path: Path) -> None:
        file = write_kubeconfig(tmp_path, cluster={"server": "https://named"})
        environ = {**POD, "KUBECONFIG": str(file)}

        assert find_access(kubeconfig=file, environ=POD, service_account=folder).server == "https://named"
        assert find_access(environ=environ, service_account=folder).server == "https://named"

    def test_the_service_account_wins_over_the_home_folder(self, folder: Path, tmp_path: Path) -> None:
        (tmp_path / ".kube").mkdir()
        write_kubeconfig(tmp_path / ".kube", cluster={"server": "https://home"})
        environ = {"HOME": str(tmp_path)}

        assert find_access(environ={**environ, **POD}, service_account=folder).server == "https://10.0.0.1:443"
        assert find_access(environ=environ, service_account=folder).server == "https://home"
        assert (
            find_access(environ={**environ, **POD}, service_account=tmp_path / "missing").server == "https://home"
        )

    def test_without_anything_the_message_says_what_to_do(self, tmp_path: Path) -> None:
        with pytest.raises(Misconfigured, match="name a kubeconfig file with --kubeconfig or KUBECONFIG, or run"):
            find_access(environ={"HOME": str(tmp_path)}, service_account=tmp_path)

    def test_every_secret_is_told_to_the_log(self, authority: trustme.CA, tmp_path: Path) -> None:
        issued = authority.issue_cert("me@example.com")
        user = {
            "client-certificate-data": encoded(issued.cert_chain_pems[0]),
            "client-key-data": encoded(issued.private_key_pem),
            "token": SECRET,
        }
        secrets: list[str] = []

        find_access(
            kubeconfig=write_kubeconfig(tmp_path, cluster={"server": "https://x"}, user=user),
            environ={},
            on_secret=secrets.append,
        )

        assert list(dict.fromkeys(secrets)) == [issued.private_key_pem.bytes().decode(), SECRET]

    def test_a_key_counts_as_in_use_when_its_token_is_rotated(self, tmp_path: Path) -> None:
        secrets: list[str] = []
        token_file = tmp_path / "token"
        tls = TlsSettings(certificate_data="certificate", key_data=Secret("key"))
        credentials = Credentials(tls=tls, token_file=token_file, on_secret=secrets.append)

        for token in ("one", "two"):
            secrets.clear()
            token_file.write_text(token)
            credentials.token.read()

        assert secrets == ["key", "two"]

"""Run the fake API server as a process, for tests of other processes.

    python -m sentinel.testing.kube --kubeconfig fake.kubeconfig --object crd.json

It prints its URL and serves until SIGTERM or SIGINT.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import ssl
import sys
from pathlib import Path

import msgspec

from sentinel.ports.kube import KubeKind, KubeObject
from sentinel.testing.kube.access import KubeUser
from sentinel.testing.kube.kinds import BUILT_IN
from sentinel.testing.kube.server import FakeKubeServer


def main() -> None:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser(
        prog="python -m sentinel.testing.kube", description="A fake Kubernetes API server"
    )
    parser.add_argument("--port", type=int, default=0, help="the port on loopback; by default a free one")
    parser.add_argument("--kubeconfig", type=Path, help="write a kubeconfig for this server to this file")
    parser.add_argument("--namespace", default="", help="the namespace in the kubeconfig")
    parser.add_argument("--token", default="", help="require this bearer token, of an admin")
    parser.add_argument("--rbac", action="store_true", help="evaluate roles and bindings")
    parser.add_argument("--tls-cert", type=Path, help="serve HTTPS with this certificate chain")
    parser.add_argument("--tls-key", type=Path, help="the key of that certificate")
    parser.add_argument("--tls-ca", type=Path, help="the certificate authority to name in the kubeconfig")
    parser.add_argument(
        "--object",
        type=Path,
        action="append",
        default=[],
        help="create the object in this JSON file, such as a CustomResourceDefinition; may be repeated",
    )
    asyncio.run(_serve(parser.parse_args()))


async def _serve(options: argparse.Namespace) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    server = FakeKubeServer(
        tokens={options.token: KubeUser("admin", ("system:masters",))} if options.token else {},
        has_rbac=options.rbac,
        tls=_tls(options),
        certificate_authority=options.tls_ca,
        port=options.port,
    )
    for file in options.object:
        body: KubeObject = msgspec.json.decode(file.read_bytes())
        server.create(_built_in_kind(body, file), body)
    async with server:
        if options.kubeconfig is not None:
            options.kubeconfig.write_bytes(server.kubeconfig(token=options.token, namespace=options.namespace))
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        await stopping.wait()


def _tls(options: argparse.Namespace) -> ssl.SSLContext | None:
    if options.tls_cert is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(options.tls_cert, options.tls_key)
    return context


def _built_in_kind(body: KubeObject, file: Path) -> KubeKind:
    wanted = (body.get("apiVersion"), body.get("kind"))
    for served in BUILT_IN:
        if (served.kind.api_version, served.kind.kind) == wanted:
            return served.kind
    raise SystemExit(f"{file}: expected an object of a built-in kind, got {wanted[1]} of {wanted[0]}")


if __name__ == "__main__":
    main()

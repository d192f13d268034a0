"""What `config check` accepts at level 2, `sentinel proxy --test` accepts, too, if the machine has its files."""

from __future__ import annotations

from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import msgspec
import pytest
import trustme

from sentinel.core import kdl
from sentinel.core.proxy.check import check
from sentinel.core.proxy.matching import RouteTable
from sentinel.core.proxy.problem import Level
from sentinel.core.proxy.render import render
from sentinel.core.proxy.secrets import needed_secrets
from sentinel.proxy.configuration_file import LoadedConfiguration, load
from tests.core.proxy.configurations import PATTERN_TEXTS, WORDS, configurations
from tests.support.examples import examples

_IMPLEMENTED = ("listeners", "routes", "upstreams", "observability", "system")


_FILES = frozenset(("cert-file", "key-file", "ca-file", "client-cert", "client-key", "ca-cert"))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with one file that is a certificate, its key and its authority."""
    found = tmp_path_factory.mktemp("machine")
    issued = trustme.CA().issue_cert("127.0.0.1")
    (found / "all.pem").write_bytes(issued.private_key_and_cert_chain_pem.bytes())
    return found


def load_rendered(directory: Path, text: str) -> LoadedConfiguration:
    """Load a configuration as an agent hands it to the proxy: with paths instead of secrets."""
    needed = needed_secrets(kdl.parse(text).document)
    rendered = render(text, {str(each.reference): str(directory / "all.pem") for each in needed})
    assert rendered.text is not None
    file = directory / "proxy.kdl"
    file.write_text(rendered.text)
    return load(file)


def changed(data: st.DataObject, nodes: tuple[kdl.Node, ...]) -> tuple[kdl.Node, ...]:
    """Return the nodes with one of them, or one below, removed, repeated, or with another value."""
    candidates = [index for index, node in enumerate(nodes) if node.name not in _FILES | {"root"}]
    if not candidates:
        return nodes
    index = data.draw(st.sampled_from(candidates))
    node = nodes[index]
    goes_deeper: bool = node.children != () and data.draw(st.integers(0, 3)) > 0
    replaced: tuple[kdl.Node, ...]
    if goes_deeper:
        replaced = (msgspec.structs.replace(node, children=changed(data, node.children)),)
    else:
        scalars = st.booleans() | st.integers(-1, 70_000) | WORDS | PATTERN_TEXTS
        other = msgspec.structs.replace(node, arguments=(kdl.Value(data.draw(scalars)),))
        replaced = data.draw(st.sampled_from([(), (node, node), (other,)]))
    return (*nodes[:index], *replaced, *nodes[index + 1 :])


@hypothesis.given(data=st.data())
@hypothesis.settings(max_examples=examples(200))
def test_what_the_check_accepts_the_proxy_accepts(data: st.DataObject, directory: Path) -> None:
    files = dict.fromkeys(_FILES, str(directory / "all.pem")) | {"root": str(directory)}
    nodes = data.draw(configurations(files, _IMPLEMENTED)).nodes
    for _ in range(data.draw(st.integers(0, 2))):
        nodes = changed(data, nodes)
    text = kdl.print_document(kdl.Document(nodes))
    hypothesis.assume(check(kdl.parse(text), level=Level.SCHEMA).is_valid)

    loaded = load_rendered(directory, text)

    assert loaded.problems == ()
    assert loaded.configuration is not None
    RouteTable(loaded.configuration.routes)


def listener(more: str = "") -> str:
    return f'system; listeners {{ listener "web" {{ address "127.0.0.1:1"; {more} }} }}\n'


def route(match: str) -> str:
    return f'{listener()}routes {{ route "r" {{ matches {{ {match} }}; builtin-handler "health" }} }}'


def upstream(more: str) -> str:
    return f'{listener()}upstreams {{ upstream "u" {{ target "a:1"; {more} }} }}'


TLS = 'cert-file "PEM"; key-file "PEM"'
ACME = 'acme { email "a@b.test"; domains "b.test" }'


@pytest.mark.parametrize(
    "text",
    [
        listener(f"protocol https; tls {{ {TLS}; client-auth #true }}"),
        listener(f"protocol h2; tls {{ {TLS} }}"),
        listener(f"protocol h3; tls {{ {TLS} }}"),
        listener(f"protocol https; tls {{ {ACME} }}"),
        listener(f'protocol https; tls {{ {ACME}; cert-file "PEM" }}'),
        listener(f"tls {{ {TLS} }}"),
        listener('protocol https; tls { cert secret="a"; key vault="a#b" }'),
        route('path-regex #"\\p{L}"#'),
        route('path-regex "a**"'),
        upstream('tls { client-cert "PEM" }'),
        upstream('tls { cert secret="a" }'),
    ],
)
def test_what_the_small_proxy_cannot_do_is_no_reason_to_refuse(directory: Path, text: str) -> None:
    text = text.replace("PEM", str(directory / "all.pem"))
    assert check(kdl.parse(text), level=Level.SCHEMA).is_valid

    assert load_rendered(directory, text).problems == ()


@pytest.mark.parametrize(
    "text",
    [
        listener("protocol https"),
        listener('protocol https; tls { cert-file "/c" }'),
        route('path-regex "("'),
        route('header "X A"'),
    ],
)
def test_what_the_proxy_refuses_the_check_refuses(directory: Path, text: str) -> None:
    assert not check(kdl.parse(text), level=Level.SCHEMA).is_valid
    assert load_rendered(directory, text).problems != ()


def test_a_path_with_a_nul_character_is_a_problem(directory: Path) -> None:
    text = listener('protocol https; tls { cert-file "\\u{0}"; key-file "\\u{0}" }')

    (problem,) = load_rendered(directory, text).problems

    assert 'listener "web": cert-file and key-file' in problem

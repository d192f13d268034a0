"""What the proxy reads of a configuration with secrets."""

from __future__ import annotations

import hypothesis
from hypothesis import strategies as st

from sentinel.core import kdl
from sentinel.core.kdl import parse
from sentinel.core.proxy.render import render
from sentinel.core.proxy.secrets import needed_secrets, secret_uses
from tests.support.examples import examples

SOURCE = """\
// The certificate is in the hub.
listeners {
    listener "https" {
        tls {
            cert   secret="api-cert"   // until May
            key /* the other half */ vault = (path)#"secret/data/api/tls#key"#
            sni { hostnames "b.example"; "cert" env="B"; key \\
                env="B" }
        }
    }
}

upstreams {
    upstream "api" {
        tls { cert secret="old" secret="api-cert" x=1; key secret="api-key"; /-key secret="x" }
    }
}
"""
VALUES = {
    "secret:api-cert": "/s/api-cert",
    "secret:api-key": "/s/api key",
    "vault:secret/data/api/tls#key": '/s/"v"',
    "env:B": "/s/b",
}
RENDERED = """\
// The certificate is in the hub.
listeners {
    listener "https" {
        tls {
            cert-file   "/s/api-cert"   // until May
            key-file /* the other half */ "/s/\\"v\\""
            sni { hostnames "b.example"; cert-file "/s/b"; key-file \\
                "/s/b" }
        }
    }
}

upstreams {
    upstream "api" {
        tls { client-cert  "/s/api-cert" x=1; client-key "/s/api key"; /-key secret="x" }
    }
}
"""


def test_only_secrets_are_replaced_and_the_rest_stays_as_written() -> None:
    assert render(SOURCE, VALUES).text == RENDERED
    assert render(SOURCE.encode(), VALUES).text == RENDERED


def test_line_ends_and_a_byte_order_mark_stay() -> None:
    source = "\ufeff" + SOURCE.replace("\n", "\r\n")

    assert render(source, VALUES).text == "\ufeff" + RENDERED.replace("\n", "\r\n")


def test_a_secret_on_the_first_line_after_a_byte_order_mark_is_found() -> None:
    source = '\ufeffupstreams { upstream "a" { tls { key env="B" } } }'

    assert render(source, VALUES).text == '\ufeffupstreams { upstream "a" { tls { client-key "/s/b" } } }'


def test_missing_values_are_named_with_their_lines() -> None:
    rendered = render(SOURCE, {"secret:api-cert": "/s/api-cert"})

    assert rendered.text is None
    assert [(each.line, each.column, each.code) for each in rendered.problems] == [
        (6, 52, "missing-secret"),
        (7, 53, "missing-secret"),
        (8, 21, "missing-secret"),
        (15, 67, "missing-secret"),
    ]
    assert rendered.problems[0].message == "expected a value for vault:secret/data/api/tls#key, got none"


def test_what_is_not_a_reference_is_not_left_to_the_proxy() -> None:
    rendered = render('upstreams {\n upstream "a" { tls { key env="B" secret="c" { x } } }\n}', VALUES)

    assert rendered.text is None
    assert [(each.line, each.column) for each in rendered.problems] == [(2, 23)]
    assert rendered.problems[0].message == (
        'expected one of secret="…", env="…" and vault="path#field", got key env="B" secret="c"'
    )


def test_a_document_with_syntax_errors_is_not_rendered() -> None:
    rendered = render(b"system { auto-reload true }", {})

    assert rendered.text is None
    assert [each.code for each in rendered.problems] == ["bare-keyword"]


NAMES = st.sampled_from(["a", "b.c", '"', "ü"])
PATHS = st.text(st.characters(codec="utf-8"), max_size=6)
SPACES = st.sampled_from([" ", "  ", "\t", " /* c */ ", " \\\n ", "\\ // c\n"])
ENDS = st.sampled_from(["\n", ";", " // c\n", "\r\n", " /-x=1\n"])


@st.composite
def entries(draw: st.DrawFn) -> str:
    """Draw a `cert` or `key`, written in one of the many ways of KDL."""
    name = draw(st.sampled_from(["cert", "key", '"cert"', '#"key"#', "(t)cert"]))
    origin = draw(st.sampled_from(["secret", "env", "vault", '"secret"']))
    secret = draw(st.sampled_from("aB_")) if origin == "env" else draw(NAMES) + "#f" * (origin == "vault")
    written = kdl.print_value(kdl.Value(secret))
    equals = draw(st.sampled_from(["=", " = ", "=(t)", "= /* = */ ( t ) "]))
    hidden = draw(st.sampled_from(["", "/-x", '/-secret="y"']))
    return f"{name}{draw(SPACES)}{hidden}{draw(SPACES)}{origin}{equals}{written}{draw(ENDS)}"


@st.composite
def documents(draw: st.DrawFn) -> str:
    blocks = []
    for _ in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(["listener", "upstream"]))
        block = (
            f'{kind}s {{ {kind} "x" {{ // }}\n tls {{ {"".join(draw(st.lists(entries(), max_size=3)))} }} }} }}\n'
        )
        blocks.append(f'namespace "n" {{\n{block}}}\n' if draw(st.booleans()) else block)
    return draw(st.sampled_from(["", "\ufeff", "// c\n\n"])) + "".join(blocks)


@hypothesis.given(text=documents(), data=st.data())
@hypothesis.settings(max_examples=examples(200))
def test_every_rendered_text_is_valid_and_names_no_secret(text: str, data: st.DataObject) -> None:
    values = {str(needed.reference): data.draw(PATHS) for needed in needed_secrets(parse(text).document)}

    rendered = render(text, values).text

    assert rendered is not None
    parsed = parse(rendered)
    assert parsed.problems == ()
    assert list(secret_uses(parsed.document)) == []
    assert render(rendered, {}).text == rendered


@hypothesis.given(text=documents())
@hypothesis.settings(max_examples=examples(100))
def test_a_rendered_tree_differs_only_where_secrets_were(text: str) -> None:
    document = parse(text).document
    uses = {id(use.node): use for use in secret_uses(document)}
    keys = {"listener": ("cert-file", "key-file"), "upstream": ("client-cert", "client-key")}

    def expected(node: kdl.Node) -> kdl.Node:
        use = uses.get(id(node))
        if use is None:
            return kdl.Node(node.name, node.arguments, (), tuple(map(expected, node.children)), node.type)
        name = keys[use.block.owner.kind][node.name == "key"]
        return kdl.Node(name, (kdl.Value(f"/{use.reference}"),), (), (), node.type)

    rendered = render(text, {str(use.reference): f"/{use.reference}" for use in uses.values()}).text

    assert rendered is not None
    printed = kdl.print_document(kdl.Document(tuple(map(expected, document.nodes))))
    assert kdl.print_document(parse(rendered).document) == printed

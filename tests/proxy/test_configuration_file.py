"""A file is read with all its problems, including those of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from sentinel.proxy.configuration_file import load

EXAMPLE = Path(__file__).parents[2] / "examples" / "proxy.kdl"
VALID = """
system
listeners { listener "web" { address "127.0.0.1:8080" } }
"""


def write(directory: Path, text: str) -> Path:
    file = directory / "proxy.kdl"
    file.write_text(text)
    return file


def problems(directory: Path, text: str) -> tuple[str, ...]:
    return load(write(directory, text)).problems


def test_a_valid_file_has_no_problems(tmp_path: Path) -> None:
    loaded = load(write(tmp_path, VALID))

    assert loaded.problems == loaded.unimplemented == ()
    assert loaded.configuration is not None
    assert [listener.id for listener in loaded.configuration.listeners] == ["web"]


def test_the_example_is_implemented_and_stays_on_this_machine() -> None:
    loaded = load(EXAMPLE)

    assert loaded.problems == loaded.warnings == loaded.unimplemented == ()
    assert loaded.configuration is not None
    targets = [target for upstream in loaded.configuration.upstreams for target in upstream.targets]
    hosts = {listener.address.host for listener in loaded.configuration.listeners}
    hosts |= {target.address.host for target in targets}
    assert hosts == {"127.0.0.1"}
    assert loaded.configuration.metrics is not None
    assert loaded.configuration.metrics.address.host == "127.0.0.1"


def test_a_missing_file_is_a_problem(tmp_path: Path) -> None:
    loaded = load(tmp_path / "none.kdl")

    assert loaded.problems == (f"{tmp_path}/none.kdl: No such file or directory",)


def test_all_problems_of_syntax_and_schema_are_reported_with_their_place(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        """system { auto-reload true }
listeners { listener "web" { address "127.0.0.1:8080" } }
routes { route "r" { matches { path "/" }; upstream "missing" } }
""",
    )

    assert len(found) == 2
    assert found[0].startswith(f"{tmp_path}/proxy.kdl:1:22: ")
    assert found[1].startswith(f"{tmp_path}/proxy.kdl:3:")
    assert '"missing"' in found[1]


def test_warnings_do_not_forbid_the_file_and_what_is_ignored_is_named(tmp_path: Path) -> None:
    loaded = load(write(tmp_path, VALID + 'routes { route "r" { matches { path "/" }; websocket #true } }'))

    assert loaded.problems == ()
    assert any('route "r"' in warning or "route" in warning for warning in loaded.warnings)
    assert loaded.unimplemented == ("routes.route.websocket",)


def test_a_directory_that_this_machine_lacks_is_a_problem(tmp_path: Path) -> None:
    text = 'route "r" { matches { path "/" }; static-files { root "/nonexistent/www" } }'

    (found,) = problems(tmp_path, f"{VALID} routes {{ {text} }}")

    assert found.endswith('proxy.kdl: route "r": static-files: expected a directory, got /nonexistent/www')


def https(certificate: object, key: object, more: str = "") -> str:
    tls = f'tls {{ cert-file "{certificate}"; key-file "{key}"; {more} }}'
    return f'system; listeners {{ listener "web" {{ address "127.0.0.1:8443"; protocol "https"; {tls} }} }}'


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    issued = trustme.CA().issue_cert("127.0.0.1")
    files = tmp_path / "cert.pem", tmp_path / "key.pem"
    issued.cert_chain_pems[0].write_to_path(str(files[0]))
    issued.private_key_pem.write_to_path(str(files[1]))
    return files


def test_certificates_are_read(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    tls = f'ca-cert "{cert}"; client-cert "{cert}"; client-key "{key}"'
    upstream = f'upstreams {{ upstream "u" {{ target "a:1"; tls {{ {tls} }} }} }}'

    assert problems(tmp_path, https(cert, key, f'ca-file "{cert}"; client-auth #true')) == ()
    assert problems(tmp_path, VALID + upstream) == ()


def test_certificates_that_cannot_be_used_are_problems(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    other = tmp_path / "other.pem"
    trustme.CA().issue_cert("127.0.0.1").private_key_pem.write_to_path(str(other))

    assert "gone.pem: No such file" in problems(tmp_path, https(tmp_path / "gone.pem", key))[0]
    assert "expected a certificate and its key in PEM" in problems(tmp_path, https(cert, other))[0]
    assert (
        "expected certificates in PEM"
        in problems(tmp_path, https(cert, key, f'client-auth #true; ca-file "{key}"'))[0]
    )


@pytest.mark.parametrize(
    ("tls", "expected"),
    [
        ('client-cert "gone.pem"; client-key "key.pem"', "gone.pem: No"),
        ('ca-cert "gone.pem"', "gone.pem: No"),
    ],
)
def test_files_of_an_upstreams_tls_are_checked(tmp_path: Path, tls: str, expected: str) -> None:
    text = f'{VALID} upstreams {{ upstream "u" {{ target "a:1"; tls {{ {tls} }} }} }}'

    assert any(expected in problem for problem in problems(tmp_path, text))


def test_a_secret_that_no_agent_has_replaced_is_a_problem(tmp_path: Path) -> None:
    tls = 'tls { cert secret="c"\n key env="K" }'
    listener = f'listeners {{ listener "w" {{ address "127.0.0.1:1"; protocol https\n{tls} }} }}'
    upstream = 'upstreams { upstream "u" { target "a:1"; tls {\ncert vault="p#c"; key secret="k" } } }'

    found = problems(tmp_path, f"system; {listener}\n{upstream}")

    assert [problem.removeprefix(f"{tmp_path}/proxy.kdl:").split(" ")[:3] for problem in found] == [
        ["2:19:", "expected", "cert-file"],
        ["3:10:", "expected", "key-file"],
        ["5:12:", "expected", "client-cert"],
        ["5:30:", "expected", "client-key"],
    ]
    assert "got cert with a secret, which an agent replaces (write cert-file with the path of a file)" in found[0]


def test_what_the_syntax_only_warns_of_is_a_warning(tmp_path: Path) -> None:
    loaded = load(write(tmp_path, VALID.replace("system", "system { user web, }", 1)))

    assert loaded.problems == ()
    assert any("got a comma" in warning for warning in loaded.warnings)


def test_a_url_without_quotes_is_a_problem_that_names_the_comment(tmp_path: Path) -> None:
    tracing = "\nobservability { tracing { backend otlp { endpoint http://a.test\n } } }"

    problems = load(write(tmp_path, VALID + tracing)).problems

    assert len(problems) == 1
    assert "in which // starts a comment" in problems[0]


def test_a_port_offset_moves_the_listeners_up_to_the_last_port(tmp_path: Path) -> None:
    file = write(tmp_path, VALID)

    moved = load(file, port_offset=1000)
    beyond = load(file, port_offset=60_000)

    assert moved.configuration is not None
    assert moved.configuration.listeners[0].address.port == 9080
    assert beyond.configuration is None
    assert beyond.problems == (
        f'{file}: listener "web": expected at most port 65535 after adding the port offset, got 68080',
    )

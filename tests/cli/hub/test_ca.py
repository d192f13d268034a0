"""`sentinel hub ca`: its files, its output and its exit codes. The certificates are used in `test_hub_tls.py`."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sentinel.cli.hub.ca_folder import CaFolder
from sentinel.cli.main import cli
from sentinel.runtime import certificate_authority
from sentinel.runtime.certificate_authority import Subject

INIT = ("--host", "hub.example.com", "--host", "10.0.0.5", "--host", "::1", "--organization", "Acme Corp")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["hub", "ca", *map(str, arguments)])


def done(*arguments: object) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def data(*arguments: object) -> Any:
    return json.loads(done(*arguments, "--output", "json"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of an authority."""
    made = tmp_path / "ca"
    done("init", "--dir", made, *INIT)
    return made


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def name(found: x509.Certificate) -> str:
    return found.subject.rfc4514_string()


def usages(found: x509.Certificate) -> list[x509.ObjectIdentifier]:
    return list(found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)


def files_in(folder: Path) -> list[str]:
    return sorted(str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file())


def serials(path: Path) -> list[int]:
    return [int(line, 16) for line in path.read_text().splitlines()]


def days(found: x509.Certificate) -> float:
    return (found.not_valid_after_utc - datetime.now(UTC)) / timedelta(days=1)


# --- init --------------------------------------------------------------------------------------------------------


def test_init_makes_an_authority_and_a_certificate_for_the_hub(folder: Path) -> None:
    ca, hub = certificate(folder / "ca.crt"), certificate(folder / "hub.crt")

    assert files_in(folder) == ["ca.crt", "ca.key", "hub.crt", "hub.key", "issued", "revoked"]
    hub.verify_directly_issued_by(ca)
    assert ca.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert name(ca) == "CN=Sentinel Hub CA,O=Acme Corp"
    assert name(hub) == "CN=hub.example.com,OU=sentinel-hub,O=Acme Corp"
    assert usages(hub) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert (folder / "revoked").read_bytes() == b""


def test_the_hubs_certificate_has_its_host_names_and_ip_addresses(folder: Path) -> None:
    extensions = certificate(folder / "hub.crt").extensions

    names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value

    assert names.get_values_for_type(x509.DNSName) == ["hub.example.com"]
    assert [*map(str, names.get_values_for_type(x509.IPAddress))] == ["10.0.0.5", "::1"]


def test_only_the_owner_reads_keys_and_the_folder(folder: Path) -> None:
    done("issue", "edge-1", "--dir", folder)

    modes = {
        path: stat.S_IMODE((folder / path).stat().st_mode) for path in ("ca.key", "hub.key", "agents/edge-1.key")
    }

    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "agents").stat().st_mode) == 0o700


def test_keys_are_on_p256_and_fit_their_certificates(folder: Path) -> None:
    done("issue", "edge-1", "--dir", folder)

    for path in ("ca", "hub", "agents/edge-1"):
        key = serialization.load_pem_private_key((folder / f"{path}.key").read_bytes(), password=None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        assert isinstance(key.curve, ec.SECP256R1)
        assert certificate(folder / f"{path}.crt").public_key() == key.public_key()


def test_init_says_what_it_has_made(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "ca"

    lines = done("init", "--dir", folder, *INIT).splitlines()

    assert [line.partition(" valid until ")[0] for line in lines] == [
        f"{folder}/ca.crt: the authority,",
        f"{folder}/hub.crt: the hub, hub.example.com, 10.0.0.5, ::1,",
    ]


def test_init_as_json_has_files_serials_and_ends(tmp_path: Path) -> None:
    printed = data("init", "--dir", tmp_path, *INIT)

    hub = certificate(tmp_path / "hub.crt")
    assert (printed["organization"], printed["hosts"]) == ("Acme Corp", ["hub.example.com", "10.0.0.5", "::1"])
    assert printed["hub"] == {
        "certificate": str(tmp_path / "hub.crt"),
        "key": str(tmp_path / "hub.key"),
        "serial": f"{hub.serial_number:x}",
        "expires_time": f"{hub.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}",
    }
    assert printed["ca"]["key"] == str(tmp_path / "ca.key")


def test_the_days_of_both_certificates_can_be_chosen(tmp_path: Path) -> None:
    done("init", "--dir", tmp_path, *INIT, "--days", 30, "--ca-days", 100)

    assert 29.9 < days(certificate(tmp_path / "hub.crt")) <= 30
    assert 99.9 < days(certificate(tmp_path / "ca.crt")) <= 100


@pytest.mark.parametrize("existing", ["ca.crt", "ca.key", "hub.crt", "hub.key"])
def test_init_overwrites_nothing(tmp_path: Path, existing: str) -> None:
    (tmp_path / existing).write_text("mine")

    result = run("init", "--dir", tmp_path, *INIT)

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"error: {tmp_path / existing} exists; expected a folder without an authority\n"
    assert files_in(tmp_path) == [existing]
    assert (tmp_path / existing).read_text() == "mine"


def test_a_second_init_changes_nothing(folder: Path) -> None:
    before = {path: (folder / path).read_bytes() for path in files_in(folder)}

    result = run("init", "--dir", folder, *INIT)

    assert result.exit_code == 1
    assert {path: (folder / path).read_bytes() for path in files_in(folder)} == before


def test_init_keeps_a_list_of_revoked_serials(tmp_path: Path) -> None:
    (tmp_path / "revoked").write_text("3fa0\n")

    done("init", "--dir", tmp_path, *INIT)

    assert (tmp_path / "revoked").read_text() == "3fa0\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--host", "hub", "--organization", ""),
        ("--host", "hub", "--organization", " "),
        ("--host", "hub", "--organization", "a\nb"),
        ("--host", "hub", "--organization", "x" * 65),
        ("--organization", "Acme"),
        ("--host", "hub"),
        ("--host", "hub:9090", "--organization", "Acme"),
        ("--host", "https://hub", "--organization", "Acme"),
        ("--host", "", "--organization", "Acme"),
        ("--host", "hüb", "--organization", "Acme"),
        ("--host", "10.0.0.300", "--organization", "Acme"),
        ("--host", "[::1]", "--organization", "Acme"),
        ("--host", "hub.", "--organization", "Acme"),
        ("--host", "x" * 64, "--organization", "Acme"),
        ("--host", "hub", "--organization", "Acme", "--days", 0),
        ("--host", "hub", "--organization", "Acme", "--ca-days", 99_999),
    ],
)
def test_wrong_usage_exits_2_and_writes_nothing(tmp_path: Path, arguments: Sequence[object]) -> None:
    result = run("init", "--dir", tmp_path / "ca", *arguments)

    assert result.exit_code == 2
    assert not (tmp_path / "ca").exists()


def test_hosts_may_be_wildcards_long_and_repeated(tmp_path: Path) -> None:
    long = f"{'a' * 60}.{'b' * 60}.example.com"

    printed = data(
        "init", "--dir", tmp_path, "--host", long, "--host", "*.b", "--host", long, "--organization", "A"
    )

    assert printed["hosts"] == [long, "*.b"]
    assert (
        certificate(tmp_path / "hub.crt").subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == long[:64]
    )


# --- issue -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("instance", ["edge-1", ".hidden", "a~b_c.crt", "x" * 64])
def test_a_certificate_names_the_instance_and_is_for_clients(folder: Path, instance: str) -> None:
    done("issue", instance, "--dir", folder)

    issued = certificate(folder / "agents" / f"{instance}.crt")
    issued.verify_directly_issued_by(certificate(folder / "ca.crt"))
    assert name(issued) == f"CN={instance},OU=sentinel-agent,O=Acme Corp"
    assert usages(issued) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert not issued.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_issue_says_until_when_a_certificate_is_valid(folder: Path) -> None:
    printed = done("issue", "edge-1", "--dir", folder)

    issued = certificate(folder / "agents/edge-1.crt")
    assert printed == (
        f"{folder}/agents/edge-1.crt: edge-1, serial {issued.serial_number:x}, "
        f"valid until {issued.not_valid_after_utc:%Y-%m-%d %H:%M:%SZ}\n"
    )


def test_the_days_of_a_certificate_can_be_chosen(folder: Path) -> None:
    done("issue", "edge-1", "--dir", folder, "--days", 7)

    assert 6.9 < days(certificate(folder / "agents/edge-1.crt")) <= 7


def test_no_certificate_outlives_the_authority(tmp_path: Path) -> None:
    done("init", "--dir", tmp_path, *INIT, "--ca-days", 10)

    done("issue", "edge-1", "--dir", tmp_path)

    ends = {
        certificate(tmp_path / path).not_valid_after_utc for path in ("ca.crt", "hub.crt", "agents/edge-1.crt")
    }
    assert len(ends) == 1


def test_a_renewal_replaces_the_files_and_names_the_earlier_one(folder: Path) -> None:
    first = data("issue", "edge-1", "--dir", folder)
    data("issue", "edge-2", "--dir", folder)

    second = data("issue", "edge-1", "--dir", folder)
    text = done("issue", "edge-1", "--dir", folder)

    assert second["serial"] != first["serial"]
    assert second["earlier"] == [{"serial": first["serial"], "expires_time": first["expires_time"]}]
    assert [line.partition(" until ")[0] for line in text.splitlines()[1:]] == [
        f"the earlier certificate {each['serial']} stays valid" for each in (first, second)
    ]
    assert text.endswith(", unless it is revoked\n")
    assert (folder / "revoked").read_bytes() == b""


def test_an_earlier_certificate_that_is_revoked_is_not_named(folder: Path) -> None:
    data("issue", "edge-1", "--dir", folder)
    done("revoke", "edge-1", "--dir", folder)

    again = data("issue", "edge-1", "--dir", folder)

    assert again["earlier"] == []
    assert int(again["serial"], 16) not in serials(folder / "revoked")


@pytest.mark.parametrize("instance", ["", ".", "..", "../x", "a/b", "a\\b", "a b", "a\n", "é", "x" * 65, "x\0"])
@pytest.mark.parametrize("command", ["issue", "revoke"])
def test_an_unsafe_id_is_refused(folder: Path, command: str, instance: str) -> None:
    before = files_in(folder.parent)

    result = run(command, "--dir", folder, "--", instance)

    assert (result.exit_code, result.stdout) == (2, "")
    assert files_in(folder.parent) == before


def test_concurrent_issues_are_all_recorded(folder: Path) -> None:
    def issue(number: int) -> int:
        issued = CaFolder(folder).issue(f"edge-{number}", now=datetime.now(UTC), lifetime=timedelta(days=1))
        return issued.files.pair.serial

    with ThreadPoolExecutor(4) as threads:
        issued = list(threads.map(issue, range(32)))

    listed = data("list", "--dir", folder)["certificates"]
    assert sorted(int(each["serial"], 16) for each in listed) == sorted(issued)


@pytest.mark.parametrize(
    ("age", "problem"),
    [(timedelta(days=20), "the authority expires at"), (-timedelta(days=1), "is not valid yet")],
)
def test_an_authority_out_of_its_time_issues_nothing(folder: Path, age: timedelta, problem: str) -> None:
    now, lifetime = datetime.now(UTC) - age, timedelta(days=10)
    ca = certificate_authority.make_authority(Subject("CA", "Acme"), now=now, lifetime=lifetime)
    (folder / "ca.crt").write_bytes(ca.certificate_pem)
    (folder / "ca.key").write_bytes(ca.key_pem)

    result = run("issue", "edge-1", "--dir", folder)

    assert result.exit_code == 1
    assert f"{folder}/ca.crt: the authority" in result.stderr
    assert problem in result.stderr
    assert not (folder / "agents").exists()


@pytest.mark.parametrize("command", [("issue", "edge-1"), ("renew-hub",)])
@pytest.mark.parametrize("missing", ["ca.crt", "ca.key"])
def test_without_an_authority_nothing_is_issued(folder: Path, command: Sequence[str], missing: str) -> None:
    (folder / missing).unlink()

    result = run(*command, "--dir", folder)

    assert result.exit_code == 1
    assert result.stderr == f"error: {folder / missing} does not exist; run `sentinel hub ca init` first\n"


@pytest.mark.parametrize("content", [b"", b"nonsense", None], ids=["empty", "nonsense", "of another"])
@pytest.mark.parametrize("file", ["ca.crt", "ca.key"])
def test_an_authority_that_does_not_fit_is_an_error(folder: Path, file: str, content: bytes | None) -> None:
    if content is None:
        done("init", "--dir", folder.parent / "other", *INIT)
        content = (folder.parent / "other" / file).read_bytes()
    (folder / file).write_bytes(content)

    result = run("issue", "edge-1", "--dir", folder)

    assert result.exit_code == 1
    assert f"{folder}/ca.crt and {folder}/ca.key: expected a certificate and its key" in result.stderr


def test_an_agents_certificate_is_no_authority(folder: Path) -> None:
    done("issue", "edge-1", "--dir", folder)
    for suffix in ("crt", "key"):
        (folder / f"ca.{suffix}").write_bytes((folder / f"agents/edge-1.{suffix}").read_bytes())

    result = run("issue", "edge-2", "--dir", folder)

    assert result.exit_code == 1
    assert "not a self-signed CA certificate" in result.stderr


def test_a_certificate_is_recorded_before_its_files_are_written(folder: Path) -> None:
    (folder / "agents").write_text("in the way")

    result = run("issue", "edge-1", "--dir", folder)

    assert result.exit_code == 1
    assert f"{folder}/agents" in result.stderr
    assert [each["id"] for each in data("list", "--dir", folder)["certificates"]] == ["edge-1"]


# --- revoke ------------------------------------------------------------------------------------------------------


def test_revoke_revokes_every_certificate_of_the_id(folder: Path) -> None:
    mine = [data("issue", "edge-1", "--dir", folder)["serial"] for _ in range(2)]
    data("issue", "edge-10", "--dir", folder)

    printed = done("revoke", "edge-1", "--dir", folder)

    assert (folder / "revoked").read_text() == "".join(f"{serial}\n" for serial in mine)
    assert printed == "".join(f"{serial}: revoked\n" for serial in mine)


def test_revoking_again_adds_only_what_is_new(folder: Path) -> None:
    first = data("issue", "edge-1", "--dir", folder)["serial"]
    done("revoke", "edge-1", "--dir", folder)
    second = data("issue", "edge-1", "--dir", folder)["serial"]

    printed = data("revoke", "edge-1", "--dir", folder)
    again = done("revoke", "edge-1", "--dir", folder)

    assert printed == {"id": "edge-1", "revoked": [second], "revoked_before": [first]}
    assert again == f"{first}: was revoked before\n{second}: was revoked before\n"
    assert serials(folder / "revoked") == [int(first, 16), int(second, 16)]


def test_a_certificate_that_is_not_recorded_is_revoked_by_its_file(folder: Path) -> None:
    serial = data("issue", "edge-1", "--dir", folder)["serial"]
    (folder / "issued").unlink()
    (folder / "agents/edge-1.key").unlink()

    done("revoke", "edge-1", "--dir", folder)

    assert (folder / "revoked").read_text() == f"{serial}\n"


def test_a_damaged_certificate_keeps_nothing_from_being_revoked(folder: Path) -> None:
    serial = data("issue", "edge-1", "--dir", folder)["serial"]
    (folder / "agents/edge-1.crt").write_text("nonsense")

    done("revoke", "edge-1", "--dir", folder)

    assert (folder / "revoked").read_text() == f"{serial}\n"


def test_revoking_needs_no_key_of_the_authority(folder: Path) -> None:
    serial = data("issue", "edge-1", "--dir", folder)["serial"]
    (folder / "ca.key").unlink()
    (folder / "revoked").unlink()

    done("revoke", "edge-1", "--dir", folder)

    assert (folder / "revoked").read_text() == f"{serial}\n"


def test_an_id_without_certificates_cannot_be_revoked(folder: Path) -> None:
    result = run("revoke", "edge-1", "--dir", folder)

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"error: {folder}: no certificate was issued for edge-1\n"
    assert (folder / "revoked").read_bytes() == b""


@pytest.mark.parametrize(
    ("file", "content", "problem"),
    [
        ("revoked", "nonsense\n", "revoked:1: expected the serial"),
        ("issued", "3fa0 2026-01-01T00:00:00Z edge-2\n3fa1 soon edge-1\n", "issued:2: expected a serial"),
        ("issued", "xyz 2026-01-01T00:00:00Z edge-1\n", "issued:1: expected a serial"),
        ("issued", "\n", "issued:1: expected a serial"),
    ],
)
def test_a_damaged_file_is_named_and_kept(folder: Path, file: str, content: str, problem: str) -> None:
    done("issue", "edge-1", "--dir", folder)
    (folder / file).write_text(content)

    result = run("revoke", "edge-1", "--dir", folder)

    assert result.exit_code == 1
    assert problem in result.stderr
    assert (folder / file).read_text() == content


# --- renew-hub, list ---------------------------------------------------------------------------------------------


def test_the_hubs_new_certificate_keeps_its_hosts_and_gets_another_key(folder: Path) -> None:
    before = (folder / "hub.key").read_bytes()

    printed = data("renew-hub", "--dir", folder, "--days", 7)

    renewed = certificate(folder / "hub.crt")
    assert printed["hosts"] == ["hub.example.com", "10.0.0.5", "::1"]
    assert printed["serial"] == f"{renewed.serial_number:x}"
    assert (folder / "hub.key").read_bytes() != before
    assert name(renewed) == "CN=hub.example.com,OU=sentinel-hub,O=Acme Corp"
    assert 6.9 < days(renewed) <= 7
    renewed.verify_directly_issued_by(certificate(folder / "ca.crt"))


def test_the_hubs_hosts_can_be_changed(folder: Path) -> None:
    printed = done("renew-hub", "--dir", folder, "--host", "b.example.com", "--host", "10.0.0.6")

    assert printed.startswith(f"{folder}/hub.crt: the hub, b.example.com, 10.0.0.6, valid until ")


def test_a_hubs_certificate_without_hosts_needs_them(folder: Path) -> None:
    for suffix in ("crt", "key"):
        (folder / f"hub.{suffix}").write_bytes((folder / f"ca.{suffix}").read_bytes())

    result = run("renew-hub", "--dir", folder)

    assert result.exit_code == 1
    assert result.stderr == f"error: {folder}/hub.crt names no host; say which with --host\n"


def test_the_list_has_ids_serials_ends_and_states(folder: Path) -> None:
    one, two = (data("issue", instance, "--dir", folder) for instance in ("edge-1", "edge-2"))
    done("revoke", "edge-2", "--dir", folder)
    expired = "3fa0 2026-01-01T00:00:00Z edge-3\n"
    (folder / "issued").write_text((folder / "issued").read_text() + expired)

    printed = yaml.safe_load(done("list", "--dir", folder, "--output", "yaml"))["certificates"]
    lines = [line.split() for line in done("list", "--dir", folder).splitlines()]

    assert [(each["id"], each["serial"], each["state"]) for each in printed] == [
        ("edge-1", one["serial"], "valid"),
        ("edge-2", two["serial"], "revoked"),
        ("edge-3", "3fa0", "expired"),
    ]
    assert lines[0] == ["ID", "SERIAL", "EXPIRES", "STATE"]
    assert lines[3] == ["edge-3", "3fa0", "2026-01-01", "00:00:00Z", "expired"]


@pytest.mark.parametrize("command", [("issue", "a"), ("revoke", "a"), ("list",), ("renew-hub",)])
def test_a_folder_that_does_not_exist_is_an_error(tmp_path: Path, command: Sequence[str]) -> None:
    result = run(*command, "--dir", tmp_path / "absent")

    assert result.exit_code == 1
    assert result.stderr == f"error: {tmp_path / 'absent'}: no such file or directory\n"


def test_without_cryptography_the_error_names_the_extra(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['cryptography'] = None; from sentinel.cli.main import main;"
        f"main(['hub', 'ca', 'list', '--dir', {str(tmp_path)!r}])"
    )

    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert result.returncode == 2
    assert result.stderr.endswith("install fleet-sentinel[hub]\n")
    assert "Traceback" not in result.stderr

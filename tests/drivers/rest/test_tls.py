"""TLS contexts: what they are made of, and when they are made again."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from sentinel.drivers.rest.tls import Tls, TlsSettings
from sentinel.ports.errors import Misconfigured
from sentinel.runtime.secrets import Secret


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def issued(authority: trustme.CA) -> trustme.LeafCert:
    return authority.issue_cert("me@example.com")


@pytest.fixture
def temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def with_certificate(issued: trustme.LeafCert) -> TlsSettings:
    return TlsSettings(
        certificate_data=issued.cert_chain_pems[0].bytes().decode(),
        key_data=Secret(issued.private_key_pem.bytes().decode()),
    )


class TestContexts:
    def test_without_settings_the_default_context_is_used(self) -> None:
        assert TlsSettings().build_context() is True
        assert TlsSettings(server_name="x").build_context() is True

    def test_given_authorities_replace_those_of_the_system(self, authority: trustme.CA, tmp_path: Path) -> None:
        authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
        data = authority.cert_pem.bytes().decode()

        for settings in (TlsSettings(ca_file=tmp_path / "ca.pem"), TlsSettings(ca_data=data)):
            context = settings.build_context()
            assert isinstance(context, ssl.SSLContext)
            assert len(context.get_ca_certs()) == 1
            assert context.verify_mode is ssl.CERT_REQUIRED
            assert context.check_hostname

    def test_an_insecure_context_verifies_nothing(self) -> None:
        context = TlsSettings(is_insecure=True).build_context()

        assert isinstance(context, ssl.SSLContext)
        assert (context.verify_mode, context.check_hostname) == (ssl.CERT_NONE, False)

    @pytest.mark.parametrize("is_strict", [False, True])
    def test_only_a_strict_context_requires_key_identifiers(
        self, authority: trustme.CA, is_strict: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        create = ssl.create_default_context

        def create_as_python_3_13(*, cadata: str) -> ssl.SSLContext:
            created = create(cadata=cadata)
            created.verify_flags |= ssl.VERIFY_X509_STRICT
            return created

        monkeypatch.setattr(ssl, "create_default_context", create_as_python_3_13)

        context = TlsSettings(ca_data=authority.cert_pem.bytes().decode(), is_strict=is_strict).build_context()

        assert isinstance(context, ssl.SSLContext)
        assert bool(context.verify_flags & ssl.VERIFY_X509_STRICT) is is_strict

    def test_a_key_is_written_to_a_private_file_and_removed_at_once(
        self, issued: trustme.LeafCert, temporary_files: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        modes: list[int] = []
        load = ssl.SSLContext.load_cert_chain

        def record(context: ssl.SSLContext, certfile: Path, *more: object, **options: str) -> None:
            modes.append(stat.S_IMODE(certfile.stat().st_mode))
            load(context, certfile, *more, **options)  # type: ignore[arg-type]  # as it was called

        monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", record)

        with_certificate(issued).build_context()

        assert modes == [0o600]
        assert list(temporary_files.iterdir()) == []

    def test_a_key_is_removed_also_if_it_is_invalid(self, temporary_files: Path) -> None:
        with pytest.raises(Misconfigured):
            TlsSettings(certificate_data="x", key_data=Secret("y")).build_context()

        assert list(temporary_files.iterdir()) == []

    def test_an_encrypted_key_is_refused_without_a_question(self, issued: trustme.LeafCert) -> None:
        key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"a password"),
        )
        settings = TlsSettings(
            certificate_data=issued.cert_chain_pems[0].bytes().decode(), key_data=Secret(key.decode())
        )

        with pytest.raises(Misconfigured, match="expected a certificate and its unencrypted key in PEM"):
            settings.build_context()

    def test_a_missing_file_is_named(self, issued: trustme.LeafCert, tmp_path: Path) -> None:
        issued.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
        missing = tmp_path / "missing.pem"

        with pytest.raises(Misconfigured, match=rf"client certificate {missing} and .*key\.pem: No such file"):
            TlsSettings(certificate_file=missing, key_file=tmp_path / "key.pem").build_context()
        with pytest.raises(Misconfigured, match=f"client key {missing}: No such file"):
            TlsSettings(certificate_data="x", key_file=missing).build_context()
        with pytest.raises(Misconfigured, match="client key: expected data or a file, got neither"):
            TlsSettings(certificate_data="x").build_context()

    def test_without_a_folder_for_temporary_files_the_error_says_so(
        self, issued: trustme.LeafCert, temporary_files: Path
    ) -> None:
        temporary_files.rmdir()

        with pytest.raises(Misconfigured, match="expected a folder for temporary files: No such file"):
            with_certificate(issued).build_context()

    def test_settings_show_no_key(self) -> None:
        assert "very-secret" not in repr(TlsSettings(key_data=Secret("very-secret")))


class TestChanges:
    @pytest.fixture
    def ca_file(self, authority: trustme.CA, tmp_path: Path) -> Path:
        file = tmp_path / "ca.pem"
        authority.cert_pem.write_to_path(str(file))
        return file

    def test_unchanged_files_keep_the_context(self, ca_file: Path) -> None:
        tls = Tls(TlsSettings(ca_file=ca_file))

        assert tls.context() is tls.context()

    def test_a_changed_file_makes_a_new_context(self, ca_file: Path) -> None:
        tls = Tls(TlsSettings(ca_file=ca_file))
        before = tls.context()

        trustme.CA().cert_pem.write_to_path(str(ca_file))

        assert tls.context() is not before

    def test_a_changed_link_makes_a_new_context(self, ca_file: Path, tmp_path: Path) -> None:
        # Kubernetes replaces the files of a volume by replacing a link.
        link, next_link = tmp_path / "link", tmp_path / "next"
        link.symlink_to(ca_file)
        tls = Tls(TlsSettings(ca_file=link))
        before = tls.context()

        other = tmp_path / "other.pem"
        trustme.CA().cert_pem.write_to_path(str(other))
        next_link.symlink_to(other)
        next_link.rename(link)

        assert tls.context() is not before

    def test_an_invalid_change_leaves_the_context_in_use_until_it_is_discarded(self, ca_file: Path) -> None:
        tls = Tls(TlsSettings(ca_file=ca_file))
        before = tls.context()

        ca_file.write_text("half a file")
        assert tls.context() is before

        tls.discard()
        with pytest.raises(Misconfigured, match=f"ca_file {ca_file}: "):
            tls.context()

    def test_a_discarded_context_is_made_again(self, authority: trustme.CA) -> None:
        tls = Tls(TlsSettings(ca_data=authority.cert_pem.bytes().decode()))
        before = tls.context()

        tls.discard()

        assert tls.context() is not before

    def test_other_settings_make_a_new_context(self, issued: trustme.LeafCert, ca_file: Path) -> None:
        tls = Tls(TlsSettings(ca_file=ca_file))
        before = tls.context()

        tls.use(TlsSettings(ca_file=ca_file))
        assert tls.context() is before

        tls.use(with_certificate(issued))
        assert tls.context() is not before

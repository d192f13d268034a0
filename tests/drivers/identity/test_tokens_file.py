"""The tokens file: identification, validation, reloading and editing."""

from __future__ import annotations

import hashlib
import logging
import os
import stat
from pathlib import Path

import pytest
import yaml

from sentinel.core.access import Identity, Role
from sentinel.drivers.identity.token_editing import add_token, revoke_tokens
from sentinel.drivers.identity.tokens_file import TokensFile
from sentinel.ports.errors import Misconfigured
from sentinel.runtime.bearer_tokens import new_token
from tests.support.clocks import MonotonicSeconds


def sha256(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


VALID = f"""# who may do what
tokens:
  - {{name: ops, role: operator, sha256: {sha256("old")}}}   # leaves in spring
  - name: dns
    role: adapter
    adapter: dns
    sha256: {sha256("dns")}

  # rotated every month
  - {{name: ops, role: operator, sha256: {sha256("new").upper()}}}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "tokens.yaml"
    file.write_text(VALID)
    return file


@pytest.fixture
def clock() -> MonotonicSeconds:
    return MonotonicSeconds()


@pytest.fixture
def identities(path: Path, clock: MonotonicSeconds) -> TokensFile:
    return TokensFile(path, monotonic=clock)


def rewrite(path: Path, text: str) -> None:
    """Overwrite the file, with another modification time even on a file system with coarse times."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_text(text)
    os.utime(path, ns=(before + 10**9, before + 10**9))


def replace_unnoticeably(path: Path, text: str) -> None:
    """Replace the file by another of the same size and modification time."""
    stat = path.stat()
    other = path.with_name("other")
    other.write_text(text)
    os.utime(other, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    other.replace(path)


def text_of(path: Path) -> str:
    return path.read_text()


def error_of(path: Path, text: str) -> str:
    path.write_text(text)
    with pytest.raises(Misconfigured) as caught:
        TokensFile(path)
    return str(caught.value).replace(str(path), "F")


@pytest.mark.parametrize(
    ("token", "identity"),
    [
        ("old", Identity("ops", Role.OPERATOR)),
        ("new", Identity("ops", Role.OPERATOR)),
        ("dns", Identity("dns", Role.ADAPTER, "dns")),
        ("other", None),
        ("", None),
    ],
)
async def test_a_token_is_identified_by_its_hash(path: Path, token: str, identity: Identity | None) -> None:
    assert await TokensFile(path).identify(token) == identity


async def test_the_hash_itself_is_not_a_token(path: Path) -> None:
    assert await TokensFile(path).identify(sha256("old")) is None


@pytest.mark.parametrize("text", ["", "tokens: []\n", "# nothing yet\n"])
async def test_a_file_without_tokens_identifies_none(path: Path, text: str) -> None:
    rewrite(path, text)

    assert await TokensFile(path).identify("old") is None


ENTRY = f"sha256: {sha256('x')}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tokens: 5", 'F:1:9: tokens: expected a list of {name, role, adapter, sha256}, got "5"'),
        ("token: []", "F:1:1: token: unknown key; did you mean tokens?"),
        (f"tokens:\n  - {{name: a, role: viewer, {ENTRY}, x: 1}}", "tokens[0].x: unknown key"),
        (f"tokens:\n  - {{name: a, {ENTRY}}}", "F:2:5: tokens[0].role: required, but missing"),
        (f"tokens:\n  - {{name: a, role: root, {ENTRY}}}", "F:2:21: tokens[0].role: expected one of viewer"),
        (f"tokens:\n  - {{name: a b, role: viewer, {ENTRY}}}", "tokens[0].name: expected a name such as ops"),
        (
            f"tokens:\n  - {{name: anonymous, role: viewer, {ENTRY}}}",
            "tokens[0].name: expected a name such as ops",
        ),
        (f"tokens:\n  - {{name: a, role: adapter, {ENTRY}}}", "F:2:5: tokens[0].adapter: required for the role"),
        (
            f"tokens:\n  - {{name: a, role: viewer, adapter: dns, {ENTRY}}}",
            "F:2:38: tokens[0].adapter: expected it with the role adapter only, got the role viewer",
        ),
        (
            f"tokens:\n  - {{name: a, role: viewer, instance: edge-1, {ENTRY}}}",
            "F:2:39: tokens[0].instance: expected it with the role agent only, got the role viewer",
        ),
        (
            f"tokens:\n  - {{name: a, role: agent, instance: a/b, {ENTRY}}}",
            "F:2:38: tokens[0].instance: expected the id of an instance such as edge-1",
        ),
        (
            f"tokens:\n  - {{name: a, role: agent, adapter: dns, {ENTRY}}}",
            "tokens[0].adapter: expected it with the role adapter only, got the role agent",
        ),
        (
            f"tokens:\n  - {{name: a, role: viewer, {ENTRY}}}\n  - {{name: b, role: admin, {ENTRY}}}",
            "tokens[1].sha256: expected each token once, got it first as tokens[0]",
        ),
        ("tokens: [", "F:1:"),
    ],
)
def test_errors_in_a_file_have_their_location(path: Path, text: str, problem: str) -> None:
    assert problem in error_of(path, text)


def test_a_token_in_place_of_its_hash_is_not_quoted(path: Path) -> None:
    error = error_of(path, "tokens:\n  - {name: a, role: viewer, sha256: snt_my-secret-token}\n")

    assert "tokens[0].sha256: expected the SHA-256 of a token" in error
    assert "my-secret" not in error


def test_a_missing_file_is_an_error_at_startup(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="no such file"):
        TokensFile(tmp_path / "absent.yaml")


async def test_a_changed_file_is_reloaded_within_a_second(
    path: Path, clock: MonotonicSeconds, identities: TokensFile
) -> None:
    rewrite(path, f"tokens:\n  - {{name: eve, role: viewer, sha256: {sha256('eve')}}}\n")

    before = await identities.identify("eve"), await identities.identify("old")
    clock.now += 1
    after = await identities.identify("eve"), await identities.identify("old")

    assert before == (None, Identity("ops", Role.OPERATOR))
    assert after == (Identity("eve", Role.VIEWER), None)


async def test_a_replaced_file_of_equal_size_and_time_is_reloaded(
    path: Path, clock: MonotonicSeconds, identities: TokensFile
) -> None:
    replace_unnoticeably(path, VALID.replace(sha256("old"), sha256("eve")))

    clock.now += 1

    assert await identities.identify("eve") == Identity("ops", Role.OPERATOR)


async def test_an_invalid_file_is_logged_once_and_the_last_one_stays(
    path: Path, caplog: pytest.LogCaptureFixture, clock: MonotonicSeconds, identities: TokensFile
) -> None:
    rewrite(path, "tokens:\n  - {name: hunter2, role: root}\n")

    for _ in range(3):
        clock.now += 1
        assert await identities.identify("old") is not None

    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.WARNING, "tokens.unusable")
    assert "hunter2" not in str(record.__dict__["fields"])
    assert f"{path}:2:" in record.__dict__["fields"]["problem"]


async def test_the_tokens_of_a_deleted_file_stay_until_it_is_back(
    path: Path, caplog: pytest.LogCaptureFixture, clock: MonotonicSeconds, identities: TokensFile
) -> None:
    path.unlink()  # noqa: ASYNC240 - a test may block

    for _ in range(2):
        clock.now += 1
        assert await identities.identify("old") is not None
    assert len(caplog.records) == 1
    rewrite(path, "tokens: []\n")
    clock.now += 1

    assert await identities.identify("old") is None


def test_a_new_token_is_random_and_recognizable() -> None:
    tokens = {new_token() for _ in range(100)}

    assert len(tokens) == 100
    assert all(token.startswith("snt_") and len(token) == 47 for token in tokens)


async def test_adding_creates_a_file_that_only_its_owner_can_read(tmp_path: Path) -> None:
    path = tmp_path / "tokens.yaml"

    token = add_token(path, name="ops", role=Role.ADMIN)

    assert await TokensFile(path).identify(token) == Identity("ops", Role.ADMIN)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert token not in path.read_text()


async def test_adding_keeps_other_entries_comments_and_layout(path: Path) -> None:
    token = add_token(path, name="eve@example.com", role=Role.ADAPTER, adapter="dns")

    text = text_of(path)
    assert text.startswith(VALID)
    assert text.count("\n") == VALID.count("\n") + 1
    assert await TokensFile(path).identify(token) == Identity("eve@example.com", Role.ADAPTER, "dns")
    assert await TokensFile(path).identify("old") is not None


@pytest.mark.parametrize("instance", ["", "edge-1", "1e3", "null", "~x.y_z-"])
async def test_an_agents_token_may_be_for_one_instance(path: Path, instance: str) -> None:
    token = add_token(path, name="edge", role=Role.AGENT, instance=instance)

    assert text_of(path).startswith(VALID)
    assert await TokensFile(path).identify(token) == Identity("edge", Role.AGENT, instance=instance)


@pytest.mark.parametrize(
    ("role", "instance", "problem"),
    [
        (Role.ADMIN, "edge-1", "instance: expected it with the role agent only, got the role admin"),
        (Role.AGENT, "..", "instance: expected the id of an instance such as edge-1"),
        (Role.AGENT, "a" * 129, "instance: expected the id of an instance such as edge-1"),
    ],
)
def test_an_invalid_instance_is_not_written(path: Path, role: Role, instance: str, problem: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        add_token(path, name="edge", role=role, instance=instance)

    assert str(caught.value).startswith(problem)
    assert path.read_text() == VALID


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tokens: []\n",
        "# mine\n",
        f"tokens: [{{name: a, role: viewer, sha256: {sha256('a')}}}]",
        f"tokens:\n- name: a\n  role: viewer\n  sha256: {sha256('a')}",
        f'{{"tokens": [{{"name": "a", "role": "viewer", "sha256": "{sha256("a")}"}}]}}\n',
        f"tokens:\n    -\n      name: a\n      role: viewer\n      sha256: {sha256('a')}\n",
    ],
)
async def test_adding_works_for_any_layout_of_the_list(path: Path, text: str) -> None:
    rewrite(path, text)

    token = add_token(path, name="ops", role=Role.ADMIN)

    identities = TokensFile(path)
    assert await identities.identify(token) == Identity("ops", Role.ADMIN)
    assert (await identities.identify("a") is not None) is ("sha256" in text)


@pytest.mark.parametrize("name", ["1e3", "null", "true", "0x10", "123", "1.5", "a:b", "2026-01-01", "no"])
async def test_a_name_that_looks_like_another_yaml_type_stays_a_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / "tokens.yaml"

    token = add_token(path, name=name, role=Role.VIEWER)

    assert await TokensFile(path).identify(token) == Identity(name, Role.VIEWER)
    assert yaml.safe_load(path.read_text())["tokens"][0]["name"] == name


@pytest.mark.parametrize(
    ("name", "role", "adapter", "problem"),
    [
        ("", Role.VIEWER, "", "name: expected a name"),
        ("a\nb", Role.VIEWER, "", "name: expected a name"),
        ("anonymous", Role.ADMIN, "", "name: expected a name"),
        ("dns", Role.ADAPTER, "", "adapter: required for the role adapter"),
        ("ops", Role.ADMIN, "dns", "adapter: expected it with the role adapter only"),
        ("dns", Role.ADAPTER, "../x", "adapter: expected the name of an adapter"),
    ],
)
def test_an_invalid_entry_is_not_written(path: Path, name: str, role: Role, adapter: str, problem: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        add_token(path, name=name, role=role, adapter=adapter)

    assert str(caught.value).startswith(problem)
    assert path.read_text() == VALID


def test_an_invalid_file_is_not_overwritten(path: Path) -> None:
    path.write_text("tokens: {")

    with pytest.raises(Misconfigured):
        add_token(path, name="ops", role=Role.ADMIN)

    assert path.read_text() == "tokens: {"
    assert os.listdir(path.parent) == [path.name]  # noqa: PTH208  # no temporary file is left


def test_a_file_keeps_its_mode_without_access_for_others(path: Path) -> None:
    path.chmod(0o644)

    add_token(path, name="ops", role=Role.ADMIN)

    assert stat.S_IMODE(path.stat().st_mode) == 0o640


async def test_a_link_to_the_file_stays_a_link(path: Path) -> None:
    link = path.with_name("link.yaml")
    link.symlink_to(path.name)

    token = add_token(link, name="eve", role=Role.VIEWER)

    assert link.is_symlink()
    assert await TokensFile(path).identify(token) is not None


async def test_revoking_removes_matching_tokens_and_keeps_comments(path: Path) -> None:
    revoked = revoke_tokens(path, matches=lambda token: token.name == "dns")

    assert [token.name for token in revoked] == ["dns"]
    text = text_of(path)
    assert "# who may do what" in text
    assert "# leaves in spring" in text
    assert "# rotated every month" in text
    identities = TokensFile(path)
    assert await identities.identify("dns") is None
    assert await identities.identify("old") is not None
    assert await identities.identify("new") is not None


async def test_revoking_the_last_token_leaves_a_valid_empty_file(path: Path) -> None:
    revoke_tokens(path, matches=lambda token: True)

    assert await TokensFile(path).identify("old") is None


def test_revoking_nothing_changes_nothing(path: Path) -> None:
    before = path.stat()

    assert revoke_tokens(path, matches=lambda token: False) == []
    assert path.stat() == before


async def test_one_of_several_tokens_of_a_name_is_revoked(path: Path) -> None:
    revoked = revoke_tokens(path, matches=lambda token: token.sha256 == sha256("old"))

    assert len(revoked) == 1
    assert await TokensFile(path).identify("new") == Identity("ops", Role.OPERATOR)
    assert await TokensFile(path).identify("old") is None


def test_a_failed_write_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(OSError, match="No space left"):
        add_token(path, name="ops", role=Role.ADMIN)

    assert path.read_text() == VALID
    assert [file.name for file in path.parent.iterdir()] == [path.name]

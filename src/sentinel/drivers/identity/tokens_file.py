"""Bearer tokens in a file, which stores their hashes and owners.

A name may have several tokens, so that a new one can be handed out before the old one is revoked.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from sentinel.core.access import Identity, Role
from sentinel.core.fleet.reports import is_adapter_name
from sentinel.core.identity_names import NAME_EXPECTED, is_identity_name, is_instance_id
from sentinel.drivers.identity.file_watch import WatchedFile
from sentinel.ports.errors import Misconfigured
from sentinel.runtime.bearer_tokens import digest_of
from sentinel.runtime.log import Log, get_logger
from sentinel.runtime.settings.config_tree import ListNode, MappingNode, Node
from sentinel.runtime.settings.field_types import FieldType, InvalidValue
from sentinel.runtime.settings.report import Origin, SettingsProblem, file_origin, sorted_problems
from sentinel.runtime.settings.schema import StructList, section
from sentinel.runtime.settings.validation import Validation
from sentinel.runtime.settings.yaml_file import parse, read_text

_SHA256 = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)


def _check_name(value: str) -> str:
    if not is_identity_name(value):
        raise InvalidValue(NAME_EXPECTED)
    return value


def _check_adapter(value: str) -> str:
    if not is_adapter_name(value):
        raise InvalidValue
    return value


def _check_instance(value: str) -> str:
    if not is_instance_id(value):
        raise InvalidValue
    return value


def _check_digest(value: str) -> str:
    if _SHA256.fullmatch(value) is None:
        raise InvalidValue("64 hexadecimal digits; `sentinel token new` writes them")
    return value.lower()


class StoredToken(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of a tokens file."""

    name: Annotated[str, FieldType("a name such as ops", _check_name)]
    role: Role
    sha256: Annotated[str, FieldType("the SHA-256 of a token", _check_digest, is_secret=True)]
    """Secret, so that errors do not quote a token pasted here by mistake."""
    adapter: Annotated[str, FieldType("the name of an adapter such as dns", _check_adapter)] = ""
    instance: Annotated[str, FieldType("the id of an instance such as edge-1", _check_instance)] = ""

    @property
    def identity(self) -> Identity:
        return Identity(self.name, self.role, self.adapter, self.instance)


class TokensDocument(msgspec.Struct, frozen=True):
    """The schema of a tokens file."""

    tokens: Annotated[
        tuple[StoredToken, ...],
        StructList(section(StoredToken), expected="a list of {name, role, adapter, sha256}"),
    ] = ()


class ParsedTokens(msgspec.Struct, frozen=True):
    """The content of a tokens file, with what is needed to edit it."""

    text: str
    tokens: tuple[StoredToken, ...]
    lines: tuple[int, ...]
    """The first line of each token, counted from 1."""


class TokensFile:
    """`ports.identity.Identities` with a tokens file.

    A token that is added to the file or removed from it takes effect within about a second.
    """

    def __init__(
        self, path: Path, *, log: Log | None = None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """Raises `Misconfigured` if the file is invalid. If the file becomes invalid later, the tokens stay in
        use."""
        log = log or get_logger("tokens")
        self._tokens = WatchedFile(path, _load, log=log, event="tokens.unusable", monotonic=monotonic)

    async def identify(self, token: str) -> Identity | None:
        """Return the identity of this token.

        A dictionary lookup by hash, so that its cost does not grow with the file. Its timing can at most reveal
        something about a stored hash, from which no token can be derived.
        """
        return self._tokens.get().get(digest_of(token))


def read(path: Path) -> ParsedTokens:
    """Read a tokens file. Raises `Misconfigured` with all its problems."""
    text = read_text(path)
    if isinstance(text, SettingsProblem):
        raise Misconfigured(str(text))
    return parse_tokens(text, file_origin(path))


def parse_tokens(text: str, source: Origin) -> ParsedTokens:
    """Parse the text of a tokens file. Raises `Misconfigured` with all its problems, located in `source`."""
    root, problems = parse(text, source)
    validation = Validation(environ={}, is_partial=bool(problems))
    validation.problems.extend(problems)
    if root is None and not problems:
        root = MappingNode((), source)
    document = None if root is None else section(TokensDocument).read(root, "", source, validation)
    if isinstance(root, MappingNode) and isinstance(document, TokensDocument):
        items = _items(root)
        for index, field, message in _inconsistencies(document.tokens):
            validation.reject(_location(items[index], field), f"tokens[{index}].{field}", message)
        if not validation.problems:
            return ParsedTokens(text, document.tokens, tuple(item.at.line for item in items))
    raise Misconfigured("\n".join(str(problem) for problem in sorted_problems(validation.problems)))


def _load(path: Path) -> dict[bytes, Identity]:
    return {bytes.fromhex(token.sha256): token.identity for token in read(path).tokens}


def _inconsistencies(tokens: tuple[StoredToken, ...]) -> Iterator[tuple[int, str, str]]:
    """Problems that involve several fields: the entry's index, the field, and a message."""
    seen: dict[str, int] = {}
    for index, token in enumerate(tokens):
        if token.role is Role.ADAPTER and not token.adapter:
            yield index, "adapter", "required for the role adapter, but missing; expected its name such as dns"
        if token.role is not Role.ADAPTER and token.adapter:
            yield index, "adapter", f"expected it with the role adapter only, got the role {token.role}"
        if token.role is not Role.AGENT and token.instance:
            yield index, "instance", f"expected it with the role agent only, got the role {token.role}"
        first = seen.setdefault(token.sha256, index)
        if first != index:
            yield index, "sha256", f"expected each token once, got it first as tokens[{first}]"


def _items(root: MappingNode) -> tuple[Node, ...]:
    member = root.get("tokens")
    return member.value.items if member is not None and isinstance(member.value, ListNode) else ()


def _location(item: Node, field: str) -> Origin:
    member = item.get(field) if isinstance(item, MappingNode) else None
    return item.at if member is None else member.value.at

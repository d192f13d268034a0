"""Bearer tokens in a file: who they belong to, and never the tokens themselves.

A token is 256 random bits, so one round of SHA-256 is all it takes to keep it: nobody finds it by trying. A name
may have several tokens, so that a new one can be handed out before the old one is revoked.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Final

import msgspec

from sentinel.core.access import Identity, Role
from sentinel.core.fleet.lifecycle import LONGEST_ID, segment
from sentinel.core.fleet.reports import is_adapter_name
from sentinel.drivers.identity.file_watch import WatchedFile
from sentinel.ports.errors import Misconfigured
from sentinel.runtime.log import Log, get_logger
from sentinel.runtime.settings.config_tree import ListNode, MappingNode, Node
from sentinel.runtime.settings.field_types import FieldType, InvalidValue
from sentinel.runtime.settings.report import Origin, SettingsProblem, file_origin, in_order
from sentinel.runtime.settings.schema import Items, section
from sentinel.runtime.settings.validation import Reading
from sentinel.runtime.settings.yaml_file import parse, read_text

PREFIX: Final = "snt_"
"""Begins every token, so that scanners for leaked secrets can tell one."""

_BYTES = 32
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+:/-]{0,127}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)
_INSTANCE = re.compile(segment(LONGEST_ID))
_RESERVED = frozenset(("anonymous", "nobody"))


def is_identity_name(name: str) -> bool:
    """Whether somebody may be called that; the names of nobody in particular are not to be had."""
    return _NAME.fullmatch(name) is not None and name not in _RESERVED


def is_instance_id(given: str) -> bool:
    """Return whether an instance may have this id: a URL segment that needs no escaping, like a resource's id."""
    return _INSTANCE.fullmatch(given) is not None


def _name(given: str) -> str:
    if not is_identity_name(given):
        raise InvalidValue("letters, digits and ._@+:/- only, at most 128, and not anonymous")
    return given


def _adapter(given: str) -> str:
    if not is_adapter_name(given):
        raise InvalidValue
    return given


def _instance(given: str) -> str:
    if not is_instance_id(given):
        raise InvalidValue
    return given


def _digest(given: str) -> str:
    if _SHA256.fullmatch(given) is None:
        raise InvalidValue("64 hexadecimal digits; `sentinel token new` writes them")
    return given.lower()


class StoredToken(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of a tokens file."""

    name: Annotated[str, FieldType("a name such as ops", _name)]
    role: Role
    sha256: Annotated[str, FieldType("the SHA-256 of a token", _digest, is_secret=True)]
    """Somebody may have pasted the token itself, so what does not fit is not repeated."""
    adapter: Annotated[str, FieldType("the name of an adapter such as dns", _adapter)] = ""
    instance: Annotated[str, FieldType("the id of an instance such as edge-1", _instance)] = ""

    @property
    def identity(self) -> Identity:
        """Whoever presents it."""
        return Identity(self.name, self.role, self.adapter, self.instance)


class TokensDocument(msgspec.Struct, frozen=True):
    """What a tokens file contains."""

    tokens: Annotated[
        tuple[StoredToken, ...], Items(section(StoredToken), expected="a list of {name, role, adapter, sha256}")
    ] = ()


class ParsedTokens(msgspec.Struct, frozen=True):
    """A tokens file as it was read, for whoever wants to change it."""

    text: str
    tokens: tuple[StoredToken, ...]
    lines: tuple[int, ...]
    """Where each token begins, counted from 1."""


class TokensFile:
    """`ports.identity.Identities` by a tokens file."""

    def __init__(
        self, path: Path, *, log: Log | None = None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """Raises `Misconfigured` if the file is invalid. If it becomes so later, the last tokens stay valid."""
        log = log or get_logger("tokens")
        self._tokens = WatchedFile(
            path,
            _load,
            on_trouble=lambda problem: log.warning("tokens.unusable", problem=problem),
            monotonic=monotonic,
        )

    async def identify(self, token: str) -> Identity | None:
        """Return who this token belongs to.

        A lookup by hash, because its cost must not grow with the file. Timing it is useless: it could reveal
        something about a stored hash at most, and no token follows from its hash.
        """
        return self._tokens.get().get(hashlib.sha256(token.encode()).digest())


def new_token() -> str:
    """A token that nobody has seen before."""
    return PREFIX + secrets.token_urlsafe(_BYTES)


def digest_of(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def read(path: Path) -> ParsedTokens:
    """Reads a tokens file; raises `Misconfigured` with everything that is wrong with it."""
    text = read_text(path)
    if isinstance(text, SettingsProblem):
        raise Misconfigured(str(text))
    return parse_tokens(text, file_origin(path))


def parse_tokens(text: str, source: Origin) -> ParsedTokens:
    """The tokens in a text that came from there; raises `Misconfigured`."""
    root, problems = parse(text, source)
    reading = Reading(environ={}, is_partial=bool(problems))
    reading.problems.extend(problems)
    if root is None and not problems:
        root = MappingNode((), source)
    document = None if root is None else section(TokensDocument).read(root, "", source, reading)
    if isinstance(root, MappingNode) and isinstance(document, TokensDocument):
        items = _items(root)
        for index, field, message in _inconsistencies(document.tokens):
            reading.refuse(_place(items[index], field), f"tokens[{index}].{field}", message)
        if not reading.problems:
            return ParsedTokens(text, document.tokens, tuple(item.at.line for item in items))
    raise Misconfigured("\n".join(str(problem) for problem in in_order(reading.problems)))


def _load(path: Path) -> dict[bytes, Identity]:
    return {bytes.fromhex(token.sha256): token.identity for token in read(path).tokens}


def _inconsistencies(tokens: tuple[StoredToken, ...]) -> Iterator[tuple[int, str, str]]:
    """What no field says wrongly by itself: which entry, which field, what about it."""
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


def _place(item: Node, field: str) -> Origin:
    member = item.get(field) if isinstance(item, MappingNode) else None
    return item.at if member is None else member.value.at

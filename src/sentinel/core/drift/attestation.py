"""The fingerprint that an operator writes on each object it applies.

`managedFields` tell who holds a field, not which value its holder gave it. A sidecar that was not running when an
object changed needs the values, so the operator attests them in an annotation.

The operator computes it from what it is about to apply. The API server then adds defaults, in lists too, drops
empty values, and rewrites quantities. So only the applied values that are not empty are compared, members of
unkeyed lists by position, and quantities as numbers.
"""

from __future__ import annotations

import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Final

import msgspec

from sentinel.core.drift import object_fields, paths
from sentinel.core.drift.judgement import ChangeOp
from sentinel.core.drift.object_fields import Field
from sentinel.core.drift.rules import Rules
from sentinel.core.json import Json

_MAX_TEXT: Final = 16_384
"""Longer ones would crowd out other annotations, which have 256 KiB together."""
_MAX_PATHS: Final = 1 << 20
_DIGEST_BYTES: Final = 5
_ZERO: Final = bytes(_DIGEST_BYTES)
"""0 and false, which the API server may drop."""
_SEPARATOR: Final = "\0"
_FIELDS: Final = "v1"
_TOTAL: Final = "v1-total"
_ITEM: Final = "/~"
"""Before the position of a member of an unkeyed list; alone, it stands for the length. In a JSON pointer a `~` is
always followed by 0 or 1, so that no field has such a path."""

_QUANTITY_PATH: Final = re.compile(r".*/(limits|requests|capacity|hard)/[^/]*|.*/(sizeLimit|divisor)", re.DOTALL)
_QUANTITY: Final = re.compile(
    r"([+-]?[0-9]*\.?[0-9]+|[+-]?[0-9]+\.)(?:([eE][+-]?[0-9]{1,3})|([numkMGTPE]|[KMGTPE]i)?)"
)
_SCALES: Final = {
    "": Decimal(1),
    **{suffix: Decimal(10) ** (3 * power) for power, suffix in enumerate("num", -3)},
    **{suffix: Decimal(10) ** (3 * power) for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", 1)},
}


class Attestation(msgspec.Struct, frozen=True):
    """The fields that an operator applied, as hashes."""

    text: str
    """The text of the annotation."""
    fields: Mapping[str, bytes] | None
    """The hash of each field; None if there are too many, so that only all of them together can be compared."""
    total: bytes
    """The hash of all fields that are not zero."""

    @property
    def owned(self) -> frozenset[str]:
        """The paths of the fields, as `managedFields` name them."""
        return frozenset(_list_path(path) for path in self.fields or ())

    def differences(
        self, document: Mapping[str, Json], rules: Rules, *, is_owned: Callable[[str], bool]
    ) -> dict[str, ChangeOp]:
        """Return the attested fields that the object does not have, or has with another value, by path.

        `is_owned` says whether the operator holds a field. It matters if only all fields together were attested;
        then the result says no more than that something differs.
        """
        values = _Values(document, rules)
        if self.fields is None:
            for path in [path for path in values.leaves if not is_owned(_list_path(path))]:
                del values.leaves[path]
            return {} if _total(values.leaves) == self.total else {"": ChangeOp.CHANGE}
        found: dict[str, ChangeOp] = {}
        for path, attested in self.fields.items():
            if values.leaves.get(path, _ZERO) == attested:
                continue
            where, op = values.difference(_list_path(path))
            found[where] = op
        return found


def attest(document: Mapping[str, Json], rules: Rules) -> str:
    """Return the text of the fingerprint annotation for an object that is about to be applied.

    The annotation itself does not count, so it makes no difference whether `document` has one.
    """
    leaves = dict(sorted(_Values(document, rules).leaves.items()))
    packed = zlib.compress(_SEPARATOR.join(leaves).encode("utf-8", "surrogatepass"), level=9)
    text = f"{_FIELDS}:{_pack(packed)}:{_pack(b''.join(leaves.values()))}"
    if len(text) <= _MAX_TEXT and not any(_SEPARATOR in path for path in leaves):
        return text
    return f"{_TOTAL}:{_pack(_total(leaves))}"


def read_attestation(text: str) -> Attestation | None:
    """Return what an annotation attests, or None if it cannot be read."""
    form, *parts = text.split(":")
    try:
        contents = [b64decode(part, validate=True) for part in parts]
        if form == _TOTAL and len(contents) == 1:
            return Attestation(text, None, contents[0])
        if form == _FIELDS and len(contents) == 2:
            return _read_fields(text, *contents)
    except (ValueError, zlib.error):  # of base64, too
        pass
    return None


def _read_fields(text: str, packed: bytes, digests: bytes) -> Attestation | None:
    joined = zlib.decompressobj().decompress(packed, _MAX_PATHS).decode("utf-8", "surrogatepass")
    names = joined.split(_SEPARATOR) if joined else []
    if len(names) * _DIGEST_BYTES != len(digests):
        return None
    each = (digests[at : at + _DIGEST_BYTES] for at in range(0, len(digests), _DIGEST_BYTES))
    fields = dict(zip(names, each, strict=True))
    return Attestation(text, fields, _total(fields))


class _Values:
    """The hashes of an object's fields, as both the operator and a reader compute them."""

    def __init__(self, document: Mapping[str, Json], rules: Rules) -> None:
        self.leaves: dict[str, bytes] = {}
        self.others: set[str] = set()
        """Maps and lists that are not empty, and empty values. The API server replaces those by defaults."""
        fingerprint = paths.child(paths.ANNOTATIONS, rules.annotations.fingerprint)
        pending = [object_fields.judged_fields(document)]
        while pending:  # iterators, so that a map of many keys is not copied
            field = next(pending[-1], None)
            if field is None:
                pending.pop()
            elif field.path != fingerprint:
                pending.append(iter(self._add(field)))

    def difference(self, path: str) -> tuple[str, ChangeOp]:
        """Return what happened to a field that should have another value: it changed, or what contains it did."""
        root = path
        for each in (path, *paths.ancestors(path)):
            if each in self.leaves or (each == path and each in self.others):
                return each, ChangeOp.CHANGE
            if each in self.others:
                break
            root = each
        return root, ChangeOp.REMOVE

    def _add(self, field: Field) -> Iterable[Field]:
        """Add a field, and return those below it."""
        path, value = field.path, field.value
        if value is None or value in ("", [], {}):
            self.others.add(path)
        elif isinstance(value, dict):
            self.others.add(path)
            return object_fields.children(field, value)
        elif isinstance(value, list):
            self.others.add(path)
            return self._items(field, value)
        else:
            self.leaves[path] = _digest(_normalized(path, value)) if value else _ZERO
        return ()

    def _items(self, field: Field, value: list[Json]) -> Iterable[Field]:
        keyed = object_fields.members(field, value, field.keys)
        if keyed is not None:
            return keyed.values()
        self.leaves[field.path + _ITEM] = _digest(len(value))
        return (Field(f"{field.path}{_ITEM}{at}", item) for at, item in enumerate(value))


def _list_path(path: str) -> str:
    """Return the path of the field, or of the unkeyed list that it is in."""
    return path.partition(_ITEM)[0]


def _normalized(path: str, value: Json) -> Json:
    """Return a value as the API server stores it."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    found = _QUANTITY.fullmatch(paths.text(value)) if _QUANTITY_PATH.fullmatch(path) is not None else None
    if found is None:
        return value
    number, exponent, suffix = found.groups(default="")
    return str((Decimal(number + exponent) * _SCALES[suffix]).normalize())


def _digest(value: Json) -> bytes:
    return bytes.fromhex(object_fields.digest_of(value))[:_DIGEST_BYTES]


def _total(fields: Mapping[str, bytes]) -> bytes:
    # As JSON in pieces: there may be tens of thousands of fields, and a list of all would take megabytes.
    present = (
        object_fields.encode([path, fields[path].hex()]) for path in sorted(fields) if fields[path] != _ZERO
    )
    return object_fields.digest_of_list(present)


def _pack(content: bytes) -> str:
    return b64encode(content).decode()

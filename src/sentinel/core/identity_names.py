"""Which names identities and instances may have, wherever they are declared."""

from __future__ import annotations

import re
from typing import Final

from sentinel.core.ids import MAX_ID_LENGTH, segment_pattern

NAME_EXPECTED: Final = "letters, digits and ._@+:/- only, at most 128, and not anonymous"
"""What `is_identity_name` accepts, for messages."""
AGENT_UNIT: Final = "sentinel-agent"
"""The organizational unit in the certificate of an agent, whose common name is the id of its instance."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+:/-]{0,127}", re.ASCII)
_USER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}", re.ASCII)
_INSTANCE = re.compile(segment_pattern(MAX_ID_LENGTH))
_RESERVED = frozenset(("anonymous", "nobody"))


def is_identity_name(name: str) -> bool:
    """Whether this is a valid name of an identity. Names for anonymous callers are reserved."""
    return _NAME.fullmatch(name) is not None and name not in _RESERVED


def is_user_name(name: str) -> bool:
    """Whether this is a valid name of a user: one that is also a segment of a URL."""
    return _USER_NAME.fullmatch(name) is not None and name not in _RESERVED


def is_instance_id(instance: str) -> bool:
    """Whether this is a valid instance id: a URL segment that needs no escaping, like a resource's id."""
    return _INSTANCE.fullmatch(instance) is not None

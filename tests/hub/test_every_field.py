"""Every field of the protocol is read by the hub if agents send it, and filled by the hub if agents get it.

What the values mean is tested where they are used. This finds fields that nobody thought of.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.descriptor import Descriptor

import sentinel.hub.grpc
from sentinel.wire.hub.v1 import fleet_pb2 as pb

FOLDER = Path(sentinel.hub.grpc.__file__).parent


def messages_of(*roots: Descriptor) -> Iterator[Descriptor]:
    """These messages, and those inside of them."""
    pending, seen = [*roots], set()
    while pending:
        message = pending.pop()
        if message.full_name in seen or message.GetOptions().map_entry:
            continue
        seen.add(message.full_name)
        yield message
        pending += [field.message_type for field in message.fields if field.message_type is not None]


def fields_of(*, is_request: bool) -> set[tuple[str, str]]:
    """Message and field of all that agents send, or get."""
    methods = pb.DESCRIPTOR.services_by_name["FleetService"].methods
    roots = [method.input_type if is_request else method.output_type for method in methods]
    return {(message.name, field.name) for message in messages_of(*roots) for field in message.fields}


def trees() -> list[ast.AST]:
    return [ast.parse(path.read_text()) for path in FOLDER.glob("*.py")]


def test_every_field_that_agents_send_is_read() -> None:
    nodes = [node for tree in trees() for node in ast.walk(tree)]
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}

    sent = fields_of(is_request=True)

    assert len(sent) > 50
    assert {(message, field) for message, field in sent if field not in attributes} == set()


def test_every_field_that_agents_get_is_filled() -> None:
    filled = {
        (call.func.attr, keyword.arg)
        for tree in trees()
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        for keyword in call.keywords
    }

    received = fields_of(is_request=False)

    missing = {f"{message}.{field}" for message, field in received if (message, field) not in filled}
    assert len(received) > 40
    assert not missing

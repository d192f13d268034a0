from __future__ import annotations

from pathlib import Path

from tools import wire


def test_the_committed_code_is_what_protoc_generates() -> None:
    generated = wire.generated()

    committed = {file: file.read_text() for file in generated}
    assert sorted(file.name for file in generated) == [
        "fleet_pb2.py",
        "fleet_pb2.pyi",
        "fleet_pb2_grpc.py",
        "fleet_pb2_grpc.pyi",
    ]
    assert generated == committed


def test_no_module_is_left_of_a_protocol_that_is_gone() -> None:
    generated = wire.generated()

    found = {file for file in (wire.SOURCES / "sentinel" / "wire").rglob("*.py*") if is_source(file)}
    assert found == set(generated)


def is_source(file: Path) -> bool:
    return file.suffix in {".py", ".pyi"} and file.name != "__init__.py"

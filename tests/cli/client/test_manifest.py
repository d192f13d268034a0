"""Manifests of `sentinel apply`: YAML 1.2, JSON, lists, and errors with their position."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sentinel.cli.client import manifest
from sentinel.cli.client.manifest import InvalidManifest


def spec_of(tmp_path: Path, text: str) -> Any:
    file = tmp_path / "f.yaml"
    file.write_text(f"kind: K\nname: n\nspec:\n  value: {text}\n")
    (found,) = manifest.read(file)
    assert found.spec is not None
    return found.spec.get("value", "absent")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("true", True),
        ("010", 10),
        ("0x1F", 31),
        ("0o17", 15),
        ("-7", -7),
        ("1.50", 1.5),
        ("1e3", 1000.0),
        ("1.2.3", "1.2.3"),
        ("2025-01-01", "2025-01-01"),
        ("12:30:45", "12:30:45"),
        ("1_000", "1_000"),
        ('"5"', "5"),
        ("'true'", "true"),
        ("[1, null, {a: null}]", [1, None, {"a": None}]),
        ("{a: 1, b: null}", {"a": 1}),
        ("null", "absent"),
        ("~", "absent"),
        ("''", ""),
        ("|\n    a\n    b", "a\nb\n"),
    ],
)
def test_scalars_are_read_by_the_rules_of_yaml_1_2(tmp_path: Path, text: str, value: object) -> None:
    assert spec_of(tmp_path, text) == value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (".inf", "4:10: : expected a finite number"),
        ("-.Inf", "4:10: : expected a finite number"),
        (".nan", "4:10: : expected a finite number"),
        ("1e999", "1: spec.value: expected a finite number"),
        ("9223372036854775808", "1: spec.value: expected an integer of at most 64 bits"),
        ("9" * 5000, "4:10: : expected an integer of at most 64 bits"),
        ("0x" + "f" * 30, "4:10: : expected an integer of at most 64 bits"),
    ],
)
def test_numbers_out_of_range_are_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InvalidManifest, match=words):
        spec_of(tmp_path, text)


def test_documents_know_the_line_where_they_begin(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(
        "# first\nkind: K\nname: a\n--- # second\n\nkind: K\nname: b\n---\n# empty\n---\n{kind: K, name: c}\n...\n"
    )

    found = manifest.read(file)

    assert [(each.name, each.where) for each in found] == [
        ("a", f"{file}:2"),
        ("b", f"{file}:6"),
        ("c", f"{file}:11"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        '[{"kind": "K", "name": "a"}, {"kind": "K", "name": "b"}]',
        '{"items": [{"kind": "K", "name": "a"}, {"kind": "K", "name": "b"}], "total": 2}',
        '{"kind": "K", "name": "a"}\n\n{"kind": "K", "name": "b"}\n',
        "- {kind: K, name: a}\n- {kind: K, name: b}\n",
    ],
)
def test_several_resources_can_be_in_one_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "f"
    file.write_text(text)

    assert [each.name for each in manifest.read(file)] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "f: expected at least one resource, got none"),
        ("just text", "f:1: expected a mapping with kind, name and spec, got something else"),
        ("kind: K\n", "f:1: name: required, but missing"),
        ("name: n\n", "f:1: kind: required unless plural is given, but missing"),
        ("kind: K\nname: 5\n", "f:1: name: expected a string, got 5; quote it"),
        ("kind: K\nname: ''\n", "f:1: name: required, but missing"),
        ("kind: K\nname: n\nlabels: {a: 1}\n", "f:1: labels.a: expected a string, got 1; quote it"),
        ("kind: K\nname: n\nspec: [1]\n", "f:1: spec: expected a mapping, got a list"),
        ("kind: K\nname: n\nlabels: a=b\n", "f:1: labels: expected a mapping, got a scalar"),
        ("kind: K\nkind: L\nname: n\n", "f:2:1: kind: duplicate key; expected it once, got it first on line 1"),
        ('{"kind": "K", "kind": "L"}', "f:1:15: kind: duplicate key; expected it once, got it first on line 1"),
        ("kind: K\nname: [\n", "f:2:8: : expected YAML, got a syntax error"),
        ("kind: K\nname: n\nfrobs: 1\n", "f:1: frobs: unknown key; expected one of kind, plural, name"),
        (
            '{"kind": "K", "name": "n", "spec": {"n": 99999999999999999999}}',
            "f:1: spec.n: expected an integer of at most 64",
        ),
        ('{"kind": "K", "name": "n", "spec": {"n": [NaN]}}', "f:1: spec.n[0]: expected a finite number"),
    ],
)
def test_an_invalid_manifest_is_reported_with_its_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("f").write_text(text)

    with pytest.raises(InvalidManifest) as invalid:
        manifest.read(Path("f"))

    assert str(invalid.value).startswith(problem)


def test_every_problem_is_reported_at_once(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("kind: K\n---\nname: n\n---\nkind: K\nname: n\nfoo: 1\n")

    with pytest.raises(InvalidManifest) as invalid:
        manifest.read(file)

    assert len(str(invalid.value).splitlines()) == 3


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InvalidManifest, match="cannot be read: no such file"):
        manifest.read(tmp_path / "nothing")

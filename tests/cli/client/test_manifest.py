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
        (".inf", "finite number"),
        ("-.Inf", "finite number"),
        (".nan", "finite number"),
        ("1e999", "finite number"),
        ("9223372036854775808", "n integer of at most 64 bits"),
        ("9" * 5000, "n integer of at most 64 bits"),
        ("0x" + "f" * 30, "n integer of at most 64 bits"),
    ],
)
def test_numbers_out_of_range_are_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InvalidManifest, match=f"f.yaml:4:10: spec.value: expected an? ?{words}"):
        spec_of(tmp_path, text)


def test_documents_know_where_they_begin(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(
        "# first\nkind: K\nname: a\n--- # second\n\nkind: K\nname: b\n---\n# empty\n---\n{kind: K, name: c}\n...\n"
    )

    found = manifest.read(file)

    assert [(each.name, str(each.problem("", "bad"))) for each in found] == [
        ("a", f"{file}:2:1: : bad"),
        ("b", f"{file}:6:1: : bad"),
        ("c", f"{file}:11:1: : bad"),
    ]


YAML = """\
kind: K
name: n
owner_references:
  id: p
labels:
  app.kubernetes.io/name: x
  app: y
spec:
  network:
    ports: [80, {number: 443}]
"""
JSON = """\
{"kind": "K", "name": "n",
 "owner_references": {"id": "p"},
 "labels": {"app.kubernetes.io/name": "x",
\t"app": "\\ud83d\\ude00"},
 "spec": {"network": {
   "ports": [80, {"number": 443}],
   "empty": [{}, [], -1.5e3, null]}}}
"""


@pytest.mark.parametrize(
    ("text", "field", "line", "column"),
    [
        (YAML, "", 1, 1),
        (YAML, "name", 2, 7),
        (YAML, "owner_references.id", 4, 7),
        (YAML, "labels.app.kubernetes.io/name", 6, 27),
        (YAML, "labels.app", 7, 8),
        (YAML, "spec.network.ports[1].number", 10, 26),
        (YAML, "spec.network.ports[7]", 10, 12),
        (YAML, "spec.networks", 9, 3),
        (YAML, "missing", 1, 1),
        (JSON, "owner_references.id", 2, 29),
        (JSON, "labels.app.kubernetes.io/name", 3, 39),
        (JSON, "labels.app", 4, 9),
        (JSON, "spec.network.ports[1].number", 6, 29),
        (JSON, "spec.network.empty[3]", 7, 30),
    ],
)
def test_a_field_is_found_at_its_value(tmp_path: Path, text: str, field: str, line: int, column: int) -> None:
    file = tmp_path / "f"
    file.write_text(text)
    (found,) = manifest.read(file)

    problem = found.problem(field, "bad")

    assert (problem.line, problem.column, problem.field) == (line, column, field)


def test_the_parent_is_named_as_the_file_names_it(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("kind: K\nname: n\nparent: p\n")
    (found,) = manifest.read(file)

    assert str(found.problem("owner_references.id", "bad")) == f"{file}:3:9: parent: bad"


def test_json_is_read_with_all_its_values(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text(JSON)
    (found,) = manifest.read(file)

    assert found.labels == {"app.kubernetes.io/name": "x", "app": "\U0001f600"}
    assert found.spec == {"network": {"ports": [80, {"number": 443}], "empty": [{}, [], -1500.0, None]}}


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
        ("", "f:1:1: : expected at least one resource, got none"),
        ("just text", "f:1:1: : expected a mapping with kind, name and spec, got something else"),
        ("kind: K\n", "f:1:1: name: required, but missing"),
        ("name: n\n", "f:1:1: kind: required unless plural is given, but missing"),
        ("kind: K\nname: 5\n", "f:2:7: name: expected a string, got 5; quote it"),
        ("kind: K\nname: ''\n", "f:1:1: name: required, but missing"),
        ("kind: K\nname: n\nlabels: {a: 1}\n", "f:3:13: labels.a: expected a string, got 1; quote it"),
        ("kind: K\nname: n\nspec: [1]\n", "f:3:7: spec: expected a mapping, got a list"),
        ("kind: K\nname: n\nlabels: a=b\n", "f:3:9: labels: expected a mapping, got a scalar"),
        ("kind: K\nkind: L\nname: n\n", "f:2:1: kind: duplicate key; expected it once, got it first on line 1"),
        ('{"kind": "K", "kind": "L"}', "f:1:15: kind: duplicate key; expected it once, got it first on line 1"),
        ("kind: K\nname: [\n", "f:2:8: : expected YAML, got a syntax error"),
        ("kind: K\nname: n\nfrobs: 1\n", "f:3:1: frobs: unknown key; expected one of kind, plural, name"),
        (
            '{"kind": "K", "name": "n", "spec": {"n": 99999999999999999999}}',
            "f:1:42: spec.n: expected an integer of at most 64",
        ),
        ('{"kind": "K", "name": "n", "spec": {"n": [NaN]}}', "f:1:43: spec.n[0]: expected a finite number"),
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
    file.write_text("kind: K\n---\nname: n\n---\nkind: K\nname: 5\nspec: {n: .inf}\nfoo: 1\n")

    with pytest.raises(InvalidManifest) as invalid:
        manifest.read(file)

    assert [line.split(": ")[1] for line in str(invalid.value).splitlines()] == [
        "name",
        "kind",
        "name",
        "spec.n",
        "foo",
    ]


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InvalidManifest, match="cannot be read: no such file"):
        manifest.read(tmp_path / "nothing")

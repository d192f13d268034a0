"""`sentinel drift explain`: the judgement on two files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from sentinel.cli.drift.explain import explain
from tests.core.drift.objects import config_map, entry, operator_entry, stateful_set


class Files:
    """Objects in files, and the command on them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, name: str, content: Any) -> Path:
        file = self._folder / name
        if isinstance(content, str | bytes):
            file.write_bytes(content.encode() if isinstance(content, str) else content)
        elif name.endswith(".yaml"):
            file.write_bytes(msgspec.yaml.encode(content))
        else:
            file.write_text(json.dumps(content))
        return file

    def explain(self, before: Path | str, after: Path | str, *options: str) -> Result:
        arguments = ["--before", str(before), "--after", str(after), *options]
        return CliRunner().invoke(explain, arguments, standalone_mode=False)

    def judgement(self, before: Path | str, after: Path | str, *options: str) -> Any:
        result = self.explain(before, after, "--output", "json", *options)
        assert result.return_value == 0, result.output
        return json.loads(result.stdout)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def scaled() -> dict[str, Any]:
    taken = entry("kubectl-edit", {"f:spec": {"f:replicas": {}}}, time="2026-01-01T00:01:00Z")
    own = operator_entry()
    del own["fieldsV1"]["f:spec"]["f:replicas"]
    body = stateful_set(own, taken)
    body["spec"]["replicas"] = 5
    return body


@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_the_judgement_is_printed_as_json(files: Files, suffix: str) -> None:
    before, after = files.write(f"a.{suffix}", stateful_set()), files.write(f"b.{suffix}", scaled())

    assert files.judgement(before, after) == {
        "drift": True,
        "reason": "owned_field_changed",
        "rule": "owned_field_changed",
        "changes": [{"path": "/spec/replicas", "op": "change"}],
        "actor": {"manager": "kubectl-edit", "operation": "Update", "time": "2026-01-01T00:01:00Z"},
    }


def test_the_table_shows_what_decided_and_a_readable_diff(files: Files) -> None:
    result = files.explain(files.write("a.json", stateful_set()), files.write("b.json", scaled()))

    assert result.return_value == 0
    assert result.stdout.splitlines() == [
        "drift: StatefulSet/bao/prod: +0 ~1 -0 by kubectl-edit (Update)",
        "reason: owned_field_changed (another manager changed a field that the operator owns)",
        "rule: owned_field_changed",
        "actor: kubectl-edit (Update) at 2026-01-01T00:01:00Z",
        "",
        "CHANGE  PATH            BEFORE  AFTER",
        "change  /spec/replicas  3       5",
    ]


def test_the_data_of_a_config_map_is_not_shown(files: Files) -> None:
    result = files.explain(
        files.write("a.json", config_map({"a": "hunter2"})), files.write("b.json", config_map({"a": "hunter3"}))
    )

    assert "/data/a" in result.stdout
    assert "hunter" not in result.stdout
    assert "7 bytes, hash" in result.stdout


def test_an_added_subtree_is_shown_field_by_field(files: Files) -> None:
    evil: dict[str, Any] = {"name": "evil", "image": "evil:1", "ports": [{"containerPort": 4444}]}
    evil["env"] = [{"name": "TOKEN", "value": "hunter2"}]
    after = stateful_set(
        operator_entry(),
        entry("kubectl-edit", {"f:spec": {"f:template": {"f:spec": {"f:containers": {'k:{"name":"evil"}': {}}}}}}),
    )
    after["spec"]["template"]["spec"]["containers"].append(evil)

    result = files.explain(files.write("a.json", stateful_set()), files.write("b.json", after))
    removed = files.explain(files.write("b.json", after), files.write("a.json", stateful_set()))

    root = "/spec/template/spec/containers/name=evil"
    rows = [line.split() for line in result.stdout.splitlines()[6:]]
    assert rows[0][:3] == ["add", root, "-"]
    assert ["add", f"{root}/image", "-", '"evil:1"'] in rows
    assert ["add", f"{root}/ports/containerPort=4444,protocol=TCP/containerPort", "-", "4444"] in rows
    assert ["add", f"{root}/env/name=TOKEN/value", "-", "7", "bytes,"] in [row[:5] for row in rows]
    assert "hunter2" not in result.stdout
    assert ["remove", f"{root}/image", '"evil:1"', "-"] in [line.split() for line in removed.stdout.splitlines()]


def test_of_a_large_subtree_the_first_fields_are_shown(files: Files) -> None:
    after = stateful_set(operator_entry(), entry("team", {"f:spec": {"f:large": {}}}))
    after["spec"]["large"] = {f"field{number:03}": number for number in range(60)}

    result = files.explain(files.write("a.json", stateful_set()), files.write("b.json", after))

    assert "  /spec/large/field049 " in result.stdout
    assert "/spec/large/field050" not in result.stdout
    assert "and 10 more" in result.stdout


def test_dev_null_means_deleted_or_first_seen(files: Files) -> None:
    file = files.write("a.json", stateful_set())

    assert files.judgement(file, os.devnull)["reason"] == "deleted"
    assert len(files.explain(file, os.devnull).stdout.splitlines()) == 7
    assert files.judgement(os.devnull, file)["reason"] == "unattested"


def test_the_settings_decide(files: Files) -> None:
    before, after = files.write("a.json", stateful_set()), files.write("b.json", scaled())
    config = files.write("drift.yaml", "ignore: [{kind: Service}, {path: /spec/*, manager: kubectl-*}]")

    ignored = files.judgement(before, after, "--config", str(config))
    trusted = files.judgement(before, after, "--set", "managers=[kubectl-edit]")

    assert (ignored["drift"], ignored["reason"], ignored["rule"]) == (False, "ignored", "ignore[1]")
    assert trusted["reason"] == "operator_write"


def test_a_subresource_is_named(files: Files) -> None:
    body = scaled()
    body["metadata"]["managedFields"][1] |= {"subresource": "scale", "time": None}

    result = files.explain(files.write("a.json", stateful_set()), files.write("b.json", body))

    assert "actor: kubectl-edit (Update), subresource scale" in result.stdout.splitlines()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{}", "metadata: expected an object, got nothing"),
        ('{"metadata": {"name": "x"}}', "kind: expected a text such as StatefulSet, got none"),
        ('{"kind": "Service", "metadata": {}}', "metadata.name: expected a text, got nothing"),
        ('{"kind": "Secret", "metadata": {"name": "x"}}', "kind: expected any kind but Secret, got Secret"),
        ("[]", "expected one object, got something else"),
        ("", "expected one object, got nothing"),
        ("text", "expected one object, got another value"),
        ("a: [", "expected YAML, got a syntax error"),
        ("a: 1\n---\nb: 1\n", "expected one YAML document"),
        (b"\xff", "expected UTF-8 text"),
        (b"x" * ((16 << 20) + 1), "expected at most 16 MiB"),
    ],
)
def test_bad_input_exits_2_and_names_file_and_field(files: Files, content: str | bytes, problem: str) -> None:
    file = files.write("bad.json", content)

    result = files.explain(os.devnull, file)

    assert result.return_value == 2
    assert result.stdout == ""
    assert str(file) in result.stderr
    assert problem in result.stderr


def test_a_file_that_does_not_exist_exits_2(files: Files, tmp_path: Path) -> None:
    result = files.explain(tmp_path / "none", os.devnull)

    assert result.return_value == 2
    assert "none:1:1: --before: cannot be read: no such file or directory" in result.stderr


def test_two_different_objects_exit_2(files: Files) -> None:
    other = stateful_set(name="other")

    result = files.explain(files.write("a.json", stateful_set()), files.write("b.json", other))

    assert result.return_value == 2
    assert 'metadata.name: expected "prod" as in --before, got "other"' in result.stderr


def test_no_object_at_all_exits_2(files: Files) -> None:
    assert files.explain(os.devnull, os.devnull).return_value == 2


def test_bad_settings_exit_2(files: Files) -> None:
    file = files.write("a.json", stateful_set())

    result = files.explain(file, file, "--set", "unowned=some")

    assert result.return_value == 2
    assert "unowned: expected one of none, spec, all" in result.stderr


def test_a_kind_that_is_not_watched_is_warned_about(files: Files) -> None:
    file = files.write("a.json", stateful_set() | {"kind": "Deployment"})

    result = files.explain(file, file)

    assert result.return_value == 0
    assert "Deployment is not one of the watched kinds" in result.stderr


def test_yaml_means_what_it_means_to_kubectl(files: Files) -> None:
    text = "kind: Widget\nmetadata: {name: x}\nspec: {%s}\n"
    values = "a: 0644, b: 0x10, c: yes, d: 1_000, e: 1.5, f: 0b11, g: ~, h: 'no', i: .inf, j: -0o17, k: [on, 2e3]"
    same: dict[str, Any] = {"a": 420, "b": 16, "c": True, "d": 1000, "e": 1.5, "f": 3, "g": None, "h": "no"}
    same |= {"i": ".inf", "j": -15, "k": [True, 2000.0]}
    body = {"kind": "Widget", "metadata": {"name": "x"}, "spec": same}

    judgement = files.judgement(files.write("a.yaml", text % values), files.write("b.json", body))

    assert judgement["reason"] == "unchanged", judgement


def test_the_environment_of_the_sidecar_is_not_read(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENTINEL_DEBOUNCE_WINDOW_SECONDS", "0")
    monkeypatch.setenv("SENTINEL_UNOWNED", "some")
    file = files.write("a.json", stateful_set())

    assert files.judgement(file, file)["reason"] == "unchanged"


def test_the_options_of_the_log_are_taken(files: Files) -> None:
    file = files.write("a.json", stateful_set())

    judgement = files.judgement(file, file, "--log-level", "debug", "--log-format", "json")

    assert judgement["reason"] == "unchanged"

"""ARCHITECTURE.md leads a reader through the code, so the folders, modules and names on it have to exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src" / "sentinel"
CODE = re.compile(r"`([^`\n]+)`")
FOLDER = re.compile(r"[a-z_0-9/]+/")
MODULE = re.compile(r"(?P<path>[a-z_0-9/]+\.py)(?::(?P<name>[A-Za-z_.]+))?")
MEMBER = re.compile(r"[A-Z][A-Za-z]+\.[a-z_]+")

SPANS = set(CODE.findall((ROOT / "ARCHITECTURE.md").read_text()))
FOLDERS = sorted(span for span in SPANS if FOLDER.fullmatch(span))
MODULES = sorted(
    {(found["path"], found["name"] or "") for span in SPANS if (found := MODULE.fullmatch(span)) is not None}
)
MEMBERS = sorted(span for span in SPANS if MEMBER.fullmatch(span))


@pytest.fixture(scope="module")
def paths() -> list[str]:
    return [f"/{path.relative_to(SOURCES)}" for path in SOURCES.rglob("*.py")]


def test_the_page_names_modules() -> None:
    assert min(len(FOLDERS), len(MEMBERS)) > 5
    assert len(MODULES) > 200


def test_the_page_names_each_layer_and_each_domain_of_the_core() -> None:
    packages = [path.parent for depth in ("*", "core/*") for path in SOURCES.glob(f"{depth}/__init__.py")]

    assert len(packages) > 25
    assert [package.name for package in packages if f"{package.name}/" not in FOLDERS] == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_on_the_page_exists(folder: str, paths: list[str]) -> None:
    assert (ROOT / folder).is_dir() or any(f"/{folder}" in path for path in paths)


@pytest.mark.parametrize(("module", "name"), MODULES)
def test_a_module_and_name_on_the_page_exist(module: str, name: str, paths: list[str]) -> None:
    found = [path for path in paths if path.endswith(f"/{module}")]

    assert found, f"there is no {module}"
    if name:
        assert any(_defines((SOURCES / path[1:]).read_text(), name) for path in found), f"{module} has no {name}"


@pytest.mark.parametrize("member", MEMBERS)
def test_a_member_on_the_page_exists(member: str, paths: list[str]) -> None:
    class_name = member.partition(".")[0]
    sources = ((SOURCES / path[1:]).read_text() for path in paths)

    assert any(_defines(source, member) for source in sources if f"class {class_name}" in source)


def _defines(source: str, name: str) -> bool:
    """Whether a module defines a class, a function, or a member of a class."""
    body: list[ast.stmt] = ast.parse(source).body
    for part in name.split("."):
        for node in body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == part:
                body = node.body
                break
        else:
            return False
    return True

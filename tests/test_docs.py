"""The README leads to every page of docs/, and every link leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
LINK = re.compile(r"\]\((?P<path>[^)#\s]*)(?:#(?P<heading>[^)\s]+))?\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.joinpath("docs").rglob("*.md")])


def test_the_readme_links_every_page() -> None:
    linked = {link["path"] for link in LINK.finditer(README.read_text())}
    pages = [str(page.relative_to(ROOT)) for page in ROOT.joinpath("docs").rglob("*") if page.is_file()]

    assert len(pages) > 40
    assert [page for page in sorted(pages) if page not in linked] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    links = [link for link in LINK.finditer(page.read_text()) if not link["path"].startswith("http")]

    assert [link[0] for link in links if not _exists(page, link["path"], link["heading"])] == []


def _exists(page: Path, path: str, heading: str | None) -> bool:
    target = page.parent / path if path else page
    return target.exists() and (heading is None or heading in _anchors(target))


def _anchors(page: Path) -> set[str]:
    """Return the headings as GitHub writes them in links."""
    headings = (heading.lower() for heading in HEADING.findall(page.read_text()))
    return {re.sub(r"[^\w -]", "", heading).replace(" ", "-") for heading in headings}

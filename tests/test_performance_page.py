from __future__ import annotations

from bench.page import HEADING, replace_sections

ORDER = ["pulse", "hub"]


def test_a_section_is_replaced_and_the_others_stay() -> None:
    page = replace_sections("", {"pulse": ["", "## The pulse", "old"], "hub": ["## The hub"]}, ORDER)

    page = replace_sections(page, {"pulse": ["## The pulse", "new"]}, ORDER)

    assert page == f"{HEADING}\n<!-- pulse -->\n## The pulse\nnew\n\n<!-- hub -->\n## The hub\n"


def test_a_section_that_is_measured_later_takes_its_place() -> None:
    page = replace_sections(HEADING, {"hub": ["## The hub"]}, ORDER)

    page = replace_sections(page, {"pulse": ["## The pulse"]}, ORDER)

    assert page.index("<!-- pulse -->") < page.index("<!-- hub -->")


def test_a_section_without_a_topic_is_dropped() -> None:
    page = replace_sections(HEADING + "\n<!-- gone -->\n## Gone\n", {"hub": ["## The hub"]}, ORDER)

    assert "Gone" not in page

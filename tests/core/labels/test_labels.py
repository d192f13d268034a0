"""Selectors mean the same as in Kubernetes: parsed, rendered and matched."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.core import labels
from sentinel.core.labels import (
    NotSearchable,
    Operator,
    Requirement,
    Selector,
    SelectorError,
    SelectorParam,
    as_integer,
    check_labels,
    equality,
    parse,
)

IN, NOT_IN, EXISTS, NOT_EXISTS = Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.NOT_EXISTS

names = st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,8}[A-Za-z0-9])?", fullmatch=True)
prefixes = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,6}[a-z0-9])?(\.[a-z0-9]{1,4}){0,2}", fullmatch=True)
keys = st.one_of(names, st.builds("{}/{}".format, prefixes, names), st.sampled_from(["in", "notin", "exists"]))
values = st.one_of(st.just(""), names, st.sampled_from(["in", "notin"]))
integers = st.integers(0, 2**63 - 1).map(str)
requirements = st.one_of(
    st.builds(
        lambda key, operator, some: Requirement(key, operator, tuple(sorted(some))),
        keys,
        st.sampled_from([IN, NOT_IN]),
        st.sets(values, min_size=1, max_size=3),
    ),
    st.builds(Requirement, keys, st.sampled_from([EXISTS, NOT_EXISTS])),
    st.builds(
        lambda key, operator, bound: Requirement(key, operator, (bound,)),
        keys,
        st.sampled_from([Operator.GREATER, Operator.LESS]),
        integers,
    ),
)
selectors = st.builds(Selector, st.lists(requirements, max_size=5).map(tuple))
blanks = st.text(" \t\r\n", max_size=2)

US_EAST = equality("region", "us-east")
PRODUCTION = equality("environment", "production")

words = st.text(min_size=1, max_size=8)
free_selectors = st.builds(Selector, st.lists(st.builds(equality, words, words), max_size=4).map(tuple))
"""Equalities of `resource_selector`, whose keys and values may be invalid in Kubernetes."""


def written(requirement: Requirement, blank: str) -> str:
    """Return the requirement as text with extra blanks."""
    key, some = requirement.key, f"{blank},{blank}".join(requirement.values)
    match requirement.operator:
        case Operator.EXISTS:
            return f"{blank}{key}{blank}"
        case Operator.NOT_EXISTS:
            return f"{blank}!{blank}{key}{blank}"
        case Operator.IN | Operator.NOT_IN:
            return f"{blank}{key} {requirement.operator}{blank}({blank}{some}{blank}){blank}"
        case Operator.GREATER | Operator.LESS:
            return f"{blank}{key}{blank}{requirement.operator}{blank}{some}{blank}"


def model(requirement: Requirement, own: Mapping[str, str]) -> bool:
    """Evaluate a requirement as the documentation of Kubernetes describes it."""
    operator, some = requirement.operator, set(requirement.values)
    if requirement.key not in own:
        return operator in {NOT_IN, NOT_EXISTS}
    value = own[requirement.key]
    if operator in {Operator.GREATER, Operator.LESS}:
        (bound,) = some
        if not value.isdigit():
            return False
        return int(value) > int(bound) if operator is Operator.GREATER else int(value) < int(bound)
    return {IN: value in some, NOT_IN: value not in some, EXISTS: True, NOT_EXISTS: False}[operator]


class TestSyntax:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("a=b", Requirement("a", IN, ("b",))),
            ("a==b", Requirement("a", IN, ("b",))),
            ("a!=b", Requirement("a", NOT_IN, ("b",))),
            ("a in (x,y)", Requirement("a", IN, ("x", "y"))),
            ("a notin (y,x,y)", Requirement("a", NOT_IN, ("x", "y"))),
            ("a in(x)", Requirement("a", IN, ("x",))),
            ("a", Requirement("a", EXISTS)),
            ("!a", Requirement("a", NOT_EXISTS)),
            ("a>1", Requirement("a", Operator.GREATER, ("1",))),
            ("a < 007", Requirement("a", Operator.LESS, ("007",))),
            ("a=", Requirement("a", IN, ("",))),
            ("a!=", Requirement("a", NOT_IN, ("",))),
            ("a in ()", Requirement("a", IN, ("",))),
            ("a in (,x)", Requirement("a", IN, ("", "x"))),
            ("a in (x,)", Requirement("a", IN, ("", "x"))),
            ("a in (x,,y)", Requirement("a", IN, ("", "x", "y"))),
            ("a in (,)", Requirement("a", IN, ("",))),
            ("in in (in,notin)", Requirement("in", IN, ("in", "notin"))),
            ("notin=in", Requirement("notin", IN, ("in",))),
            ("notin", Requirement("notin", EXISTS)),
            ("!in", Requirement("in", NOT_EXISTS)),
            ("example.com/tier=gold", Requirement("example.com/tier", IN, ("gold",))),
            ("\t a \r\n = \n b ", Requirement("a", IN, ("b",))),
        ],
    )
    def test_a_requirement_is_parsed_as_in_kubernetes(self, text: str, expected: Requirement) -> None:
        assert parse(text) == Selector((expected,))

    @pytest.mark.parametrize("text", ["", " ", "\n\t"])
    def test_an_empty_selector_selects_everything(self, text: str) -> None:
        assert parse(text) == Selector()
        assert parse(text).matches({})

    def test_commas_join_requirements_in_their_order(self) -> None:
        assert parse("b=1,!a,c in (x,y),a=").requirements == (
            Requirement("b", IN, ("1",)),
            Requirement("a", NOT_EXISTS),
            Requirement("c", IN, ("x", "y")),
            Requirement("a", IN, ("",)),
        )

    @given(st.lists(requirements, max_size=5), blanks)
    def test_a_written_requirement_is_parsed_back(self, selector: list[Requirement], blank: str) -> None:
        text = ",".join(written(requirement, blank) for requirement in selector)

        assert parse(text) == Selector(tuple(selector))

    @given(selectors)
    def test_a_rendered_selector_is_parsed_back(self, selector: Selector) -> None:
        assert parse(str(selector)) == selector


class TestErrors:
    @pytest.mark.parametrize(
        ("text", "column", "message"),
        [
            (",a", 1, 'expected a label or !, got ","'),
            ("a,", 3, "expected a label or !, got the end"),
            ("a,,b", 3, 'expected a label or !, got ","'),
            ("!", 2, "expected a label, got the end"),
            ("!!a", 2, 'expected a label, got "!"'),
            ("=b", 1, 'expected a label or !, got "="'),
            ("!a=b", 3, 'expected a comma or the end, got "="'),
            ("a b", 3, 'expected one of =, ==, !=, in, notin, <, >, got "b"'),
            ("a(", 2, 'expected one of =, ==, !=, in, notin, <, >, got "("'),
            ("a===b", 4, 'expected a value, got "="'),
            ("a=b c", 5, 'expected a comma or the end, got "c"'),
            ("a=!b", 3, 'expected a value, got "!"'),
            ("a in x", 6, 'expected "(", got "x"'),
            ("a in", 5, 'expected "(", got the end'),
            ("a in (x", 8, 'expected a comma or ")", got the end'),
            ("a in (", 7, "expected a value, got the end"),
            ("a in (x y)", 9, 'expected a comma or ")", got "y"'),
            ("a in (x))", 9, 'expected a comma or the end, got ")"'),
            ("a>b", 3, 'expected an integer of at most 64 bits, got "b"'),
            ("a>", 3, "expected an integer of at most 64 bits, got the end"),
            ("a>,b", 3, 'expected an integer of at most 64 bits, got ","'),
            ("a<9223372036854775808", 3, 'expected an integer of at most 64 bits, got "9223372036854775808"'),
        ],
    )
    def test_an_error_names_the_column_and_what_was_expected(self, text: str, column: int, message: str) -> None:
        with pytest.raises(SelectorError) as caught:
            parse(text)

        assert (caught.value.column, caught.value.message) == (column, message)
        assert str(caught.value) == f"{message} (column {column})"

    @pytest.mark.parametrize(
        ("text", "column"),
        [
            ("-a", 1),
            ("a.", 1),
            ("a=b,é", 5),
            ("a\0", 1),
            ("A.com/a", 1),
            ("/a", 1),
            ("a/", 1),
            ("a/b/c", 1),
            (f"{'a' * 64}=x", 1),
            (f"{'a' * 254}/b", 1),
            ("a=-b", 3),
            ("a=b/c", 3),
            (f"a={'b' * 64}", 3),
            ("a in (x,_y)", 9),
            ("a=b\N{NO-BREAK SPACE}", 3),
            ("a>-1", 3),
        ],
    )
    def test_an_invalid_key_or_value_is_rejected(self, text: str, column: int) -> None:
        with pytest.raises(SelectorError) as caught:
            parse(text)

        assert caught.value.column == column

    @pytest.mark.parametrize("text", [f"{'a' * 63}={'b' * 63}", f"{'a' * 253}/{'b' * 63}"])
    def test_the_longest_key_and_value_are_accepted(self, text: str) -> None:
        assert len(parse(text).requirements) == 1

    def test_a_long_word_is_not_repeated_whole(self) -> None:
        with pytest.raises(SelectorError) as caught:
            parse("a" * labels.MAX_LENGTH)

        assert len(str(caught.value)) < 600

    @given(st.text(alphabet="ab/in ot=!(),<>1-é\0\n", max_size=24))
    def test_any_string_is_a_selector_or_an_error_with_a_position(self, text: str) -> None:
        try:
            parse(text)
        except SelectorError as error:
            assert 1 <= error.column <= len(text) + 1


class TestLimits:
    def test_a_selector_has_at_most_4096_characters(self) -> None:
        assert parse("a" + " " * (labels.MAX_LENGTH - 1))

        with pytest.raises(SelectorError, match="at most 4096 characters, got 4097") as caught:
            parse("a" + " " * labels.MAX_LENGTH)
        assert caught.value.column == labels.MAX_LENGTH + 1

    def test_a_selector_has_at_most_32_requirements(self) -> None:
        assert len(parse(",".join(["a"] * 32)).requirements) == 32

        with pytest.raises(SelectorError, match=r"at most 32 requirements \(column 65\)"):
            parse(",".join(["a"] * 33))

    def test_a_selector_has_at_most_100_values_in_all(self) -> None:
        fifty = ",".join(f"v{index}" for index in range(50))
        assert len(parse(f"a in ({fifty}),b notin ({fifty})").requirements) == 2

        with pytest.raises(SelectorError, match="at most 100 values"):
            parse(f"a in ({fifty}),b notin ({fifty}),c=d")


class TestMatching:
    @pytest.mark.parametrize(
        ("selector", "selected"),
        [
            ("region=us-east", True),
            ("region=us-west", False),
            ("region in (us-west,us-east)", True),
            ("region notin (us-west)", True),
            ("region!=us-east", False),
            ("region", True),
            ("!region", False),
            ("empty=", True),
            ("empty!=", False),
            ("absent=", False),
            ("absent in (,x)", False),
            ("absent!=x", True),
            ("absent notin (,x)", True),
            ("absent", False),
            ("!absent", True),
            ("cores>7", True),
            ("cores>8", False),
            ("cores<9", True),
            ("cores<8", False),
            ("region>1", False),
            ("region<1", False),
            ("absent<1", False),
            ("empty<1", False),
            ("region=us-east,cores>7,!absent", True),
            ("region=us-east,cores>8,!absent", False),
        ],
    )
    def test_a_selector_selects_as_in_kubernetes(self, selector: str, selected: bool) -> None:
        resource = {"region": "us-east", "cores": "008", "empty": ""}

        assert parse(selector).matches(resource) is selected

    def test_a_bound_that_is_not_an_integer_selects_nothing(self) -> None:
        assert not Selector((Requirement("cores", Operator.LESS, ("many",)),)).matches({"cores": "8"})

    @given(requirements, st.dictionaries(keys, values, max_size=3), values)
    def test_a_requirement_and_its_negation_partition_the_fleet(
        self, requirement: Requirement, own: dict[str, str], value: str
    ) -> None:
        opposites = {IN: NOT_IN, NOT_IN: IN, EXISTS: NOT_EXISTS, NOT_EXISTS: EXISTS}
        opposite = opposites.get(requirement.operator)
        for resource in (own, {**own, requirement.key: value}):
            if opposite is not None:
                other = Requirement(requirement.key, opposite, requirement.values)
                assert Selector((requirement,)).matches(resource) is not Selector((other,)).matches(resource)
            elif as_integer(resource.get(requirement.key, "")) is None:
                assert not Selector((requirement,)).matches(resource)

    @given(selectors, st.dictionaries(keys, values, max_size=3))
    def test_more_requirements_never_select_more(self, selector: Selector, own: dict[str, str]) -> None:
        if selector.matches(own):
            shorter = (selector.requirements[:size] for size in range(len(selector.requirements)))
            assert all(Selector(each).matches(own) for each in shorter)

    @given(selectors, st.dictionaries(keys, st.one_of(values, integers), max_size=3), st.data())
    def test_every_evaluation_agrees_with_the_model(
        self, selector: Selector, own: dict[str, str], data: st.DataObject
    ) -> None:
        # Random labels almost never match a selector.
        for requirement in selector.requirements:
            if data.draw(st.booleans()):
                own[requirement.key] = data.draw(st.one_of(st.sampled_from(requirement.values or ("",)), integers))

        assert selector.matches(own) is all(model(each, own) for each in selector.requirements)

    def test_no_requirement_selects_everything(self) -> None:
        everything = Selector()

        assert not everything
        assert everything.matches({})
        assert everything.matches({"region": "us-east"})

    def test_every_requirement_must_hold(self) -> None:
        both = Selector((US_EAST, PRODUCTION))

        assert both
        assert both.matches({"region": "us-east", "environment": "production", "tier": "gold"})
        assert not both.matches({"region": "us-east", "environment": "staging"})

    @given(free_selectors, st.randoms())
    def test_the_order_of_requirements_changes_neither_shard_nor_selection(
        self, selector: Selector, random: Random
    ) -> None:
        shuffled = list(selector.requirements)
        random.shuffle(shuffled)
        other = Selector(tuple(shuffled))
        own = {each.key: each.values[0] for each in selector.requirements}

        assert other.shard == selector.shard
        assert other.matches(own) == selector.matches(own)


class TestRendering:
    def test_the_labels_parameter_keeps_the_order_of_the_file(self) -> None:
        selector = Selector((US_EAST, PRODUCTION))

        assert selector.as_parameter(SelectorParam.LABELS) == "region=us-east,environment=production"

    @pytest.mark.parametrize(
        ("text", "rendered"),
        [
            ("a==b", "a=b"),
            ("a in (b)", "a=b"),
            ("a=", "a="),
            ("a in (y,x)", "a in (x,y)"),
            ("a in (,x)", "a in (,x)"),
            ("a!=b", "a notin (b)"),
            ("a notin ()", "a notin ()"),
            ("a", "a"),
            ("! a", "!a"),
            ("a > 1", "a>1"),
            ("a<007", "a<007"),
        ],
    )
    def test_each_requirement_has_one_text(self, text: str, rendered: str) -> None:
        assert parse(text).as_labels_parameter() == rendered

    def test_values_invalid_in_kubernetes_are_rendered_unchanged(self) -> None:
        selector = Selector((equality("owner", "o'brien & sons"), equality("note", "x" * 100)))

        assert selector.as_labels_parameter() == f"owner=o'brien & sons,note={'x' * 100}"

    def test_the_search_parameter_is_an_expression(self) -> None:
        selector = Selector((US_EAST, PRODUCTION))

        parameter = selector.as_parameter(SelectorParam.SEARCH)

        assert parameter == "labels.region='us-east' and labels.environment='production'"

    def test_a_quote_in_a_search_is_doubled(self) -> None:
        selector = Selector((equality("owner", "o'brien's"),))

        assert selector.as_search_parameter() == "labels.owner='o''brien''s'"

    @pytest.mark.parametrize(
        ("text", "searched"),
        [
            ("", ""),
            ("a=b", "labels.a='b'"),
            ("a=", "labels.a=''"),
            ("a!=b", "labels.a!='b'"),
            ("a in (b,c)", "labels.a in ('b','c')"),
            ("a notin (b,c)", "not (labels.a in ('b','c'))"),
            ("a notin (b,c),d=e", "not (labels.a in ('b','c')) and labels.d='e'"),
        ],
    )
    def test_equalities_and_sets_are_expressed_in_a_search(self, text: str, searched: str) -> None:
        assert parse(text).as_search_parameter() == searched

    @pytest.mark.parametrize("text", ["a", "!a", "a>1", "a<1"])
    def test_a_requirement_without_a_search_expression_is_rejected(self, text: str) -> None:
        with pytest.raises(NotSearchable) as caught:
            parse(f"b=c,{text}").as_search_parameter()

        assert str(caught.value) == f'expected a selector of =, !=, in and notin for a search, got "{text}"'
        assert caught.value.requirement == parse(text).requirements[0]

    def test_a_shard_is_named_after_its_sorted_labels(self) -> None:
        assert Selector((US_EAST, PRODUCTION)).shard == "environment=production,region=us-east"

    def test_a_shard_of_equalities_is_sorted_as_text(self) -> None:
        selector = Selector((equality("region", "us"), equality("region-zone", "a")))

        assert selector.shard == "region-zone=a,region=us"

    def test_the_shard_without_requirements_is_all(self) -> None:
        assert Selector().shard == "all"

    def test_a_shard_of_any_requirements_is_sorted_by_key(self) -> None:
        selector = parse("!x,region in (b,a),env notin (dev),env-2=y,cores>2,cores<8")

        assert selector.shard == "cores<8,cores>2,env notin (dev),env-2=y,region in (a,b),!x"

    def test_a_set_of_one_value_means_an_equality(self) -> None:
        written_as_set = Requirement("region", Operator.IN, ("a",), is_set=True)
        selector = Selector((written_as_set, equality("env-2", "b"), equality("env", "b")))

        assert selector.shard == "env=b,env-2=b,region in (a)"
        assert selector.as_labels_parameter() == "region=a,env-2=b,env=b"
        assert selector.normalized == Selector((equality("region", "a"), *selector.requirements[1:])).normalized


class TestIntegers:
    @pytest.mark.parametrize(
        "value", ["", "x", "-1", "+1", "1.0", "1_0", "²", "٣", "9223372036854775808", "1" * 64]
    )
    def test_any_other_value_is_none(self, value: str) -> None:
        assert as_integer(value) is None

    def test_leading_zeros_are_ignored(self) -> None:
        assert as_integer("0" * 62 + "7") == 7

    def test_the_largest_has_63_bits(self) -> None:
        assert as_integer("9223372036854775807") == 2**63 - 1


class TestOwnLabels:
    def test_no_labels_are_valid(self) -> None:
        assert check_labels({}) == []

    @given(st.dictionaries(keys, values, max_size=5))
    def test_a_selectable_label_is_valid(self, own: dict[str, str]) -> None:
        assert check_labels(own) == []

    def test_every_invalid_label_is_named(self) -> None:
        problems = check_labels({"good": "x", "-bad": "x", "value": "not this"})

        assert [field for field, _ in problems] == ["labels.-bad", "labels.value"]
        assert 'got "-bad"' in problems[0][1]
        assert 'got "not this"' in problems[1][1]

    @pytest.mark.parametrize("key", ["", "a b", "a=b", "a,b", "a" * 64, "UPPER.com/a", "é", "a\n"])
    def test_an_invalid_key_is_rejected(self, key: str) -> None:
        assert check_labels({key: "x"})[0][0] == f"labels.{key}"

    @pytest.mark.parametrize("value", [" ", "x" * 64, "a/b", "-a", "a\n", "\0"])
    def test_an_invalid_value_is_rejected(self, value: str) -> None:
        assert check_labels({"key": value})[0][0] == "labels.key"

    def test_a_resource_has_at_most_64_labels(self) -> None:
        assert check_labels({f"k{index}": "" for index in range(64)}) == []

        assert check_labels({f"k{index}": "" for index in range(65)}) == [
            ("labels", "expected at most 64 labels, got 65")
        ]

    def test_a_huge_key_is_not_repeated_whole(self) -> None:
        ((field, message),) = check_labels({"k" * 100_000: "x"})

        assert len(field) < 400
        assert len(message) < 600

    @given(st.text(max_size=12), st.text(max_size=12))
    def test_a_label_is_valid_exactly_if_it_can_be_selected(self, key: str, value: str) -> None:
        selected = None
        with suppress(SelectorError):
            selected = parse(f"{key}={value}")

        is_selectable = selected == Selector((equality(key, value),))
        assert is_selectable is (check_labels({key: value}) == [])

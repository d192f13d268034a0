"""The page of the proxy's configuration, from the table of its schema."""

from __future__ import annotations

from collections.abc import Iterator

from sentinel.core import kdl
from sentinel.core.proxy.problem import Severity
from sentinel.core.proxy.schema import CURRENT, Entry, Repeated, Row
from sentinel.core.proxy.schema.types import MAX_INTEGER, Choice, Either, Integer, ValueType

_INTRODUCTION = """\
What the proxy reads, in [KDL 2](https://kdl.dev). `sentinel hub config check FILE` compares a file with this page.

- **value** is what stands after the name: `worker-threads 4`. `name=` is a property, `…` means one or more values,
  `{ }` a block of children. A part in brackets may be left out.
- A value of another type is an error. A name that is not on this page is a warning, because the proxy ignores it,
  except where a block says that it is an error.
- **proxy** says `yes` where [`sentinel proxy`](commands.md), the small one, implements it.
- A change of `system` or `listeners` takes effect after a restart of the proxy, any other after a reload.
- `cert` and `key` take their value from exactly one source: `secret=` is a secret of the hub, `env=` a variable of
  the agent, `vault=` a path and a field in Vault. The agent writes the files that the proxy reads.
- `include` is an error, because a version of a configuration is one text.

"""


def proxy_page(generated: str) -> str:
    """Return the whole page."""
    major, minor = CURRENT.version
    described: dict[tuple[Row, ...], str] = {}
    sections = "\n".join(_section(each, described) for each in CURRENT.top.rows)
    heading = f"# The proxy's configuration\n\n{generated}Version {major}.{minor} of the schema.\n\n"
    return f"{heading}{_INTRODUCTION}{sections}"


def _section(row: Row, described: dict[tuple[Row, ...], str]) -> str:
    required = ("Required.",) if row.is_required else ()
    restart = ("A change needs a restart.",) if row.needs_restart else ()
    lines = [f"## `{row.name}`", "", " ".join((row.description, *required, *_remarks(row), *restart)), ""]
    if row.is_deprecated:
        return "\n".join((*lines, f"Its block is that of [`{row.instead}`](#{row.instead}).", ""))
    if row.arguments:
        lines += [f"Value: {_line(row)}.", ""]
    if row.rows:
        described[row.rows] = row.name
        lines += ["| name | value | default | description | proxy |", "|---|---|---|---|---|"]
        lines += _table(row.rows, f"{row.name}.", described)
        lines.append("")
    return "\n".join(lines)


def _table(rows: tuple[Row, ...], path: str, described: dict[tuple[Row, ...], str]) -> Iterator[str]:
    """Yield a line for each row and those below it. A block that is on the page already is named, not repeated."""
    for row in rows:
        here = f"{path}{row.name}"
        default = "required" if row.is_required else _default(row)
        same = described.setdefault(row.rows, here) if row.rows else here
        remarks = tuple(_remarks(row)) if same == here else (f"Its block is that of `{same}`.",)
        description = " ".join((row.description, *remarks))
        implemented = "yes" if row.implemented else ""
        yield f"| `{here.partition('.')[2]}` | {_line(row)} | {default} | {_cell(description)} | {implemented} |"
        if same == here:
            yield from _table(row.rows, f"{here}.", described)


def _line(row: Row) -> str:
    """Return what stands on the line of a node."""
    parts = [_entry(each) for each in row.arguments]
    parts += [_property(each, row) for each in row.properties]
    if row.rows or row.is_open:
        parts.append("`{ }`")
    return " ".join(parts)


def _entry(entry: Entry) -> str:
    text = _type(entry.type) + (" …" if entry.is_many else "")
    if entry.refers_to is not None:
        text = f"id of {entry.refers_to}" + (" …" if entry.is_many else "")
    elif entry.name == "id":
        text = "id"
    return text if entry.is_required else f"[{text}]"


def _property(entry: Entry, row: Row) -> str:
    return f"`{entry.name}=`" if entry.is_required or row.one_property else f"[`{entry.name}=`]"


def _type(type_: ValueType) -> str:
    match type_:
        case Choice(values=values):
            return ", ".join(f"`{each}`" for each in values)
        case Either(types=types):
            return " or ".join(_type(each) for each in types)
        case Integer(minimum=0, maximum=maximum, unit=unit) if unit and maximum == MAX_INTEGER:
            return unit
    return type_.expected.removeprefix("an ").removeprefix("a ")


def _default(row: Row) -> str:
    return "" if row.default is None else f"`{kdl.print_value(kdl.Value(row.default))}`"


def _remarks(row: Row) -> Iterator[str]:
    if row.required_when is not None:
        yield f"Required where {row.required_when.sibling} is {' or '.join(row.required_when.values)}."
    elif row.read_when is not None:
        yield f"Read where {row.read_when.sibling} is {' or '.join(row.read_when.values)}."
    if row.is_required and row.unless:
        yield f"Not required with {' or '.join(f'`{name}`' for name in row.unless)}."
    if row.repeated is Repeated.ALL and row.is_read:
        yield "May be repeated."
    if row.unknown is Severity.ERROR:
        yield "Other names in it are an error."
    for group in row.at_least_one:
        yield f"Needs {' or '.join(f'`{name}`' for name in group)}."
    for group in row.at_most_one:
        yield f"Only one of {' and '.join(f'`{name}`' for name in group)}."


def _cell(text: str) -> str:
    return text.replace("|", "\\|")

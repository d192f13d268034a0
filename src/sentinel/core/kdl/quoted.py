"""Quoted, raw and multi-line strings, and what people write instead of them.

A string that is not closed ends at the end of its line, unless a quote on a later line looks like its end: then
it is a string of version 1, which may contain line ends. Every search either consumes what it searched, stops at
the next quote, or is not repeated, so that the time is linear in the size of the document.
"""

from __future__ import annotations

import re
from typing import Final, assert_never

from sentinel.core.kdl import strings
from sentinel.core.kdl.characters import NEWLINE, NEWLINES, SPACES
from sentinel.core.kdl.lost_quotes import BEFORE_OPENING, LostQuote
from sentinel.core.kdl.problems import MAX_PROBLEMS, Code, shortened
from sentinel.core.kdl.source import LaterQuote, Source

_LINE: Final = re.compile(f"[^{NEWLINES}]*+")
_BODY: Final = re.compile(rf'(?:[^"\\{NEWLINES}]++|\\(?:[{SPACES}{NEWLINES}]++|(?s:.)))*+')
_BODY_WITH_NEWLINES: Final = re.compile(r'(?:[^"\\]++|\\(?s:.))*+')
_MULTILINE_BODY: Final = re.compile(r'(?:[^"\\]++|\\(?s:.)|"(?!""))*+')
_ESCAPED_QUOTES: Final = re.compile(rf'\\"([^"\\{NEWLINES}]*+)\\"')
_RAW_QUOTE: Final = re.compile(r'"#|#"')
_AFTER_STRING: Final = re.compile(rf"[{SPACES}{NEWLINES};}})=\\,\]]|/[/*-]|\Z")
_ALMOST_CLOSING: Final = re.compile(rf'[{NEWLINES}][{SPACES}]*+(""(?!")#*+|"""#*+)(?=[{SPACES}{NEWLINES};}})]|\Z)')
_STOP: Final = re.compile(f'["{NEWLINES}]')
_SPACE: Final = re.compile(f"[{SPACES}]")
_THREE: Final = '"""'


def read(source: Source, opening: str) -> tuple[str, int]:
    """Return the value of the current string, and where it ends. `opening` goes up to its first quote."""
    start = source.start + len(opening)
    if opening.startswith("r"):
        return _version_1_raw(source, start, opening.count("#"))
    hashes = opening[:-1]
    if source.text.startswith('""', start):
        return _multiline(source, start + 2, hashes)
    if hashes:
        return _raw(source, start, hashes)
    return _escaped(source, start)


def read_after_backslash(source: Source) -> tuple[str, int]:
    """Return the value of a string whose quotes are escaped, as in a shell, and where it ends."""
    found = _ESCAPED_QUOTES.match(source.text, source.start)
    source.report(
        Code.BAD_ESCAPE,
        source.start,
        'expected a quote, got \\", which belongs inside of a string',
        'write " without the backslash',
    )
    if found is None:
        source.edit(source.start, source.start + 1, "")
        return _escaped(source, source.start + 2)
    source.edit(source.start, found.end(), strings.quote(found[1]))
    return found[1], found.end()


def read_lost(source: Source, lost: LostQuote) -> str:
    """Report a string of which a quote is missing, and return its value."""
    source.has_open_string = True
    value = source.text[lost.body_start : lost.body_end]
    if "#" not in source.text[lost.start : lost.body_start]:
        _report_bad_escapes(source, lost.body_start, lost.body_end)
        value = strings.unescape(value)
    value = strings.without_letter(value, 0 if lost.is_opening else -1)
    expected = "a quote before" if lost.is_opening else "a quote after"
    source.report(
        Code.UNCLOSED_STRING,
        lost.start,
        f"expected {expected} {shortened(source.text[lost.start : lost.end])}, got none",
        f"write {shortened(strings.quote(value))}",
    )
    return value


def read_lost_opening(source: Source) -> tuple[str, int]:
    """Report a multi-line string that starts with two quotes, and return its value and end."""
    message = f'expected {_THREE} before the lines of a text, got ""'
    source.report(Code.UNCLOSED_STRING, source.start, message, f"write {_THREE}")
    return _multiline(source, source.start + 2, "")


def _escaped(source: Source, start: int) -> tuple[str, int]:
    text = source.text
    end = _end(_BODY, text, start)
    if not text.startswith('"', end):
        later = _later_quote(source, end)
        if later is None:
            return _unclosed(source, start, '"')
        end = later
        value = strings.unescape(text[start:end])
        source.edit(source.start, end + 1, strings.quote(value))
        _report_newline(source, '"""')
        return value, end + 1
    _report_bad_escapes(source, start, end)
    return strings.unescape(text[start:end]), end + 1


def _raw(source: Source, start: int, hashes: str) -> tuple[str, int]:
    text, closing = source.text, '"' + hashes
    line_end = len(text)
    for stop in _STOP.finditer(text, start):
        if text.startswith(closing, stop.start()):
            return text[start : stop.start()], stop.start() + len(closing)
        if stop[0] != '"':
            line_end = stop.start()
            break
    following = _RAW_QUOTE.search(text, line_end)
    if following is None or not text.startswith(closing, following.start()):
        return _unclosed(source, start, closing)
    end = following.start()
    source.edit(source.start, end + len(closing), strings.quote(text[start:end]))
    _report_newline(source, hashes + _THREE)
    return text[start:end], end + len(closing)


def _version_1_raw(source: Source, start: int, count: int) -> tuple[str, int]:
    text, closing = source.text, '"' + "#" * count
    end = _find(source, closing, start) if source.is_version_1 else _version_1_end(source, start, closing)
    if end < 0:
        return _unclosed(source, start, closing)
    value = text[start:end]
    hashes = "#" * max(1, count)
    is_literal = NEWLINE.search(value) is None and not value.startswith('"')
    written = f'{hashes}"{value}"{hashes}' if is_literal else strings.quote(value)
    source.edit(source.start, end + len(closing), written)
    message = (
        f"expected a raw string of KDL 2, got one of version 1: {shortened(text[source.start : end])}{closing}"
    )
    source.report(Code.VERSION_1_RAW_STRING, source.start, message, f"write {shortened(written)}")
    return value, end + len(closing)


def _version_1_end(source: Source, start: int, closing: str) -> int:
    """Return where a raw string of version 1 ends, or -1. On another line that has to look like its end."""
    text, line_end = source.text, _end(_LINE, source.text, start)
    end = text.find(closing, start, line_end)
    if end >= 0:
        return end
    if closing == '"':
        end = text.find(closing, line_end)
        return end if end >= 0 and _closes(text, end) else -1
    following = _RAW_QUOTE.search(text, line_end)
    return following.start() if following is not None and text.startswith(closing, following.start()) else -1


def _multiline(source: Source, start: int, hashes: str) -> tuple[str, int]:
    text, closing = source.text, _THREE + hashes
    end = _find(source, closing, start) if hashes else _end(_MULTILINE_BODY, text, start)
    is_closed = end >= 0 and text.startswith(closing, end)
    value = strings.dedent(text[start:end], is_raw=bool(hashes)) if is_closed else None
    if not isinstance(value, str) and (lost := _lost_closing(source, start, end, hashes)) is not None:
        return lost
    if value is None:
        source.is_cut = True
        source.report(
            Code.UNCLOSED_STRING,
            source.start,
            f"expected {closing} after this {hashes}{_THREE}, got the end of the file",
            f"write {closing} on a line of its own",
        )
        return text[start:], len(text)
    if not hashes:
        _report_bad_escapes(source, start, end)
    if not isinstance(value, str):
        fault, line = value
        _report_fault(source, fault, line, start, end, hashes)
        value = text[start:end]
    return value, end + len(closing)


def _lost_closing(source: Source, start: int, end: int, hashes: str) -> tuple[str, int] | None:
    """Return the value and end of a multi-line string that has all but one character of its closing quotes."""
    text, closing = source.text, _THREE + hashes
    found = _ALMOST_CLOSING.search(text, start, len(text) if end < 0 else end)
    while found is not None and len(found[1]) != len(closing) - 1:
        found = _ALMOST_CLOSING.search(text, found.end(), len(text) if end < 0 else end)
    if found is None:
        return None
    value = strings.dedent(text[start : found.start(1)], is_raw=bool(hashes))
    if not isinstance(value, str):
        return None
    if not hashes:
        _report_bad_escapes(source, start, found.start(1))
    message = f"expected {closing} after the lines of a text, got {found[1]}"
    source.report(Code.UNCLOSED_STRING, found.start(1), message, f"write {closing}")
    return value, found.end()


def _report_bad_escapes(source: Source, start: int, end: int) -> None:
    for offset, escape in strings.bad_escapes(source.text, start, end):
        if source.is_replaced(escape) or escape == "\\":  # at the end of a string without an end
            continue
        if escape == "\\/":
            suggestion = "write / without the backslash"
            source.edit(offset, offset + 2, "/")
        elif escape.startswith("\\u"):
            suggestion = "write one to six hexadecimal digits of a Unicode scalar value, such as \\u{e9}"
        else:
            suggestion = 'write \\\\ for a backslash, or a raw string: #"…"#'
        source.report(
            Code.BAD_ESCAPE,
            offset,
            f'expected an escape such as \\n, \\t, \\s, \\", \\\\ or \\u{{e9}}, got {shortened(escape)}',
            suggestion,
        )


def _report_newline(source: Source, quotes: str) -> None:
    source.report(
        Code.NEWLINE_IN_STRING,
        source.start,
        "expected the closing quote on the same line, got the end of the line",
        f"write \\n for a line end, or {quotes} on lines of their own around the text",
    )


def _report_fault(source: Source, fault: strings.Fault, line: int, start: int, end: int, hashes: str) -> None:
    """Report why a multi-line string is invalid."""
    text, quotes = source.text, hashes + _THREE
    match fault:
        case strings.Fault.NO_FIRST_NEWLINE:
            is_one_line = NEWLINE.search(text, start, end) is None
            source.report(
                Code.BAD_MULTILINE_STRING,
                source.start,
                f"expected the end of the line after {quotes}, got text",
                "write one quote on either side of a string on one line"
                if is_one_line
                else f"start the text on the line after {quotes}",
            )
        case strings.Fault.NO_LAST_NEWLINE:
            source.report(
                Code.BAD_MULTILINE_STRING,
                end,
                f"expected only white space before the closing {_THREE}{hashes}, got text",
                f"write {_THREE}{hashes} on a line of its own",
            )
        case strings.Fault.INDENTATION:
            # A white space escape may have joined lines, and then nobody can tell which line it was.
            is_exact = bool(hashes) or "\\" not in text[start:end]
            starts = [start, *(found.end() for found in NEWLINE.finditer(text, start, end))] if is_exact else []
            source.report(
                Code.BAD_INDENTATION,
                starts[line] if is_exact else source.start,
                f"expected every line to be indented like the closing {_THREE}{hashes}, got a line that is not",
                f"indent all lines with the white space that stands before {_THREE}{hashes}",
            )
        case _:
            assert_never(fault)


def _unclosed(source: Source, start: int, closing: str) -> tuple[str, int]:
    """Report a string without an end. It ends with its line."""
    source.has_open_string = True
    source.report(
        Code.UNCLOSED_STRING,
        source.start,
        f"expected {closing} on the same line, got the end of the line",
        f"write {closing} where the string ends",
    )
    end = _end(_LINE, source.text, start)
    if len(source.open_strings) < MAX_PROBLEMS:
        source.open_strings.append((source.line_piece, end))
    return source.text[start:end], end


def _later_quote(source: Source, line_end: int) -> int | None:
    """Return where a string that goes on after the end of its line ends, or None if it does not look like one."""
    if not source.is_version_1 and source.start and not BEFORE_OPENING.match(source.text, source.start - 1):
        return None  # the closing quote of a string without its opening one
    if source.later_quote is None or not source.later_quote.start <= line_end <= source.later_quote.quote:
        quote = _end(_BODY_WITH_NEWLINES, source.text, line_end)
        source.later_quote = LaterQuote(line_end, quote, _closes(source.text, quote))
    later = source.later_quote
    if not source.text.startswith('"', later.quote):
        return None
    return later.quote if later.closes or source.is_version_1 else None


def _closes(text: str, quote: int) -> bool:
    """Whether a quote looks like the end of a string that started on an earlier line."""
    if _AFTER_STRING.match(text, quote + 1) is None:
        return False
    before = quote - 1
    while before > 0 and _SPACE.match(text, before):
        before -= 1
    is_alone = NEWLINE.match(text, before) is not None
    is_after_text = before == quote - 1 and text[before] not in "=("
    return is_alone or is_after_text


def _find(source: Source, closing: str, start: int) -> int:
    if closing in source.absent:
        return -1
    end = source.text.find(closing, start)
    if end < 0:
        source.absent.add(closing)
    return end


def _end(pattern: re.Pattern[str], text: str, start: int) -> int:
    """Return the end of a pattern that matches the empty text, too."""
    found = pattern.match(text, start)
    return start if found is None else found.end()

"""Masks text that looks like a secret, whatever its source.

Exceptions of tasks and libraries quote what failed: a connection string, a header, a request body as JSON or as
Python writes it. Values that nobody told us about are recognized by what stands before them: a telling name
(`password=`, `"api_key": `), the header `Authorization` or `Cookie`, the word `Bearer`, the user of a URL.

If in doubt, more is masked: a log line with a word too few is better than one with a secret. The texts come from
anywhere and may be long, so no pattern backtracks over more than a bounded number of characters.
"""

from __future__ import annotations

import re

MASK = "***"

_WORDS = "token|passw(?:or[dt]|d)?|passphrase|pwd|secret|signature|credential"
"""Words that mark a name as a secret's. "key" is too common in other names to be one of them."""
_KEYS = r"(?:access|account|api|client|encryption|master|private|secret|shared|signing)[-_ ]?key"
_NAME = rf"(?:{_WORDS}|(?<![a-z])pass|{_KEYS})s?(?:_[0-9]{{1,4}}|_base64|_value)?"
"""The end of a name. TOKEN_FILE and secretName hold no secret."""

_HINTS = ("key", "pass", "pwd", "token", "secret", "signature", "credential")
"""Every telling name contains one of these."""

_SECRET_NAME = re.compile(rf"(?!(?:old)?pwd$).*{_NAME}", re.IGNORECASE | re.DOTALL)

_OPERATOR = r"(?:\\{0,3}[\"'])?\]?[ \t]{0,8}(?:=>|:=|==?|:)[ \t]{0,8}"
"""Between a name and its value. The name may be quoted, and in JSON inside JSON the quote is escaped."""
_QUOTED = (
    # An escaped quote is part of the value, so the end is a quote with as many backslashes as the first.
    r"[bru]{0,2}(?P<quote>\\{0,3}[\"'])"
    r"(?:(?P<closed>(?:[^\\\"']++|(?!(?P=quote))(?:\\++[\"']?|[\"']))*+)(?P=quote)|[^\n]*+)"
)
_BARE = r"(?:[^\s&;\"'<>,)\]}]|(?![\"'][,:}\]])[\"'<>,)\]}]++(?![\s&;]|\Z))++"
"""Up to a space or a separator. Punctuation belongs to the value if the value goes on behind it."""
_LIST = r"[\[{(](?:[^\]})\"'\n]|\"(?:[^\"\\]|\\.)*+\"|'(?:[^'\\]|\\.)*+'|[\"'])*+[\]})]?"
_WORD = r"(?:[^\s\"']|[\"'](?![\s,;)\]}]|\Z))++"

_ASSIGNMENT = re.compile(
    rf"(?P<name>{_NAME})(?P<operator>{_OPERATOR})"
    # In "secret: password: x" the first name has no value.
    rf"(?![\w.-]{{0,64}}{_NAME}[\"']?:[ \t])"
    rf"(?:{_QUOTED}|{_LIST}|(?P<bare>{_BARE}))",
    re.IGNORECASE,
)
_FLAG = re.compile(
    # "--password hunter2", and the same in a list of arguments, which errors of subprocesses quote.
    rf"(?P<name>(?<!-)--[\w-]{{0,24}}?{_NAME})(?P<operator>[\"']?,?[ \t]{{1,8}})(?!-)(?:{_QUOTED}|{_BARE})",
    re.IGNORECASE,
)
_ELEMENT = re.compile(rf"({_NAME}>)[^<>\n]{{1,400}}(?=</)", re.IGNORECASE)
"""`<password>hunter2</password>`"""
_PLAIN_VALUES = re.compile(
    r"true|false|null|none|unset|empty|ok|expected|required|missing|invalid|unknown|wrong|expired|refused|rejected"
    r"|failed|not|no|is|was|must|cannot|has|the|an?",
    re.IGNORECASE,
)
"""Unquoted words that follow a name in a sentence and are not secrets."""
_COUNT = re.compile(r"[0-9]{1,4}")
_PASSWORD = re.compile(r"pass|pwd", re.IGNORECASE)

_HEADER = re.compile(
    rf"(?P<name>\b(?:authorization|(?:set-)?cookie))(?P<operator>{_OPERATOR})"
    r"(?!(?:expected|required|missing|invalid|failed|denied|refused|not|no|is|was|must|cannot)\b)"
    rf"(?:{_QUOTED}"
    r"|(?P<several>(?:digest|aws4-hmac-sha256|hawk|oauth)[ \t][^\n]*+|(?<=cookie:[ ])[^\n]++)"
    rf"|(?P<scheme>(?:basic|bearer|negotiate|token)[ \t]{{1,8}}){_WORD}"
    rf"|{_WORD}(?:[ \t]{_WORD})?)",
    re.IGNORECASE,
)
_SCHEME = re.compile(r"(?:basic|bearer|negotiate|token)[ \t]{1,8}", re.IGNORECASE)
_CREDENTIALS = re.compile(r"(\b(?i:bearer|basic)\s{1,8})(?=\S*[0-9=]|\S+[A-Z])[\w+/.~=-]{6,}")
"""Outside of a header only values with digits or inner capitals, which words lack."""

_URL_PASSWORD = re.compile(r"(://[^/\s:@]*):[^/\s]*@")
_URL_PASSWORD_WITH_SLASH = re.compile(
    r"(://[^/\s:@\"'<>]{0,200}):(?![0-9]{1,5}(?:[/?#\s\"',)]|\Z))[^\s\"'<>@]{0,200}@"
)
_URL_USER = re.compile(r"(\bhttps?://)[^/\s:@\"'<>]{1,200}@")
"""A user without a password is a token where a server accepts one. Brokers and databases have plain names."""
_QUERY = re.compile(
    rf"([?&;][^=&;\s?]{{0,64}}(?:key|{_WORDS})[^=&;\s]{{0,64}}=)"
    r"(?!(?:true|false|null|[0-9]{1,4})(?![^&;\s]))[^&;\s\"'<>)\]}]+",
    re.IGNORECASE,
)
_JWT = re.compile(r"\beyJ[\w-]{8,}+\.[\w-]{8,}+(?:\.[\w-]*+)?")
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----|\Z)", re.DOTALL
)


def is_secret_name(name: str) -> bool:
    """Whether a variable, a field or a key of this name holds a secret."""
    return _SECRET_NAME.fullmatch(name) is not None


def mask_secret_text(text: str) -> str:
    """Return the text with everything masked that looks like a secret."""
    # Searching for literals first is what makes this cheap: most texts have none of them.
    if "://" in text:
        text = _URL_PASSWORD.sub(rf"\1:{MASK}@", text)
        text = _URL_PASSWORD_WITH_SLASH.sub(rf"\1:{MASK}@", text)
        text = _URL_USER.sub(rf"\1{MASK}@", text)
    has_operator = "=" in text or ":" in text or "--" in text or ">" in text
    lowered = text.lower() if has_operator else ""
    if has_operator and ("authorization" in lowered or "cookie" in lowered):
        text = _HEADER.sub(_mask_header, text)
    if has_operator and any(hint in lowered for hint in _HINTS):
        text = _QUERY.sub(rf"\1{MASK}", text)
        text = _ASSIGNMENT.sub(_mask_assignment, text)
        if "--" in text:
            text = _FLAG.sub(_masked, text)
        if "</" in text:
            text = _ELEMENT.sub(rf"\1{MASK}", text)
    if "eyJ" in text:
        text = _JWT.sub(MASK, text)
    if "PRIVATE KEY-----" in text:
        text = _PRIVATE_KEY.sub(MASK, text)
    if " " in text or "\n" in text or "\t" in text:
        text = _CREDENTIALS.sub(rf"\1{MASK}", text)
    return text


def _mask_header(match: re.Match[str]) -> str:
    scheme = match["scheme"] or ""
    if match["closed"] is not None and (found := _SCHEME.match(match["closed"])):
        scheme = found[0]
    return _masked(match, scheme)


def _mask_assignment(match: re.Match[str]) -> str:
    name, bare = match["name"], match["bare"]
    if bare is not None:
        value = bare.rstrip(".:!")
        is_count = _COUNT.fullmatch(value) is not None and _PASSWORD.search(name) is None
        is_directory = name == "PWD" and value.startswith("/")
        if is_count or is_directory or _PLAIN_VALUES.fullmatch(value):
            return match[0]
    elif match["closed"] == "":
        return match[0]
    return _masked(match)


def _masked(match: re.Match[str], kept: str = "") -> str:
    quote = match["quote"] or ""
    closing = quote if match["closed"] is not None else ""
    return f"{match['name']}{match['operator']}{quote}{kept}{MASK}{closing}"

"""The parser: from a text to a document and every problem in it.

After a problem the parser goes on: with the next value where it is clear what was meant, otherwise with the
children of the node or with the next node. One mistake gives one problem. What was meant is noted as an edit,
from which `upgrade` makes a valid document.

It accepts KDL 2.0, and from 2.0.1 a slashdash or a block of children without white space before it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from sentinel.core.kdl import text as texts
from sentinel.core.kdl import wildcards
from sentinel.core.kdl.characters import NEWLINE
from sentinel.core.kdl.document import Document, Node, Place
from sentinel.core.kdl.edits import Edits
from sentinel.core.kdl.entries import Draft, read_annotation, read_entry, skip_equals
from sentinel.core.kdl.lex import (
    NODE_ENDS,
    NODE_ENDS_OR_BLOCK,
    TERMINATORS,
    VALUES,
    Kind,
    Scanner,
)
from sentinel.core.kdl.printer import print_name
from sentinel.core.kdl.problems import Code, Problem, ProblemList, shortened
from sentinel.core.kdl.repairs import RepairingScanner, Repairs
from sentinel.core.kdl.source import REPLACEMENT
from sentinel.core.kdl.values import KEYWORDS, read_name, take, warn_of_url

MAX_DEPTH: Final = 64

_BLANK: Final = frozenset((Kind.SPACE, Kind.NEWLINE, Kind.COMMENT))
_BRACKETS: Final = frozenset("[]")


class Parsed(msgspec.Struct, frozen=True):
    """A document, and what is wrong with it."""

    document: Document
    """What could be read. Complete if there are no problems."""
    problems: tuple[Problem, ...] = ()
    """Ordered by position."""
    warnings: tuple[Problem, ...] = ()
    """What is valid, but hardly meant. By position."""

    @property
    def is_valid(self) -> bool:
        return not self.problems


def read_document(scanner: Scanner) -> Parsed:
    """Read a document as the scanner sees it."""
    parser = _Parser(scanner)
    nodes, is_damaged = parser.nodes()
    is_damaged |= parser.is_misnested or scanner.is_cut
    document = Document(nodes, is_damaged, parser.is_misnested)
    return Parsed(document, scanner.problems.sorted(), scanner.warnings.sorted())


def corrections(source: str) -> Edits:
    """Return what to change where a problem shows what was meant. A string ends where version 1 saw its end."""
    if texts.size_of(source) > texts.MAX_BYTES:
        return Edits()
    edits, open_comment = _corrections(source, Repairs())
    if open_comment is not None and (paths := wildcards.find(source, open_comment)):
        edits, _ = _corrections(source, Repairs(wildcards=paths))
    return edits


def _corrections(source: str, repairs: Repairs) -> tuple[Edits, int | None]:
    """Return what to change, and where a comment without an end starts."""
    edits, problems = Edits(), ProblemList()
    text = texts.read(source, problems, edits=edits)
    scanner = RepairingScanner(text.text, problems, start=text.start, repairs=repairs, edits=edits)
    _Parser(scanner, keeps_nodes=False).nodes()
    return edits, scanner.open_comment


class _Parser:
    def __init__(self, scanner: Scanner, *, keeps_nodes: bool = True) -> None:
        self._scanner = scanner
        self._keeps_nodes = keeps_nodes
        """Nodes and edits together would weigh more than a hundred times the file."""
        self._depth = 0
        self._suspect: Place | None = None
        """The first block whose closing brace is indented like that of another."""
        self._unopened: int | None = None
        """The first line of a node that has no block although the next node is indented."""
        self.is_misnested = False
        """Whether a brace is missing, or is one too many."""

    def nodes(self) -> tuple[tuple[Node, ...], bool]:
        """Read nodes up to the end of the block or file. Returns them, and whether one is missing."""
        scanner, found, is_damaged = self._scanner, list[Node](), False
        while True:
            kind = scanner.kind
            if kind in _BLANK:
                scanner.advance()
            elif kind is Kind.END or (kind is Kind.CLOSE and self._depth):
                return tuple(found), is_damaged
            elif kind is Kind.CLOSE:
                suggestion = "remove it"
                if self._unopened is not None:
                    suggestion += f", or write {{ at the end of line {self._unopened}: the next one is indented"
                message = "expected a node, got } without a block to close"
                scanner.report_here(Code.UNOPENED_BLOCK, message, suggestion)
                self.is_misnested = True
                scanner.advance()
                scanner.skip(Kind.SEMICOLON)
            elif kind is Kind.SEMICOLON:
                scanner.report_here(Code.UNEXPECTED, "expected a node, got ;", "remove it")
                scanner.edit(scanner.start, scanner.end, "")
                scanner.advance()
            elif kind is Kind.SLASHDASH:
                self._slashdash()
                if scanner.kind in NODE_ENDS:
                    scanner.report_here(
                        Code.BAD_SLASHDASH, f"expected a node after /-, got {scanner.got()}", "remove /-"
                    )
                    scanner.skip(Kind.SEMICOLON)
                else:
                    self._node()
            elif (kind is Kind.KEYWORD and scanner.value not in KEYWORDS) or (
                kind is Kind.OTHER and scanner.text.startswith("/ ", scanner.start)
            ):
                self._other_comment()
            elif kind is Kind.WORD and scanner.text.startswith("*/", scanner.start):
                self._stray_comment_end()
            elif kind is Kind.OPEN and found and found[-1].block is None and found[-1].line < scanner.line:
                found[-1] = self._late_block(found[-1])
            else:
                node = self._node()
                if node is None:
                    is_damaged = True
                elif self._keeps_nodes:
                    if found and node.column > found[-1].column and node.line > found[-1].line:
                        self._note_indented(found[-1])
                    found.append(node)

    def _node(self) -> Node | None:
        """Read a node. Returns None if it has no name."""
        scanner, draft, annotation = self._scanner, Draft(), None
        if scanner.kind is Kind.LEFT:
            annotation = read_annotation(scanner)
            draft.is_damaged = annotation is None
            scanner.skip_space()
        line, column = scanner.line, scanner.column
        name = self._name() if not draft.is_damaged or scanner.kind in VALUES else None
        is_spaced = False
        while (kind := scanner.kind) not in NODE_ENDS:
            if kind is Kind.SPACE:
                scanner.advance()
                is_spaced = True
            elif kind is Kind.SLASHDASH:
                is_spaced = self._hidden(draft, column)
            elif kind is Kind.OPEN:
                self._children(draft, column)
                is_spaced = False
            elif kind is Kind.EQUALS and draft.is_empty:
                skip_equals(scanner, draft)
                is_spaced = True
            elif kind is Kind.KEYWORD and not scanner.value.strip("#"):
                self._other_comment()
            elif draft.block is not None and kind is Kind.WORD and scanner.value == ",":
                self._comma_after_block()
                break
            elif draft.block is not None:
                # The next node starts here.
                self._late_token()
                break
            else:
                if draft.has_block:
                    self._report_late_entry()
                is_spaced = read_entry(scanner, draft, is_spaced=is_spaced)
        if scanner.kind is Kind.COMMENT:
            warn_of_url(scanner)
        self._note_open_string(draft)
        if scanner.kind in TERMINATORS:
            scanner.advance()
        if name is None:
            return None
        return Node(
            name,
            tuple(draft.arguments),
            tuple(draft.properties),
            draft.children,
            annotation,
            line,
            column,
            draft.block,
            draft.is_damaged,
        )

    def _name(self) -> str | None:
        """Read the name of a node, or report that there is none and go to its block or end."""
        scanner, start = self._scanner, self._scanner.start
        if scanner.kind in VALUES and (scanner.kind is not Kind.OTHER or scanner.value not in _BRACKETS):
            name = read_name(scanner, take(scanner), "the name of a node")
            return name.replace(REPLACEMENT, "") if scanner.is_unreadable(start, scanner.start) else name
        suggestion = 'write a name before {, such as "server" {' if scanner.kind is Kind.OPEN else None
        scanner.report_here(Code.MISSING_NAME, f"expected the name of a node, got {scanner.got()}", suggestion)
        scanner.skip_to(NODE_ENDS_OR_BLOCK)
        return None

    def _children(self, draft: Draft, column: int) -> None:
        scanner = self._scanner
        if draft.block is not None:
            message = "expected the end of the node after }, got a second block of children"
            scanner.report_here(Code.UNEXPECTED, message, "write all children in one block")
        self._note_open_string(draft)
        place = Place(scanner.line, scanner.column)
        nodes, is_damaged = self._block(place, column)
        draft.children += nodes
        draft.block = draft.block or place
        draft.has_block = True
        draft.is_damaged |= is_damaged

    def _late_block(self, node: Node) -> Node:
        """Read a block whose brace is not on the line of its node."""
        scanner = self._scanner
        message = f"expected {{ on the line of {shortened(print_name(node.name))}, got it on a line of its own"
        scanner.report_here(Code.MISSING_NAME, message, f"write {{ at the end of line {node.line}")
        place = Place(scanner.line, scanner.column)
        nodes, is_damaged = self._block(place, node.column)
        return msgspec.structs.replace(node, children=nodes, block=place, is_damaged=node.is_damaged or is_damaged)

    def _other_comment(self) -> None:
        """Report a comment as other languages write it, or with only one slash, and skip it."""
        scanner, got = self._scanner, self._scanner.value[0]
        message = f"expected // before a comment, got {got}"
        scanner.report_here(Code.UNEXPECTED, message, f"write // instead of {got}")
        length = len(scanner.value) - len(scanner.value.lstrip(got))
        scanner.edit(scanner.start, scanner.start + length, "//")
        found = NEWLINE.search(scanner.text, scanner.end)
        scanner.move_to(len(scanner.text) if found is None else found.start())
        scanner.advance()

    def _late_token(self) -> None:
        """Report what follows a block on its line, and skip it if no node can start with it."""
        scanner, message = self._scanner, f"expected the end of the node after }}, got {self._scanner.got()}"
        if scanner.kind is Kind.LEFT or (scanner.kind in VALUES and scanner.value not in _BRACKETS):
            scanner.report_here(Code.MISSING_NEWLINE, message, "start a new line, or write ; after }")
            return
        scanner.report_here(Code.UNEXPECTED, message, "remove it")
        scanner.skip_to(NODE_ENDS_OR_BLOCK)

    def _stray_comment_end(self) -> None:
        scanner = self._scanner
        message = "expected a node, got */ without a comment to close"
        scanner.report_here(Code.UNEXPECTED, message, "remove it, or write /* where the comment starts")
        scanner.move_to(scanner.start + 2)
        scanner.advance()

    def _comma_after_block(self) -> None:
        scanner = self._scanner
        message = "expected the end of the node after }, got a comma"
        scanner.report_here(Code.UNEXPECTED, message, "remove the comma")
        start, end = scanner.start, scanner.end
        scanner.advance()
        scanner.skip_space()
        scanner.edit(start, end, "" if scanner.kind in NODE_ENDS else ";")

    def _note_open_string(self, draft: Draft) -> None:
        """A node with a string of which a quote is missing is damaged, but its children are not."""
        draft.is_damaged |= self._scanner.has_open_string
        self._scanner.has_open_string = False

    def _hidden(self, draft: Draft, column: int) -> bool:
        """Read what is commented out by a slashdash. Returns whether white space follows."""
        scanner = self._scanner
        self._slashdash()
        if scanner.kind in NODE_ENDS:
            message = f"expected an argument, a property or a block after /-, got {scanner.got()}"
            scanner.report_here(Code.BAD_SLASHDASH, message, "remove /-")
            return False
        if scanner.kind is Kind.OPEN:
            self._block(Place(scanner.line, scanner.column), column)
            draft.has_block = True
            return False
        if draft.has_block:
            self._report_late_entry()
        return read_entry(scanner, Draft(), is_spaced=True)

    def _slashdash(self) -> None:
        """Go to what a slashdash comments out."""
        scanner = self._scanner
        scanner.advance()
        while scanner.kind in _BLANK or scanner.kind is Kind.SLASHDASH:
            if scanner.kind is Kind.SLASHDASH:
                message = "expected something to comment out after /-, got another /-"
                scanner.report_here(Code.BAD_SLASHDASH, message, "write /- once before each of them")
            scanner.advance()

    def _block(self, place: Place, column: int) -> tuple[tuple[Node, ...], bool]:
        """Read a block. `column` is that of the node's name. Returns its nodes, and whether one is missing."""
        scanner = self._scanner
        if self._depth == MAX_DEPTH:
            message = f"expected blocks at most {MAX_DEPTH} deep, got a deeper one"
            scanner.report_here(Code.TOO_DEEP, message)
            self._skip_block()
            return (), True
        self._depth += 1
        scanner.advance()
        nodes, is_damaged = self.nodes()
        self._depth -= 1
        if scanner.kind is Kind.CLOSE:
            self._check_indentation(place, column)
            scanner.advance()
            return nodes, is_damaged
        if not scanner.is_cut:
            self.is_misnested = True
            suggestion = "write } where the block ends"
            if self._suspect is not None:
                suggestion += f"; by the indentation, the block of line {self._suspect.line} lacks it"
            message = f"expected }} for the block that starts on line {place.line}, got the end of the file"
            scanner.problems.add(Code.UNCLOSED_BLOCK, (place.line, place.column), message, suggestion)
        return nodes, True

    def _check_indentation(self, place: Place, column: int) -> None:
        """Note a block whose closing brace stands further left than its node: perhaps the brace of another."""
        scanner = self._scanner
        if self._suspect is None and scanner.line > place.line and scanner.column < column:
            before = scanner.text[scanner.start - scanner.column + 1 : scanner.start]
            self._suspect = None if before.strip() else place

    def _note_indented(self, before: Node) -> None:
        """Note a node that is followed by an indented one: perhaps the brace after it is missing."""
        if self._unopened is None and before.block is None:
            self._unopened = before.line

    def _skip_block(self) -> None:
        scanner, depth = self._scanner, 0
        while (kind := scanner.kind) is not Kind.END:
            scanner.advance()
            if kind is Kind.OPEN:
                depth += 1
            elif kind is Kind.CLOSE:
                depth -= 1
                if depth == 0:
                    return

    def _report_late_entry(self) -> None:
        message = f"expected only blocks after a block that is commented out, got {self._scanner.got()}"
        self._scanner.report_here(Code.BAD_SLASHDASH, message, "write arguments and properties before all blocks")

"""A Go template over JSON: compiled once, rendered for every document.

`{{.missing}}` prints nothing where Go prints `<no value>`. Everything else is as in Go, including
`printf "%v" .missing`, which is `<nil>`. A missing field that is printed, or passed to a function that prints or
escapes, is reported, because that is rarely intended. Testing for it (`if`, `with`, `and`, `or`, `eq`) is not
reported, and neither is a null, which was written on purpose.

The statements are compiled into one flat list of steps. So loops, blocks and nested templates use no Python stack,
and every step can be counted to stop a template that never ends.
"""

from __future__ import annotations

from typing import Final, assert_never

from sentinel.core.gotemplate import reads, steps, tree
from sentinel.core.gotemplate.errors import NO_OFFSET, MissingField, RenderError, position
from sentinel.core.gotemplate.evaluate import pipeline
from sentinel.core.gotemplate.parse import parse
from sentinel.core.gotemplate.run import Run
from sentinel.core.gotemplate.steps import END, Step
from sentinel.core.gotemplate.values import Value, replace_invalid_bytes, to_value
from sentinel.core.json import Json

MAIN: Final = "message_data"
"""The name of the main template."""


class Template:
    """A compiled template. Raises `TemplateError` if the source is not a template."""

    def __init__(self, source: str) -> None:
        templates = parse(source, MAIN)
        self._source = source
        self._program = _Program(templates, MAIN)
        self._paths = reads.fields_read(templates, MAIN)

    def fields_read(self) -> frozenset[tuple[str, ...]]:
        """Return the paths that rendering may read. The empty path is the whole document."""
        return self._paths

    def render(self, document: Json) -> str:
        """Render a document. Raises `RenderError`, and `MissingField` if a printed field is missing."""
        try:
            run = self._program.run(to_value(document))
        except RenderError as error:
            line, column = position(self._source, error.at)
            raise RenderError(f"{error.problem} (line {line}, column {column} of the template)") from None
        text = replace_invalid_bytes(run.out.text())
        if run.has_missing:
            raise MissingField(text)
        return text


class _Program:
    """Compiled templates."""

    def __init__(self, templates: tree.Templates, main: str) -> None:
        self._steps: list[Step] = []
        self._offsets: list[int] = []
        """The offset in the source of each step."""
        self._entries: dict[str, int] = {}
        for name, body in templates.items():
            self._entries[name] = self._here
            self._body(body, None)
            self._add(steps.return_from_call, 0)
        self._main = self._entries[main]

    def run(self, document: Value) -> Run:
        """Run the main template to its end. Raises `RenderError`."""
        run = Run(document)
        program, at = self._steps, self._main
        try:
            while at != END:
                run.steps -= 1
                if run.steps < 0:
                    run.spend(0)
                at = program[at](run)
        except RenderError as error:
            if error.at == NO_OFFSET:
                error.at = self._offsets[at]
            raise
        return run

    # Compiling. The target of a forward jump is not known yet: its step is reserved, and filled in later.

    @property
    def _here(self) -> int:
        return len(self._steps)

    def _add(self, step: Step, at: int) -> None:
        self._steps.append(step)
        self._offsets.append(at)

    def _reserve(self, at: int) -> int:
        self._add(steps.return_from_call, at)
        return self._here - 1

    def _body(self, body: tree.Body, loop: _LoopPlan | None) -> None:
        for statement in body:
            self._statement(statement, loop)

    def _statement(self, statement: tree.Statement, loop: _LoopPlan | None) -> None:
        at, following = statement.at, self._here + 1
        match statement:
            case tree.Text(text=text):
                self._add(steps.write(text, following), at)
            case tree.Action(pipe=pipe):
                finish = steps.discard if pipe.variables else steps.print_value
                self._add(finish(pipeline(pipe), following), at)
            case tree.Branch():
                self._branch(statement, loop)
            case tree.Range():
                self._range(statement, loop)
            case tree.Invoke(name=name, pipe=argument):
                self._add(steps.call(self._entries, name, argument, following), at)
            case tree.Break():
                assert loop is not None, "the parser rejects it outside a loop"  # noqa: S101
                loop.breaks.append(self._reserve(at))
            case tree.Continue():
                assert loop is not None, "the parser rejects it outside a loop"  # noqa: S101
                self._add(steps.continue_loop(loop.start, loop.elses), at)
            case _:
                assert_never(statement)

    def _branch(self, branch: tree.Branch, loop: _LoopPlan | None) -> None:
        choose = steps.choose_dot if branch.sets_dot else steps.choose
        has_scope = branch.sets_dot or _declares(branch)
        if has_scope:
            self._add(steps.enter(self._here + 1), branch.at)
        ends: list[int] = []
        for pipe, body in branch.arms:
            test = self._reserve(pipe.at)
            self._body(body, loop)
            ends.append(self._reserve(branch.at))
            self._steps[test] = choose(pipeline(pipe), test + 1, self._here)
        self._body(branch.otherwise, loop)
        for end in ends:
            self._steps[end] = steps.jump(self._here)
        if has_scope:
            self._add(steps.leave(self._here + 1), branch.at)

    def _range(self, loop: tree.Range, outer: _LoopPlan | None) -> None:
        self._add(steps.enter(self._here + 1), loop.at)
        begin = self._reserve(loop.pipe.at)
        plan = _LoopPlan(self._reserve(loop.at))
        self._body(loop.body, plan)
        self._add(steps.jump(plan.start), loop.at)
        self._steps[begin] = steps.begin_loop(loop.pipe, plan.start, self._here)
        # In the `else` of a range, Go applies `break` to this range, but `continue` to the outer one.
        other = _LoopPlan(outer.start, outer.elses + 1) if outer else _LoopPlan(END)
        self._body(loop.otherwise, other)
        end = self._here + 1
        self._add(steps.end_loop(end), loop.at)
        self._add(steps.leave(end + 1), loop.at)
        self._steps[plan.start] = steps.advance_loop(loop.pipe, plan.start + 1, end)
        for step in (*plan.breaks, *other.breaks):
            self._steps[step] = steps.end_loop(end)


class _LoopPlan:
    """A loop while its body is compiled."""

    def __init__(self, start: int, elses: int = 0) -> None:
        self.start = start
        """The step of the next iteration."""
        self.elses = elses
        """The number of inner loops whose `else` is being compiled."""
        self.breaks: list[int] = []
        """The steps that leave the loop."""


def _declares(branch: tree.Branch) -> bool:
    """Whether the branch may declare a variable, which goes out of scope at its end."""
    bodies = [branch.otherwise, *(body for _, body in branch.arms)]
    return any(_pipe_declares(pipe) for pipe, _ in branch.arms) or any(
        _statement_declares(statement) for body in bodies for statement in body
    )


def _statement_declares(statement: tree.Statement) -> bool:
    # Nested blocks remove their own variables.
    pipe = statement.pipe if isinstance(statement, tree.Action | tree.Invoke) else None
    return pipe is not None and _pipe_declares(pipe)


def _pipe_declares(pipe: tree.Pipe) -> bool:
    if pipe.variables and not pipe.is_assignment:
        return True
    words = [word for command in pipe.commands for word in command.words]
    inner = [word.inner if isinstance(word, tree.Chain) else word for word in words]
    return any(isinstance(word, tree.Pipe) and _pipe_declares(word) for word in inner)

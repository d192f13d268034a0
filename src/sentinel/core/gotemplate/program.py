"""The statements of a template as one flat list of steps, and the loop that runs them.

Loops, blocks and templates that call templates need nothing of Python's stack this way, and every step can be
counted: a template that never ends is stopped here.
"""

from __future__ import annotations

from typing import assert_never

from sentinel.core.gotemplate import steps, tree
from sentinel.core.gotemplate.errors import NOWHERE, Trouble
from sentinel.core.gotemplate.evaluate import pipeline
from sentinel.core.gotemplate.run import Run
from sentinel.core.gotemplate.steps import END, Step
from sentinel.core.gotemplate.values import Value


class Program:
    """Compiled templates."""

    def __init__(self, templates: tree.Templates, main: str) -> None:
        self._steps: list[Step] = []
        self._places: list[int] = []
        """The offset in the source that each step comes from."""
        self._entries: dict[str, int] = {}
        for name, body in templates.items():
            self._entries[name] = self._here
            self._body(body, None)
            self._add(steps.come_back, 0)
        self._main = self._entries[main]

    def run(self, document: Value) -> Run:
        """Runs it to the end. Raises `Trouble`."""
        run = Run(document)
        program, at = self._steps, self._main
        try:
            while at != END:
                run.steps -= 1
                if run.steps < 0:
                    run.spend(0)
                at = program[at](run)
        except Trouble as trouble:
            if trouble.at == NOWHERE:
                trouble.at = self._places[at]
            raise
        return run

    # Compiling. A step that leads to what is not compiled yet is put in afterwards, in the place kept for it.

    @property
    def _here(self) -> int:
        return len(self._steps)

    def _add(self, step: Step, place: int) -> None:
        self._steps.append(step)
        self._places.append(place)

    def _reserve(self, place: int) -> int:
        self._add(steps.come_back, place)
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
                assert loop is not None, "the parser lets none stand outside a loop"  # noqa: S101
                loop.breaks.append(self._reserve(at))
            case tree.Continue():
                assert loop is not None, "the parser lets none stand outside a loop"  # noqa: S101
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
        # In Go's `else`, `break` ends this very range, but `continue` goes on with the one around it.
        other = _LoopPlan(outer.start, outer.elses + 1) if outer else _LoopPlan(END)
        self._body(loop.otherwise, other)
        end = self._here + 1
        self._add(steps.end_loop(end), loop.at)
        self._add(steps.leave(end + 1), loop.at)
        self._steps[plan.start] = steps.advance_loop(loop.pipe, plan.start + 1, end)
        for place in (*plan.breaks, *other.breaks):
            self._steps[place] = steps.end_loop(end)


class _LoopPlan:
    """A loop while its body is compiled: where it goes on, and what leaves it."""

    def __init__(self, start: int, elses: int = 0) -> None:
        self.start = start
        self.elses = elses
        """How many loops that are in their `else` stand between."""
        self.breaks: list[int] = []


def _declares(branch: tree.Branch) -> bool:
    """Whether a variable may be declared in it that has to go when it ends."""
    bodies = [branch.otherwise, *(body for _, body in branch.arms)]
    return any(_pipe_declares(pipe) for pipe, _ in branch.arms) or any(
        _statement_declares(statement) for body in bodies for statement in body
    )


def _statement_declares(statement: tree.Statement) -> bool:
    # Blocks within clear away what they declare themselves.
    pipe = statement.pipe if isinstance(statement, tree.Action | tree.Invoke) else None
    return pipe is not None and _pipe_declares(pipe)


def _pipe_declares(pipe: tree.Pipe) -> bool:
    if pipe.variables and not pipe.is_assignment:
        return True
    words = [word for command in pipe.commands for word in command.words]
    inner = [word.inner if isinstance(word, tree.Chain) else word for word in words]
    return any(isinstance(word, tree.Pipe) and _pipe_declares(word) for word in inner)

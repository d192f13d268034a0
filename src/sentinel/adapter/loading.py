"""Finding the adapter that a configuration names: `package.module:dns`.

It is somebody's own module, so it may be missing, broken, or something else than an adapter; the person who reads
the error is its author, and wants the line where it happened.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path

from sentinel.adapter.declaration import Adapter
from sentinel.runtime.log import describe


class InvalidAdapter(Exception):
    """What was named is no adapter; the text says why."""


def load_adapter(task: str, *, folder: Path | None = None) -> Adapter:
    """The adapter of this name; `folder` comes first where modules are looked for, from now on.

    Raises `InvalidAdapter`.
    """
    if folder is not None:
        first = str(folder.resolve())
        if sys.path[:1] != [first]:
            sys.path.insert(0, first)
    module_name, _, path = task.partition(":")
    try:
        found: object = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # a module may do anything while it is imported
        raise InvalidAdapter(f"cannot import {module_name}: {describe(error)}{_place(error)}") from error
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise InvalidAdapter(
                f"expected an adapter called {path} in {module_name}, got nothing of that name"
            ) from None
    if not isinstance(found, Adapter):
        raise InvalidAdapter(f"expected {path} in {module_name} to be an Adapter, got {type(found).__name__}")
    if not found.kinds:
        raise InvalidAdapter(f"expected {path} in {module_name} to have a task, got an adapter without any")
    return found


def forget_modules(folder: Path) -> None:
    """Lets another adapter's folder use the same names, as every project that was begun alike does.

    Modules that were loaded from this folder stay in use where they are used, and are no longer found by name.
    """
    root = folder.resolve()
    for name, module in list(sys.modules.items()):
        file, top = getattr(module, "__file__", None), name.partition(".")[0]
        # Not whatever lies somewhere below: a virtual environment often does.
        if file is not None and any(Path(file).is_relative_to(root / own) for own in (top, f"{top}.py")):
            del sys.modules[name]


def _place(error: BaseException) -> str:
    """Where in the author's own files it happened; nothing where it did not get that far."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "importlib" not in frame.filename and frame.filename != __file__
    ]
    return f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""

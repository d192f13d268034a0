"""Importing the adapter that a configuration names: `task: package.module:dns`.

The module is the user's own, so it may be missing, fail while it is imported, or contain something else. The
errors are for its author and name the line where the import failed.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path

from sentinel.adapter.declaration import Adapter
from sentinel.adapter.settings import AdapterSettings
from sentinel.runtime.log_format import describe
from sentinel.runtime.settings.report import Loaded, Origin, SettingsProblem, Source
from sentinel.runtime.settings.yaml_file import parse_file


class InvalidAdapter(Exception):
    """The name does not lead to an adapter; the text says why."""


def load_adapter(task: str, *, folder: Path | None = None) -> Adapter:
    """Import the adapter. `folder` stays the first entry of `sys.path` from now on. Raises `InvalidAdapter`."""
    if folder is not None:
        entry = str(folder.resolve())
        if sys.path[:1] != [entry]:
            sys.path.insert(0, entry)
    module_name, _, path = task.partition(":")
    try:
        found: object = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # a module may do anything while it is imported
        raise InvalidAdapter(f"cannot import {module_name}: {describe(error)}{_location(error)}") from error
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


def task_problem(error: InvalidAdapter, *, file: Path, loaded: Loaded[AdapterSettings]) -> SettingsProblem:
    """Return the error as a problem of the setting `task`, at the place where that was set."""
    table = parse_file(file).root
    member = None if table is None else table.get("task")
    origin = next((entry.origin for entry in loaded.entries if entry.key == "task"), "")
    if member is not None and origin.startswith(Source.FILE):
        place = member.value.at
    else:
        source, _, name = origin.partition(" ")
        place = Origin(Source(source or Source.DEFAULT), name)
    return SettingsProblem.at(place, "task", str(error))


def forget_modules(folder: Path) -> None:
    """Remove the modules of this folder from `sys.modules`, so that another folder can use the same names.

    Projects made by `sentinel adapter new` may have modules of the same name. Code that holds a module keeps it.
    """
    root = folder.resolve()
    for name, module in list(sys.modules.items()):
        file, top = getattr(module, "__file__", None), name.partition(".")[0]
        # Only the folder's own modules: below it there may be a virtual environment.
        if file is not None and any(Path(file).is_relative_to(root / own) for own in (top, f"{top}.py")):
            del sys.modules[name]


def _location(error: BaseException) -> str:
    """The line in the author's files where the import failed; empty if none of them was reached."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "importlib" not in frame.filename and frame.filename != __file__
    ]
    return f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""

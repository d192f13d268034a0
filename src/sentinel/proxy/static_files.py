"""Serves the files of a directory."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from pathlib import Path

from aiohttp import hdrs

from sentinel.core.proxy.file_path import segments
from sentinel.core.proxy.model import StaticFiles
from sentinel.proxy.responses import SERVER, FileResponse, Response, problem


async def serve(files: StaticFiles, *, method: str, path: str) -> FileResponse | Response:
    """Respond with the file of this path, the index of a directory, or the fallback.

    aiohttp sends ranges, 304 for a file that the client has, and compressed variants that are on the disk.
    """
    if method not in (hdrs.METH_GET, hdrs.METH_HEAD):
        response = problem(HTTPStatus.METHOD_NOT_ALLOWED, "expected GET or HEAD")
        response.headers[hdrs.ALLOW] = "GET, HEAD"
        return response
    # A disk may be slow, and the event loop serves everybody.
    file = await asyncio.get_running_loop().run_in_executor(None, _find, files, path)
    if file is None:
        return problem(HTTPStatus.NOT_FOUND, "no such file")
    return FileResponse(file, headers={hdrs.SERVER: SERVER, hdrs.CACHE_CONTROL: files.cache_control})


def _find(files: StaticFiles, path: str) -> Path | None:
    """Return the file, if it is one and is below the directory, also after following links."""
    named = segments(path)
    if named is None:
        return None
    root = Path(files.root).resolve()
    candidates = [root.joinpath(*named), root.joinpath(*named, files.index)]
    if files.fallback is not None:
        candidates.append(root.joinpath(*(segments(files.fallback) or ())))
    for candidate in candidates:
        try:
            file = candidate.resolve()
            if file.is_relative_to(root) and file.is_file():
                return file
        except OSError:  # a name that is too long, or a loop of links
            continue
    return None

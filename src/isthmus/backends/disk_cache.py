"""Machine code kept on disk by the digest of all that it depends on: objects for the CPU, cubins for GPUs.

It lies in `ISTHMUS_CACHE_DIR`, else `$XDG_CACHE_HOME/isthmus`, else `~/.cache/isthmus`, else (a home that cannot be written
to) in a directory of the user's among the temporary files, up to `ISTHMUS_CACHE_LIMIT_MB` (512; with 0 none is kept).

A file is `_MAGIC`, a checksum of the code, the code; it is put in place whole, and removed when it is damaged. Nothing here
raises: a cache that cannot be read or written only means that code is compiled again.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

_MAGIC = b"isthmus1"
_CHECKSUM_BYTES = 16
_WRITES_PER_SHRINK = 64
_writes = count()


class CacheInfo(NamedTuple):
    """Where the cache is (`None`: nothing is kept on disk) and what it holds."""

    path: str | None
    files: int
    bytes: int


def cache_info() -> CacheInfo:
    """Path, number of files and bytes of the cache."""
    path = _directory()
    sizes = [status.st_size for _, status in _scan(path)] if path else []
    return CacheInfo(path, len(sizes), sum(sizes))


def clear_cache() -> None:
    """Remove what is on disk. What processes have loaded stays usable."""
    path = _directory()
    for file, _ in _scan(path) if path else ():
        _remove(file)


def read(digest: bytes) -> bytes | None:
    """The code of a digest; `None` if there is none, or it is damaged."""
    directory = _directory()
    if directory is None:
        return None
    path = os.path.join(directory, digest.hex())
    try:
        with open(path, "rb") as file:
            data = file.read()
        os.utime(path)                       # the time of last use, for `_shrink`
    except OSError:
        return None
    head = len(_MAGIC) + _CHECKSUM_BYTES
    code = data[head:]
    if data[:head] != _MAGIC + _checksum(code):
        _remove(path)
        return None
    return code


def write(digest: bytes, code: bytes) -> None:
    """Keep the code of a digest; processes that write the same one at once all put code that is right."""
    directory = _directory()
    if directory is None:
        return
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=directory, suffix=".tmp")
        with os.fdopen(handle, "wb") as file:
            file.write(_MAGIC + _checksum(code) + code)
        os.replace(temporary, os.path.join(directory, digest.hex()))
    except OSError:
        _remove(temporary)
        return
    if next(_writes) % _WRITES_PER_SHRINK == 0:  # the first of a process, then now and then
        _shrink(directory, _limit_bytes())


def _limit_bytes() -> int:
    try:
        return int(float(os.environ.get("ISTHMUS_CACHE_LIMIT_MB", "512")) * 1e6)
    except ValueError:
        return 512_000_000


def _directory() -> str | None:
    """The directory of the cache, made if need be; `None` where there is none to be had, or the limit is 0."""
    if _limit_bytes() <= 0:
        return None
    environ = os.environ
    base = environ.get("ISTHMUS_CACHE_DIR") or os.path.join(
        environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "isthmus")
    user = os.getuid() if hasattr(os, "getuid") else 0
    for path in (os.path.join(base, "kernels"), os.path.join(tempfile.gettempdir(), f"isthmus-{user}")):
        try:
            os.makedirs(path, mode=0o700, exist_ok=True)
            status = os.lstat(path)
        except OSError:
            continue
        # Code is run, so nobody else may be able to put some there.
        private = not hasattr(os, "getuid") or (status.st_uid == user and not status.st_mode & 0o022)
        if stat.S_ISDIR(status.st_mode) and private and os.access(path, os.W_OK):
            return path
    return None


def _scan(directory: str) -> Iterator[tuple[str, os.stat_result]]:
    """Files and their sizes and times; those that another process removes meanwhile are left out."""
    try:
        entries = os.scandir(directory)
    except OSError:
        return
    with entries:
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode):
                yield entry.path, status


def _checksum(code: bytes) -> bytes:
    return hashlib.blake2b(code, digest_size=_CHECKSUM_BYTES).digest()


def _shrink(directory: str, limit_bytes: int) -> None:
    """Remove the files longest not used until three quarters of the limit are left, if it is passed."""
    files = [(status.st_mtime_ns, status.st_size, path) for path, status in _scan(directory)]
    total = sum(size for _, size, _ in files)
    if total <= limit_bytes:
        return
    for _, size, path in sorted(files):
        _remove(path)
        total -= size
        if total <= limit_bytes * 3 // 4:
            return


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass

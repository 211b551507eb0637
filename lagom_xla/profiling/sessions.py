# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sessions of the profiler: which files of a folder are of one run.

    plugins/profile/2026_02_01_10_00_03/host0.xplane.pb
    plugins/profile/2026_02_01_10_00_04/host1.xplane.pb

Every process names its folder by the second in which it was done, and its file
by its host: one run may lie in several folders, and processes of one host need
log folders of their own, or overwrite each other. So a run is what was traced
at the same time as the newest file, by the clocks of their hosts.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import gzip
import lzma
import pathlib
import re
import zlib

from google.protobuf import message

from lagom_xla import errors
from lagom_xla.profiling import xplane
from lagom_xla.validation import whole_files

PATTERNS = ("*.xplane.pb", "*.xplane.pb.gz", "*.xplane.pb.xz")
_XZ, _GZIP = b"\xfd7zXZ", b"\x1f\x8b"
_ENVIRONMENT = "Task Environment"
# What jax.profiler puts between a log folder and the files of a time.
_LAYOUT = ("plugins", "profile")
_TIME = re.compile(r"\d{4}(_\d\d)+")
_NUMBER = re.compile(r"(\d+)")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Session:
  """What one process traced.

  Attributes:
    name: of its file, behind that of its log folder where there are several.
    space: its planes.
    begin_ns: when the session began, since 1970; None where it does not say.
    end_ns: when it ended.
  """

  name: str
  space: xplane.Space
  begin_ns: int | None
  end_ns: int | None

  def overlaps(self, other: Session) -> bool:
    """Whether both ran at some time; not where one does not say when."""
    if None in (self.begin_ns, self.end_ns, other.begin_ns, other.end_ns):
      return False
    assert self.begin_ns is not None and self.end_ns is not None
    assert other.begin_ns is not None and other.end_ns is not None
    return self.begin_ns <= other.end_ns and other.begin_ns <= self.end_ns


def newest(path: pathlib.Path) -> tuple[list[Session], int, list[str]]:
  """The sessions of the newest run in a folder.

  Args:
    path: the folder, or one file.

  Returns:
    The sessions by the natural order of their names, how many files of other
    runs there are, and why files that are older than the newest ones could not
    be read.

  Raises:
    TraceError: there is no profile, or one of the newest cannot be read.
  """
  if path.is_file():
    return [_read(path, _stem(path.name))], 0, []
  if not path.exists():
    raise errors.TraceError(
      f"There is no {path}: give the folder that jax.profiler.trace wrote."
    )
  files = [f for pattern in PATTERNS for f in path.rglob(pattern)]
  if not files:
    raise errors.TraceError(
      f"{path} has no XSpace ({PATTERNS[0]}): give the folder that"
      " jax.profiler.trace wrote."
    )
  # Several log folders may have folders of one time.
  times = sorted({f.parent.name for f in files}, reverse=True)
  found: list[Session] = []
  unread: list[str] = []
  for time in times:
    together = []
    for file in files:
      if file.parent.name != time:
        continue
      try:
        together.append(_read(file, _name(file, path)))
      except errors.TraceError as error:
        if not found:
          raise
        unread.append(str(error))  # Of another run, as far as is known.
    if found:
      together = [s for s in together if any(map(s.overlaps, found))]
    # Those before it ended earlier still.
    if not together and _TIME.fullmatch(time):
      break
    found += together
  found.sort(key=lambda session: _natural(session.name))
  return found, len(files) - len(found) - len(unread), unread


def of_bytes(
  name: str, serialized: bytes, file: pathlib.Path | None = None
) -> Session:
  """A session that is in memory.

  Args:
    name: what to call it.
    serialized: an XSpace.
    file: where it is from, for errors.

  Raises:
    TraceError: it is none.
  """
  try:
    space = xplane.space(serialized)
  except message.DecodeError as error:
    raise errors.TraceError(
      f"The profile {_of(name, file)} is no XSpace, or was cut off: trace"
      " again, and let the process end the trace."
    ) from error
  if not space.planes:
    raise errors.TraceError(
      f"The profile {_of(name, file)} is empty: the process ended before"
      " jax.profiler.stop_trace, or another profiler had the GPU."
    )
  stats = next((p.stats for p in space.planes if p.name == _ENVIRONMENT), {})
  return Session(
    name=name,
    space=space,
    begin_ns=_ns(stats, "profile_start_time"),
    end_ns=_ns(stats, "profile_stop_time"),
  )


def _of(name: str, file: pathlib.Path | None) -> str:
  return f"of {name}" if file is None else f"of {name}, {file},"


def _natural(name: str) -> list[tuple[int, str]]:
  """Sorts host-2 before host-10."""
  return [
    (int(part), "") if part.isdecimal() else (-1, part)
    for part in _NUMBER.split(name)
  ]


def _ns(stats: Mapping[str, xplane.Value], name: str) -> int | None:
  value = stats.get(name)
  return value if isinstance(value, int) else None


def _name(file: pathlib.Path, folder: pathlib.Path) -> str:
  """The host's, behind what tells its log folder from others."""
  *above, name = file.relative_to(folder).parts
  logs = [p for p in above if p not in _LAYOUT and not _TIME.fullmatch(p)]
  return "/".join([*logs, _stem(name)])


def _stem(name: str) -> str:
  return name.partition(".xplane.pb")[0]


def _read(file: pathlib.Path, name: str) -> Session:
  try:
    data = whole_files.read_bytes(file)
    if data.startswith(_XZ):
      data = lzma.decompress(data)
    elif data.startswith(_GZIP):
      data = gzip.decompress(data)
  except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
    raise errors.TraceError(
      f"Cannot read {file}: {getattr(error, 'strerror', None) or error}."
    ) from error
  return of_bytes(name, data, file)

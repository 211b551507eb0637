# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Builds the tuner plugin: compiles plugin.c to a shared library.

This happens when the package is built, or on first use if the library is
missing. The library contains a hash of its source, so that a library of another
source is not used, as after a change in a checkout. The package's build runs
this file by its path, before dependencies are installed, so it imports only the
standard library.
"""

from __future__ import annotations

from collections.abc import Sequence
import ctypes
import hashlib
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

# NCCL also finds it as NCCL_TUNER_PLUGIN=lagom_xla if its folder is searched.
LIBRARY = "libnccl-tuner-lagom_xla.so"
SOURCE = pathlib.Path(__file__).with_name("plugin.c")
# Interface -> the first NCCL that looks for it.
INTERFACES = {"v4": "2.24", "v5": "2.28", "v6": "2.30.3", "v7": "2.32.6"}

_FLAGS = (
  *("-std=c11", "-O2", "-fPIC", "-shared"),
  *("-fvisibility=hidden", "-Wl,-z,nodelete"),
)

_SHOW_SOURCE = """\
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
text = ctypes.c_char.in_dll(library, "lagom_xla_source")
print(ctypes.string_at(ctypes.addressof(text)).decode())
"""


class BuildError(RuntimeError):
  """The plugin cannot be built or loaded here; the message says why."""


def packaged() -> pathlib.Path:
  """Where the package's build puts the library."""
  return SOURCE.with_name(LIBRARY)


def cached() -> pathlib.Path:
  """Where the library goes if the package's folder is not writable."""
  cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
  return pathlib.Path(cache) / "lagom_xla" / _source_hash() / LIBRARY


def find() -> pathlib.Path | None:
  """The path of the library built from the current source, if any."""
  wanted = _source_hash().encode()
  for path in (packaged(), cached()):
    try:
      if wanted in path.read_bytes():
        return path
    except OSError:
      continue
  return None


def ensure() -> pathlib.Path:
  """The path of the library, which is built now if it is missing.

  Raises:
    BuildError: there is no C compiler, it fails, or no folder is writable.
  """
  path = find()
  if path is not None:
    return path
  try:
    return compile_to(packaged())
  except OSError:
    pass
  try:
    return compile_to(cached())
  except OSError as error:
    raise BuildError(
      f"{packaged().parent} and {cached().parent} cannot be written:"
      f" {error.strerror}."
    ) from error


def compile_to(path: pathlib.Path, flags: Sequence[str] = ()) -> pathlib.Path:
  """Compiles the plugin to a path, which it returns, and makes its folder.

  Replaces an older library there atomically. `flags` follow the usual ones.

  Raises:
    BuildError: there is no C compiler, or it fails.
    OSError: the folder cannot be written.
  """
  command = compiler()
  path.parent.mkdir(parents=True, exist_ok=True)
  with tempfile.TemporaryDirectory(
    prefix=f".{path.name}-", dir=path.parent
  ) as scratch:
    fresh = pathlib.Path(scratch) / path.name
    name = f'-DLAGOM_XLA_SOURCE="{_source_hash()}"'
    process = subprocess.run(
      [*command, *_FLAGS, name, *flags, "-o", str(fresh), str(SOURCE)],
      capture_output=True,
      text=True,
      check=False,
    )
    if process.returncode:
      output = (process.stderr or process.stdout).strip()
      raise BuildError(
        f"{shlex.join(command)} could not compile {SOURCE.name}: {output}"
      )
    fresh.replace(path)
  return path


def compiler() -> list[str]:
  """The C compiler's command: $CC, or else cc, gcc or clang.

  Raises:
    BuildError: there is none.
  """
  named = shlex.split(os.environ.get("CC", ""))
  for command in (named, ["cc"], ["gcc"], ["clang"]):
    if command and shutil.which(command[0]):
      return command
  raise BuildError(
    "No C compiler was found (cc, gcc or clang); install one, or name it with"
    " the variable CC."
  )


def interfaces(path: pathlib.Path) -> tuple[str, ...]:
  """The tuner interfaces that a library exports, such as ("v4", "v5").

  Raises:
    BuildError: it cannot be loaded.
  """
  try:
    library = ctypes.CDLL(str(path))
  except OSError as error:
    raise BuildError(f"{path} cannot be loaded: {error}.") from error
  return tuple(
    v for v in INTERFACES if hasattr(library, f"ncclTunerPlugin_{v}")
  )


def source(path: str | pathlib.Path) -> str:
  """The hash of the source that a library was built from.

  Another process loads the library, by the name that NCCL would use: a
  truncated library may crash the process with SIGBUS.

  Raises:
    BuildError: it cannot be loaded, or is not lagom_xla's plugin.
  """
  done = subprocess.run(
    [sys.executable, "-I", "-S", "-c", _SHOW_SOURCE, str(path)],
    capture_output=True,
    text=True,
    check=False,
  )
  if done.returncode < 0:
    name = signal.Signals(-done.returncode).name
    raise BuildError(f"{path} crashes the process that loads it ({name}).")
  if done.returncode:
    *_, reason = done.stderr.strip().splitlines() or ["no reason was given"]
    raise BuildError(f"{path} cannot be loaded: {reason}.")
  return done.stdout.strip().removeprefix("lagom_xla source ")


def _source_hash() -> str:
  return hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:32]

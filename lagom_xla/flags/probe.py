# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Probes how the installed jaxlib starts with a given XLA_FLAGS.

XLA reads the variable once per process and ends the process over an unknown
flag, so each probe needs a process of its own. A child imports jaxlib's
extension (a fifth of a second; no backend, no JAX) and forks for each probe,
which takes milliseconds.
"""

from __future__ import annotations

import atexit
import base64
from collections.abc import Sequence
import contextlib
import dataclasses
import functools
import json
import os
import re
import signal
import subprocess
import sys
import threading

from lagom_xla import errors
from lagom_xla import processes

# A probe takes milliseconds; one that takes this long hangs.
_TIMEOUT_S = 60

_answers: dict[str, Answer] = {}
_lock = threading.Lock()


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
  """How a process with some XLA_FLAGS started or ended.

  It started, with a serialized CompileOptionsProto, or XLA ended it with an
  error, perhaps over an unknown flag.
  """

  compile_options: bytes
  unknown: bool = False
  error: str = ""

  @property
  def is_fatal(self) -> bool:
    """Whether XLA ended the process."""
    return bool(self.error)


def ask(texts: Sequence[str]) -> tuple[Answer, ...]:
  """How the installed jaxlib starts with each XLA_FLAGS.

  Ignores the XLA and JAX variables of this process. Answers are cached.

  Raises:
    ProbeError: jaxlib could not be asked.
  """
  with _lock:
    for text in texts:
      if text not in _answers:
        _answers[text] = _ask(text)
  return tuple(_answers[text] for text in texts)


def _ask(text: str) -> Answer:
  child = _child(os.getpid())
  if child.poll() is not None:
    _child.cache_clear()
    child = _child(os.getpid())
  assert child.stdin is not None and child.stdout is not None
  try:
    child.stdin.write(json.dumps(text) + "\n")
    child.stdin.flush()
    kind, said = json.loads(child.stdout.readline())
  except (OSError, ValueError) as error:
    _child.cache_clear()
    raise errors.ProbeError(
      f"jaxlib did not answer with XLA_FLAGS={text!r}."
    ) from error
  if kind == "failed":
    raise errors.ProbeError(said)
  if kind == "options":
    return Answer(compile_options=base64.b64decode(said))
  # glog's form: F1120 14:04:52.525738    3541 file.cc:234] words
  fatal = re.search(r"^F\d{4} .*?\] (.*)", said, re.MULTILINE)
  words = fatal.group(1).strip() if fatal else said.strip()[:200]
  return Answer(
    compile_options=b"",
    unknown=words.startswith("Unknown flag"),
    error=words or "XLA ended the process",
  )


@functools.cache
def _child(parent: int) -> subprocess.Popen[str]:
  """This file, running as a program; each fork of this process has its own."""
  del parent
  others = ("XLA_", "JAX_", "TF_CPP_")
  env = {k: v for k, v in os.environ.items() if not k.startswith(others)}
  env["PYTHONPATH"] = processes.python_path()
  try:
    child = subprocess.Popen(
      [sys.executable, "-P", __file__],
      env=env,
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      stderr=subprocess.DEVNULL,
      text=True,
    )
  except OSError as error:
    raise errors.ProbeError(f"Cannot start Python: {error}") from error
  atexit.register(_stop, child)
  return child


def _stop(child: subprocess.Popen[str]) -> None:
  """Ends the child by closing its stdin."""
  for stream in (child.stdin, child.stdout):
    with contextlib.suppress(OSError):  # It may have ended by itself.
      if stream is not None:
        stream.close()
  child.wait()


def _serve() -> None:
  """In the child: answers questions from stdin until it ends."""
  failure = ""
  try:
    from jaxlib import _jax  # noqa: F401
  except Exception as error:
    failure = f"{type(error).__name__}: {error}"
  for line in sys.stdin:
    signal.alarm(_TIMEOUT_S)  # Ends this process unless cancelled.
    answer = ("failed", failure) if failure else _try(json.loads(line))
    print(json.dumps(answer), flush=True)
    signal.alarm(0)


def _try(text: str) -> tuple[str, str]:
  """In the child: starts jaxlib with an XLA_FLAGS, in a fork.

  Returns "options" and those in base 64, or "ended" and the text on stderr.
  """
  from jaxlib import _jax

  read, write = os.pipe()
  process = os.fork()
  if not process:
    signal.alarm(_TIMEOUT_S)
    try:
      os.environ["XLA_FLAGS"] = text
      os.dup2(write, 2)
      options = _jax.CompileOptions().SerializeAsString()
      os.write(write, b"\n" + base64.b64encode(options))
      os._exit(0)
    finally:
      os._exit(1)  # The fork must not return to the loop.
  os.close(write)
  with os.fdopen(read, "rb") as pipe:
    said = pipe.read().decode(errors="replace")
  _, status = os.waitpid(process, 0)
  return ("ended", said) if status else ("options", said.rpartition("\n")[2])


if __name__ == "__main__":
  _serve()

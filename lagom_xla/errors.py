# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Errors, in one family.

Each message says what was wrong, where, and what to do, so that the command
line and the decorator can show it as it is:

    try:
      cluster.parse("8xh1000")
    except lagom_xla.LagomError as error:
      print(error)

Anything else that is raised is a bug.
"""

from __future__ import annotations

# Causes by which JAX shows where it was called from, and that say nothing else.
_TRACES = frozenset(
  [
    "JaxStackTraceBeforeTransformation",
    "SimplifiedTraceback",
    "UnfilteredStackTrace",
  ]
)
# Of the note that JAX adds to every error, about tracebacks.
_JAX_NOTE = "JAX has removed its internal frames"

# Of the messages of others, which have no limit.
_MOST_CHARACTERS = 600
_MOST_LINES = 20


class LagomError(Exception):
  """Something that the reader of its message can set right."""


class HloError(LagomError, ValueError):
  """An HLO module that cannot be read."""


class CombineError(LagomError, ValueError):
  """Combine groups that a module cannot have; the message names the labels."""


class ScheduleError(LagomError, ValueError):
  """An order that is for another schedule, or would change the results."""


class ProgramError(LagomError, ValueError):
  """A form that a program cannot be rewritten to; the message says why."""


class DonationLostError(LagomError, RuntimeError):
  """A rewrite would make XLA forget which inputs are donated."""


class UnsupportedError(LagomError, NotImplementedError):
  """A JAX or a jaxlib that works in a way that lagom_xla does not know."""


class ClusterError(LagomError, ValueError):
  """A cluster, or a file that describes one, is not usable as written."""


class CalibrationError(LagomError, ValueError):
  """Measurements that a cluster cannot be calibrated by."""


class UnknownCollectiveError(LagomError, LookupError):
  """A name that no collective of a step has; the message has those near it."""


class TargetError(LagomError, ValueError):
  """A target that cannot be used."""


class BatchError(LagomError, ValueError):
  """A batch that cannot be split as asked, or results not be put together."""


class CompileError(LagomError, RuntimeError):
  """A compile that failed; the message starts with what was asked for."""


class CompileAbortedError(CompileError):
  """A compile in which XLA ended its process, or hung until it was ended."""


class ProfileError(LagomError, ValueError):
  """A scheduler profile that would not reach XLA."""


class TraceError(LagomError, ValueError):
  """A trace of a run that cannot be read, or is of another step."""


class PlanError(LagomError, ValueError):
  """A plan that cannot be read, or that is for something else."""


class OutputError(LagomError, OSError):
  """A result that cannot be written where stdout goes."""


class RuleError(LagomError, ValueError):
  """NCCL rules that make no table; the message names the rule and the bound."""


class TableError(LagomError, ValueError):
  """A file that is not a usable NCCL table."""


class OptionsError(LagomError, RuntimeError):
  """The installed jaxlib does not show its options."""


class FlagsError(LagomError, ValueError):
  """An XLA_FLAGS over which XLA would end the process."""


class ProbeError(LagomError, RuntimeError):
  """The installed jaxlib could not be asked about flags."""


class WorkerError(LagomError, RuntimeError):
  """A process to compile in that cannot be had; the message says why."""


class ProcessesError(LagomError, RuntimeError):
  """Processes of a job that come to no agreement; the message names them."""


class SettingsDifferError(ProcessesError):
  """NCCL settings that differ between processes, whose collectives would hang.

  Unlike other errors it ends a tuned step: the step as it was would hang too.
  """


class Stopped(BaseException):
  """A stop that was asked for, not an error: whoever has a result keeps it.

  Attributes:
    reason: who asked for it, such as "Ctrl-C".
    exit_status: what a command ends with that kept its best result so far.
    is_caught: set by whoever keeps a result, as the first thing. Until then it
      may be raised again: Python drops what is raised in a callback of garbage
      collection, say.
  """

  def __init__(self, reason: str, exit_status: int):
    super().__init__(reason)
    self.reason = reason
    self.exit_status = exit_status
    self.is_caught = False


def first_line(error: BaseException) -> str:
  """What an error says in its first line, cut to a readable length."""
  lines = [line for line in str(error).splitlines() if line.strip()]
  return lines[0].strip()[:_MOST_CHARACTERS] if lines else type(error).__name__


def message(error: BaseException) -> str:
  """What an error says, each further line below the first.

  XLA may add the whole of a computation: what is beyond a screen is left out.
  """
  lines = [line.rstrip() for line in str(error).splitlines() if line.strip()]
  lines = _shortened([line[:_MOST_CHARACTERS] for line in lines])
  return "\n  ".join([first_line(error), *lines[1:]])


def _shortened(lines: list[str]) -> list[str]:
  """Those that fit a screen, and how many more there are."""
  left_out = len(lines) - _MOST_LINES
  if left_out <= 1:  # The one would take no less than to say so.
    return lines
  return [*lines[:_MOST_LINES], f"... and {left_out} more lines"]


def in_full(error: BaseException, *, at: str = "") -> str:
  """All that an error says, and all that it came of, each on lines of its own.

  Where it was raised stands behind its first line.
  """
  first, *more = _lines(error)
  lines = [f"{first} ({at})" if at else first]
  lines += [f"  {line}" for line in more]
  seen = {id(error)}
  cause = _cause(error)
  while cause is not None and id(cause) not in seen:
    seen.add(id(cause))
    lines += _below("from", cause)
    cause = _cause(cause)
  return "\n".join(lines)


def _below(word: str, error: BaseException) -> list[str]:
  """An error's lines, below those of another."""
  first, *more = _lines(error)
  return [f"  {word} {first}", *(f"    {line}" for line in more)]


def _lines(error: BaseException) -> list[str]:
  """An error's type, message, notes and parts, without empty lines."""
  message = error.msg if isinstance(error, SyntaxError) else str(error)
  first, *more = _without_traces(message) or [""]
  name = type(error).__name__
  for note in getattr(error, "__notes__", ()):
    if _JAX_NOTE not in note:
      more += [line for line in note.splitlines() if line.strip()]
  for part in error.exceptions if isinstance(error, BaseExceptionGroup) else ():
    more += _below("with", part)
  return _shortened([f"{name}: {first.strip()}" if first else name, *more])


def _without_traces(message: str) -> list[str]:
  """A message's lines that are neither empty nor of a trace written into it."""
  found, is_in_trace = [], False
  for line in filter(str.strip, message.splitlines()):
    is_head = line.startswith("Traceback (most recent call last)")
    is_in_trace = is_head or (is_in_trace and line.startswith(" "))
    if not is_in_trace:
      found.append(line)
  return found


def _cause(error: BaseException) -> BaseException | None:
  """What an error came of, without the traces that JAX puts in between."""
  if error.__cause__ is None and not error.__suppress_context__:
    cause = error.__context__
  else:
    cause = error.__cause__
  while cause is not None and type(cause).__name__ in _TRACES:
    cause = cause.__cause__
  return cause

# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""lagom_xla's errors, which share a base class.

Each message says what is wrong, where, and what to do. The command line and the
decorator show it as it is:

    try:
      cluster.parse("8xh1000")
    except lagom_xla.LagomError as error:
      print(error)

Any other exception is a bug.
"""

from __future__ import annotations

# Exceptions that JAX inserts as causes only to show its caller's stack.
_TRACES = frozenset(
  [
    "JaxStackTraceBeforeTransformation",
    "SimplifiedTraceback",
    "UnfilteredStackTrace",
  ]
)
# From JAX's note about tracebacks, which it adds to every error.
_JAX_NOTE = "JAX has removed its internal frames"

# Limits for other software's messages, which can be very long.
_MOST_CHARACTERS = 600
_MOST_LINES = 20


class LagomError(Exception):
  """An error that the user can fix."""


class HloError(LagomError, ValueError):
  """An HLO module cannot be read."""


class CombineError(LagomError, ValueError):
  """A module cannot have these combine groups; the message names the labels."""


class ScheduleError(LagomError, ValueError):
  """An order is for another schedule, or would change results."""


class ProgramError(LagomError, ValueError):
  """A program cannot be rewritten to a form; the message says why."""


class DonationLostError(LagomError, RuntimeError):
  """A rewrite would make XLA forget which inputs are donated."""


class UnsupportedError(LagomError, NotImplementedError):
  """This lagom_xla does not support the installed JAX or jaxlib."""


class ClusterError(LagomError, ValueError):
  """A cluster, or a file that describes one, is not usable as written."""


class CalibrationError(LagomError, ValueError):
  """A cluster cannot be calibrated with these measurements."""


class UnknownCollectiveError(LagomError, LookupError):
  """No collective of a step has this name; the message lists similar ones."""


class TargetError(LagomError, ValueError):
  """A target cannot be used."""


class BatchError(LagomError, ValueError):
  """A batch cannot be split as asked, or its results cannot be combined."""


class CompileError(LagomError, RuntimeError):
  """A compile failed; the message starts with what was asked for."""


class CompileAbortedError(CompileError):
  """XLA ended its process during a compile, or hung and was stopped."""


class ProfileError(LagomError, ValueError):
  """A scheduler profile would not reach XLA."""


class TraceError(LagomError, ValueError):
  """A trace of a run cannot be read, or is of another step."""


class PlanError(LagomError, ValueError):
  """A plan cannot be read, or is for something else."""


class OutputError(LagomError, OSError):
  """A result cannot be written to stdout."""


class RuleError(LagomError, ValueError):
  """NCCL rules form no table; the message names the rule and the limit."""


class TableError(LagomError, ValueError):
  """A file is not a usable NCCL table."""


class OptionsError(LagomError, RuntimeError):
  """The options of the installed jaxlib cannot be read."""


class FlagsError(LagomError, ValueError):
  """XLA_FLAGS would make XLA end the process."""


class ProbeError(LagomError, RuntimeError):
  """The installed jaxlib could not be asked about flags."""


class WorkerError(LagomError, RuntimeError):
  """A worker process cannot start, or failed; the message says why."""


class ProcessesError(LagomError, RuntimeError):
  """The processes of a job cannot agree; the message names them."""


class SettingsDifferError(ProcessesError):
  """NCCL settings differ between processes, so their collectives would hang.

  Unlike other errors, this one leaves a tuned step: the unchanged step would
  hang, too.
  """


class Stopped(BaseException):
  """A requested stop, not an error: code that has a result keeps it.

  Attributes:
    reason: what requested it, such as "Ctrl-C".
    exit_status: the exit status of a command that kept its best result so far.
    is_caught: set first by the code that keeps a result. Until then, the stop
      may be raised again, because Python drops exceptions in, for example,
      callbacks of the garbage collector.
  """

  def __init__(self, reason: str, exit_status: int):
    super().__init__(reason)
    self.reason = reason
    self.exit_status = exit_status
    self.is_caught = False


def first_line(error: BaseException) -> str:
  """The first line of an error's message, cut to a readable length.

  A line that ends in a colon goes on in the next one.
  """
  lines = [line.strip() for line in str(error).splitlines() if line.strip()]
  if not lines:
    return type(error).__name__
  first = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
  return first[:_MOST_CHARACTERS]


def message(error: BaseException) -> str:
  """An error's message, with further lines indented below the first.

  XLA may append a whole computation, so lines beyond one screen are left out.
  """
  lines = [line.rstrip() for line in str(error).splitlines() if line.strip()]
  lines = _shortened([line[:_MOST_CHARACTERS] for line in lines])
  if not lines:
    return type(error).__name__
  return "\n  ".join([lines[0].strip(), *lines[1:]])


def _shortened(lines: list[str]) -> list[str]:
  """The lines that fit on a screen, and the number of those left out."""
  left_out = len(lines) - _MOST_LINES
  if left_out <= 1:  # The number would take a line, too.
    return lines
  return [*lines[:_MOST_LINES], f"... and {left_out} more lines"]


def in_full(error: BaseException, *, at: str = "") -> str:
  """The full messages of an error and its causes, on separate lines.

  `at`, where the error was raised, follows the first line.
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
  """An error's lines, indented below those of another."""
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
  """A message's lines, without empty ones and embedded tracebacks."""
  found, is_in_trace = [], False
  for line in filter(str.strip, message.splitlines()):
    is_head = line.startswith("Traceback (most recent call last)")
    is_in_trace = is_head or (is_in_trace and line.startswith(" "))
    if not is_in_trace:
      found.append(line)
  return found


def _cause(error: BaseException) -> BaseException | None:
  """An error's cause, skipping those that JAX inserts to show stacks."""
  if error.__cause__ is None and not error.__suppress_context__:
    cause = error.__context__
  else:
    cause = error.__cause__
  while cause is not None and type(cause).__name__ in _TRACES:
    cause = cause.__cause__
  return cause

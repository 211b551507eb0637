# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Checks an XLA_FLAGS, and merges a plan's options into one.

XLA ends the process over an unknown flag, but says nothing about flags without
effect: those that no code reads any more, that a later flag or another option
overrides, or that repeat the default, and everything after a word that is not a
flag. Recipes are copied from version to version, so real XLA_FLAGS contain all
of these.

A flag need not set the option that it is named after: old names set new
options, and some set none. Nor does the last of two flags always win: lists and
maps accumulate. So jaxlib is started with each flag alone, to see what it
changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
import dataclasses
import pathlib
import re
from typing import Literal

from lagom_xla import validation
from lagom_xla.flags import conflicts
from lagom_xla.flags import debug_options
from lagom_xla.flags import mend
from lagom_xla.flags import notes
from lagom_xla.flags import options as xla_options
from lagom_xla.flags import probe
from lagom_xla.flags import syntax


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
  """What one flag does in the installed jaxlib.

  An unknown flag or an invalid value is fatal: XLA ends the process. Otherwise
  `sets` has the options that differ from their defaults with this flag alone.
  """

  flag: syntax.Flag
  unknown: bool
  is_fatal: bool
  sets: Mapping[str, debug_options.Value]

  @property
  def options(self) -> frozenset[str]:
    """The options it concerns, including one left at its default."""
    name = self.flag.name
    is_option = not self.sets or debug_options.find(name) is not None
    return frozenset((*self.sets, name) if is_option else self.sets)


def read_flags(flags: Sequence[syntax.Flag]) -> tuple[Reading, ...]:
  """What each flag does by itself in the installed jaxlib."""
  readings = []
  for flag, answer in zip(flags, probe.ask(list(map(str, flags))), strict=True):
    values = {} if answer.is_fatal else debug_options.under(str(flag))
    readings.append(
      Reading(
        flag=flag,
        unknown=answer.unknown,
        is_fatal=answer.is_fatal,
        sets=debug_options.without_defaults(values),
      )
    )
  return tuple(readings)


def values_of(
  flags: Sequence[syntax.Flag],
) -> Mapping[str, debug_options.Value]:
  """The value of every option in a process with these flags, none fatal."""
  return debug_options.under(" ".join(map(str, flags)))


def _superseded(readings: Sequence[Reading]) -> dict[int, int]:
  """Flags that a later flag overrides: index -> index of the later one.

  Both concern the same option, and removing the first changes no option. Flags
  that accumulate, such as lists of passes, are not superseded.
  """
  alive = [i for i, reading in enumerate(readings) if not reading.is_fatal]
  later_of = {
    i: j
    for i in alive
    for j in alive
    if i < j and readings[i].options & readings[j].options
  }
  return {i: later_of[i] for i in _removable(readings, later_of)}


def _removable(
  readings: Sequence[Reading],
  candidates: Collection[int],
  without: Collection[int] = (),
) -> list[int]:
  """The candidates that can all be removed with no option changing."""
  if not candidates:
    return []
  options = debug_options.options()

  def values_without(indices: Collection[int]) -> dict[str, object]:
    kept = [
      reading.flag
      for i, reading in enumerate(readings)
      if i not in indices and not reading.is_fatal
    ]
    # Lists as sets, as repetition has no effect.
    return {
      n: frozenset(str(v).split(",")) if options[n].is_repeated else v
      for n, v in values_of(kept).items()
    }

  everything = values_without(without)
  removed: list[int] = []
  for i in candidates:
    if values_without({*without, *removed, i}) == everything:
      removed.append(i)
  return removed


Kind = Literal[
  "unknown",
  "invalid",
  "crash",
  "mistyped",
  "not read",
  "renamed",
  "dead",
  "duplicate",
  "contradiction",
  "absent path",
  "not the default",
  "default",
]
# Kinds that end the process, or may end it.
_FATAL: frozenset[Kind] = frozenset(["unknown", "invalid", "crash"])
# Kinds of flags that can be left out with no effect.
_VOID: frozenset[Kind] = frozenset(["dead", "duplicate", "default"])


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
  """A problem of a flag.

  Attributes:
    flag: as it was written.
    kind: what is wrong with it.
    text: why, in sentences.
    instead: the flag to write in its place; "" for none.
  """

  flag: str
  kind: Kind
  text: str
  instead: str = ""

  @property
  def is_fatal(self) -> bool:
    """Whether it ends the process."""
    return self.kind in _FATAL


def _explain(reading: Reading, others: Sequence[Reading]) -> Finding | None:
  """The finding about a flag, one of several, by itself; None for none."""
  name, value = reading.flag.name, reading.flag.value

  def finding(kind: Kind, text: str, instead: str = "") -> Finding:
    flag = str(reading.flag)
    return Finding(flag=flag, kind=kind, text=text, instead=instead)

  if reading.unknown:
    text, instead = _why_unknown(reading.flag)
    if instead:
      (meant,) = read_flags(syntax.parse(instead)[0])
      is_set = any(meant.options & {*other.sets} for other in others)
      if meant.is_fatal:
        instead = ""
      elif not (meant.sets or is_set):
        text, instead = f"{text} {instead} is the default; leave it out.", ""
    return finding("unknown", text, instead)
  option = debug_options.find(name)
  if reading.is_fatal:
    # Suggests a spelling that XLA_FLAGS accepts, which may differ from that of
    # compiler_options.
    if instead := xla_options.xla_flags({name: value}):
      text = "XLA_FLAGS needs another spelling of this value."
      return finding("invalid", text, instead)
    rule = f" It is {xla_options.value_rule(option)}." if option else ""
    return finding("invalid", f"XLA does not take this value.{rule}")
  if name in notes.DEAD:
    return finding("dead", notes.DEAD[name])
  if name in reading.sets and name in notes.CRASHES:
    return finding("crash", notes.CRASHES[name])
  version = debug_options.jaxlib_version()
  if reading.sets and option is None:
    return finding(
      "renamed",
      f"jaxlib {version} calls it {' and '.join(reading.sets)}; the old"
      " name may be removed.",
      xla_options.xla_flags(reading.sets),
    )
  if reading.sets:
    return None
  if not _is_default(reading.flag):
    return finding("dead", "XLA accepts it, but it has no effect.")
  text = f"It is the default in jaxlib {version}."
  if name in notes.DECIDED:
    text = f"It acts as if it were unset. {notes.DECIDED[name]}."
  return finding("default", text)


def _why_unknown(flag: syntax.Flag) -> tuple[str, str]:
  """Why XLA does not know a flag, and the flag that was meant, or ""."""
  name, value = flag.name, flag.value
  option = debug_options.find(name)
  if re.fullmatch("O[0-3]", name) and flag.dashes == "-":
    return (
      f"JAX reads it from a variable: set JAX_OPTIMIZATION_LEVEL={name}.",
      "",
    )
  if flag.dashes != "--":
    fixed = dataclasses.replace(flag, dashes="--")
    return "XLA's flags start with two dashes.", str(fixed)
  if name == "flagfile":
    return (
      "XLA has no --flagfile: to read flags from a file, set XLA_FLAGS to its"
      " path and nothing else.",
      "",
    )
  if note := {**notes.REMOVED, **notes.REMOVED_SINCE}.get(name):
    instead = note.instead.get((value or "").lower(), note.instead.get("", ""))
    return (
      f"XLA removed it by jaxlib {note.gone_by}. {note.text}",
      instead,
    )
  if (added := notes.ADDED.get(name)) and option is None:
    version = debug_options.jaxlib_version()
    return f"It needs jaxlib {added}; {version} is installed.", ""
  if option is not None and value is None and option.type != "bool":
    return f"It needs a value: {xla_options.value_rule(option)}.", ""
  if option is not None:
    return "It has no flag; set it in compiler_options.", ""
  plain = name.removeprefix("no").lstrip("-").replace("-", "_").lower()
  if plain != name and debug_options.find(plain) is not None:
    if name.startswith("no"):
      return "XLA has no --noFLAG form.", f"--{plain}=false"
    fixed = syntax.Flag(name=plain, value=value)
    case = "use underscores" if "-" in name else "are in lower case"
    return f"XLA's flags {case}.", str(fixed)
  translated = xla_options.translate(name, "true" if value is None else value)
  if isinstance(translated, str):
    return f"XLA has no such flag. {xla_options.advice(name)}".rstrip(), ""
  new_name, new_value = translated
  return (
    f"jaxlib {debug_options.jaxlib_version()} has {new_name} instead.",
    xla_options.xla_flags({new_name: new_value}),
  )


def _is_default(flag: syntax.Flag) -> bool:
  """Whether a flag that changes nothing sets an option to its default."""
  value = "true" if flag.value is None else flag.value
  translated = xla_options.translate(flag.name, value)
  if isinstance(translated, str):
    # XLA accepted the value, in a spelling that only flags have.
    return debug_options.find(flag.name) is not None
  option = debug_options.find(translated[0])
  return option is not None and option.default == translated[1]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
  """What was found in an XLA_FLAGS.

  Attributes:
    jaxlib_version: of the jaxlib that it was checked against.
    num_flags: number of flags that XLA reads.
    num_unread: number of flags that it does not read; if there are any, the
      exit status is 1.
    findings: in the order of the words.
    suggestion: the corrected flags, which jaxlib accepts.
    variables: other environment variables found in it, to export separately.
    is_fatal: whether XLA would end the process; the exit status is then 1.
  """

  __pydantic_config__ = validation.STRICT

  jaxlib_version: str
  num_flags: int
  num_unread: int
  findings: tuple[Finding, ...]
  suggestion: str
  variables: Mapping[str, str]
  is_fatal: bool

  @property
  def is_void(self) -> bool:
    """Whether all that was found are flags without effect."""
    return all(finding.kind in _VOID for finding in self.findings)


def check(text: str) -> Checked:
  """Checks the value of an XLA_FLAGS against the installed jaxlib.

  Raises:
    OptionsError, ProbeError: jaxlib cannot be asked.
  """
  try:
    followed = syntax.follow(text)
  except (OSError, ValueError):
    followed = text
  words = mend.words(followed)
  of_word = [word for word in words for _ in word.flags]
  flags = [flag for word in words for flag in word.flags]
  if text and not flags:
    return _checked(text, (), {}, [_no_file(text.strip())], words)
  readings = read_flags(flags)
  later_of = _superseded(readings)
  unset = [
    i
    for i, reading in enumerate(readings)
    if not (reading.sets or reading.is_fatal or i in later_of)
  ]
  # The others have an effect only together.
  together = {*unset} - {*_removable(readings, unset, later_of)}
  found: dict[int, Finding] = {}
  for i, reading in enumerate(readings):
    if i in later_of:
      later = readings[later_of[i]].flag
      why = f"{later} overrides it: the last one counts."
      if later == reading.flag:
        why = "It is repeated later."
      found[i] = Finding(flag=str(reading.flag), kind="duplicate", text=why)
    elif i not in together and (finding := _explain(reading, readings)):
      found[i] = finding
  placed = [
    *_misread(followed, words),
    *((of_word[i].at, finding) for i, finding in found.items()),
    *((of_word[i].at, f) for i, f in _contradictions(readings, later_of)),
    *((of_word[i].at, f) for i, f in _absent(readings, later_of)),
    *((of_word[i].at, f) for i, f in _decided(readings, later_of)),
  ]
  findings = [f for _, f in sorted(placed, key=lambda item: item[0])]
  return _checked(text, flags, found, findings, words)


def _misread(
  text: str, words: Sequence[mend.Word]
) -> Iterator[tuple[int, Finding]]:
  """Words that XLA misreads or does not read, with their positions."""
  _, tail = syntax.parse(text)
  stop = len(text.rstrip(syntax.SPACE)) - len(tail) if tail else len(text)
  unread = [word for word in words if word.at + len(word.written) > stop]
  reported = set()
  for word in words:
    if word.written in reported and not word.flags:
      continue
    reported.add(word.written)
    why = [word.why] if word.why else []
    if word in unread and not (word.flags or word.why):
      why.append("It is not a flag.")
    if word in unread[:1]:
      why.append(
        "Without a leading dash XLA reads it as the path of a file with flags,"
        " and there is no such file."
        if not stop or not text[:stop].strip(syntax.SPACE)
        else "XLA stops reading there."
      )
      if num_others := len(unread) - 1:
        more = f"{num_others} more" if num_others > 1 else "one more word"
        why.append(f"It ignores the rest, too ({more}).")
    if why:
      yield (
        word.at,
        Finding(
          flag=word.written,
          kind="mistyped" if word.flags else "not read",
          text=" ".join(why),
          instead=" ".join(map(str, word.flags)) if word.why else "",
        ),
      )


def _checked(
  text: str,
  flags: Sequence[syntax.Flag],
  by_flag: Mapping[int, Finding],
  findings: Sequence[Finding],
  words: Sequence[mend.Word],
) -> Checked:
  suggested = []  # The flags, with the wrong ones left out or replaced.
  for i, flag in enumerate(flags):
    if i not in by_flag:
      suggested.append(str(flag))
    elif by_flag[i].kind not in _VOID:
      suggested.append(by_flag[i].instead)
  # Opening a pipe would wait for a writer.
  is_fatal = _is_pipe(text.strip()) or any(f.kind == "crash" for f in findings)
  if not is_fatal:
    (answer,) = probe.ask([text])
    is_fatal = answer.is_fatal
  try:
    read, _ = syntax.parse(syntax.follow(text))
  except (OSError, ValueError):
    read = ()
  suggestion = " ".join(dict.fromkeys(filter(None, suggested)))
  if any(finding.instead for finding in by_flag.values()):
    # What is written instead may have no effect either.
    suggestion = check(suggestion).suggestion
  variables = [w.written.partition("=") for w in words if w.is_variable]
  return Checked(
    jaxlib_version=debug_options.jaxlib_version(),
    num_flags=len(read),
    num_unread=max(len(flags) - len(read), 0),
    findings=tuple(findings),
    suggestion=suggestion,
    variables={name: value for name, _, value in variables},
    is_fatal=is_fatal,
  )


def _is_pipe(path: str) -> bool:
  try:
    return pathlib.Path(path).is_fifo()
  except (OSError, ValueError):  # It is no path.
    return False


def _no_file(words: str) -> Finding:
  """The finding about an XLA_FLAGS that names a missing file, or is blank."""
  text = (
    "Without a leading dash XLA reads it as the path of a file with flags, and"
    " there is no such file."
  )
  if not words:
    text += " Unset the variable, or leave the white space out."
  return Finding(flag=words or "white space", kind="invalid", text=text)


# Options that name files and folders that XLA reads.
_READ_FROM = (
  *("xla_gpu_algorithm_denylist_path", "xla_gpu_cuda_data_dir"),
  "xla_gpu_experimental_collective_perf_table_path",
  "xla_gpu_experimental_matmul_perf_table_path",
  *("xla_gpu_gemm_autotuner_override_file", "xla_gpu_override_gemm_autotuner"),
  "xla_gpu_load_autotune_results_from",
  "xla_gpu_pgle_profile_file_or_directory_path",
  *("xla_gpu_target_config_filename", "xla_gpu_topology_filename"),
  "xla_candidate_configs_file",
)


def _absent(
  readings: Sequence[Reading], voids: Collection[int]
) -> Iterator[tuple[int, Finding]]:
  """Flags whose path is missing or has a variable, with their index."""
  for i, reading in enumerate(readings):
    for name in () if i in voids else reading.sets:
      path = str(reading.sets[name])
      why = []
      # An override may hold text in place of a path.
      is_path = name in _READ_FROM and not re.search("[{:]", path)
      if is_path and not pathlib.Path(path).exists():
        why.append(f"There is no {path} on this machine.")
      if re.search(r"\$\{?\w|^~", path):
        why.append("XLA does not expand variables or ~.")
      if why:
        text, flag = " ".join(why), str(reading.flag)
        yield i, Finding(flag=flag, kind="absent path", text=text)


def _decided(
  readings: Sequence[Reading], voids: Collection[int]
) -> Iterator[tuple[int, Finding]]:
  """Flags that switch off what XLA may switch on if unset, with their index."""
  for i, reading in enumerate(readings):
    for name in () if i in voids else notes.DECIDED:
      if reading.sets.get(name) is False:
        flag, text = str(reading.flag), f"{notes.DECIDED[name]}."
        yield i, Finding(flag=flag, kind="not the default", text=text)


def _contradictions(
  readings: Sequence[Reading], voids: Collection[int]
) -> Iterator[tuple[int, Finding]]:
  """Flags that cannot act together with the others, with their index."""
  values = values_of([it.flag for it in readings if not it.is_fatal])
  setter_of = {
    name: i
    for i, reading in enumerate(readings)
    if i not in voids
    for name in reading.sets
  }
  for conflict in conflicts.CONFLICTS:
    first, *others = conflict.options
    if first not in setter_of or any(o not in values for o in others):
      continue
    if conflict.holds(values):
      i = setter_of[first]
      flag, text = str(readings[i].flag), conflict.text
      yield i, Finding(flag=flag, kind="contradiction", text=text)


# What a plan sets, alone or merged with the environment's XLA_FLAGS.

Source = Literal["environment", "plan"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
  """The flags and variables of a plan.

  Attributes:
    xla_flags: the flags to add to XLA_FLAGS.
    messages: what was translated or left out for the installed jaxlib.
    nccl_env: NCCL's environment variables.
  """

  __pydantic_config__ = validation.STRICT

  xla_flags: str
  messages: tuple[str, ...]
  nccl_env: Mapping[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
  """One flag of the merged XLA_FLAGS.

  Attributes:
    flag: as XLA_FLAGS has it.
    source: where it comes from.
    replaces: earlier flags that it overrides, and where they come from.
  """

  flag: str
  source: Source
  replaces: tuple[tuple[str, Source], ...]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Merged:
  """The current XLA_FLAGS merged with a plan's flags, and its variables.

  Attributes:
    entries: the merged flags, in order.
    messages: a sentence for each flag that was translated or left out.
    xla_flags: the value to give XLA_FLAGS.
    nccl_env: NCCL's environment variables.
  """

  __pydantic_config__ = validation.STRICT

  entries: tuple[Entry, ...]
  messages: tuple[str, ...]
  xla_flags: str
  nccl_env: Mapping[str, str]


# What `lagom-xla flags --format=json` prints: with PLAN, with --check, and with
# PLAN and --merge.
Printed = Planned | Checked | Merged


def merge(
  environment: str,
  options: Mapping[str, debug_options.Value],
  nccl_env: Mapping[str, str],
) -> Merged:
  """Adds a plan's options to the value of an XLA_FLAGS, or to "".

  XLA uses the last of two flags, so the plan's come last. Some launchers
  silently reverse that, so each flag keeps its source and what it replaced.
  Flags that would end the process are left out.

  Raises:
    OptionsError, ProbeError: jaxlib cannot be asked.
  """
  messages = []
  try:
    flags, unread = syntax.parse(syntax.follow(environment))
  except (OSError, ValueError):
    flags, unread = (), ""
    if words := environment.strip():
      messages.append(f"{words} was left out: it is neither a flag nor a file.")
  kept = []
  for reading in (readings := read_flags(flags)):
    finding = _explain(reading, readings)
    if finding is None or not finding.is_fatal:
      kept.append(reading)
      continue
    messages.append(f"{finding.flag} was left out. {finding.text}")
    if finding.instead:
      messages[-1] += f" Write {finding.instead} instead."
  if unread:
    messages.append(f"XLA stops reading XLA_FLAGS at {unread.split()[0]}.")
  of_plan = xla_options.flags(options)
  readings = (*kept, *read_flags(of_plan.flags))
  later_of = _superseded(readings)
  named: list[tuple[str, Source]] = [
    (str(reading.flag), "environment" if i < len(kept) else "plan")
    for i, reading in enumerate(readings)
  ]
  entries = tuple(
    Entry(
      flag=flag,
      source=source,
      replaces=tuple(named[j] for j, later in later_of.items() if later == i),
    )
    for i, (flag, source) in enumerate(named)
    if i not in later_of
  )
  return Merged(
    entries=entries,
    messages=(*messages, *of_plan.messages),
    xla_flags=" ".join(entry.flag for entry in entries),
    nccl_env=nccl_env,
  )

# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The examination of a machine: all trials, and advice on those that fail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
import concurrent.futures
import dataclasses
import glob
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import signal
import subprocess
import sys
from typing import Literal

from lagom_xla import validation
from lagom_xla.compile import cache
from lagom_xla.compile import pool
from lagom_xla.costs import in_words
from lagom_xla.doctor import trials
from lagom_xla.validation import whole_files


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Version:
  """A package and its version.

  Attributes:
    package: its name, as pip has it; "python" for Python itself.
    version: as installed.
  """

  package: str
  version: str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
  """A thing that was tried.

  Attributes:
    name: what was tried.
    status: "works", "missing" where it is not here, or "fails".
    is_essential: whether `inspect` and `tune` need it.
    found: what came of it, in a sentence.
    advice: what to do where it does not work; "" where there is nothing to do.
  """

  name: str
  status: trials.Status
  is_essential: bool = False
  found: str
  advice: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Checkup:
  """What works on a machine.

  Attributes:
    format_version: raised when a field changes its meaning.
    works: whether all that is essential works.
    versions: of what is installed.
    findings: what was tried, what is essential first.
  """

  __pydantic_config__ = validation.STRICT

  format_version: Literal[1] = 1
  works: bool
  versions: tuple[Version, ...]
  findings: tuple[Finding, ...]


_MODULE = "lagom_xla.doctor.trials"
# Text of a child that ended, for the reason it gives last.
_MOST_CHARACTERS = 200
_TRY_AGAIN = "try again"


def _run(names: Sequence[str], limit_s: float) -> dict[str, trials.Answer]:
  """What came of trials that share a process; failures where it was ended."""
  child = subprocess.Popen(
    [sys.executable, "-m", _MODULE, *names],
    # A GPU's memory stays with whoever trains on it.
    env={**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    start_new_session=True,
  )
  of_others = "it was not tried, as what was tried before ended its process"
  try:
    printed, said = child.communicate(timeout=limit_s)
    *_, last = said.strip().splitlines() or [""]
    how = f"with status {child.returncode}"
    if child.returncode < 0:
      how = f"by {signal.Signals(-child.returncode).name}"
    reason = f"its process was ended {how}: {last[:_MOST_CHARACTERS]}"
  except subprocess.TimeoutExpired:
    # The compiler that it started goes with it.
    os.killpg(child.pid, signal.SIGKILL)
    printed, _ = child.communicate()
    reason = of_others = (
      f"it took longer than {limit_s:g} s and was ended: {_TRY_AGAIN} when this"
      " machine is less busy"
    )
  answers = {}
  for line in printed.splitlines():
    if line.startswith("{"):
      answer = trials.Answer(**json.loads(line))
      answers[answer.name] = answer
  for name in names:
    if name not in answers:
      answers[name] = trials.Answer(name, "fails", reason)
      reason = of_others
  return answers


_PACKAGES = re.compile(r"lagom-xla|jax|jaxlib|jax-cuda\d+-(plugin|pjrt)|numpy")
# Only Linux tells what is free without paging anything out.
MEMORY = pathlib.Path("/proc/meminfo")
_FREE = re.compile(r"MemAvailable: +(\d+) kB")
# Of a container: what it may use, and what it does, where it is limited.
_LIMIT = pathlib.Path("/sys/fs/cgroup/memory.max")
_USED = pathlib.Path("/sys/fs/cgroup/memory.current")


def versions() -> Iterator[Version]:
  """What is installed of what a compile depends on."""
  yield Version(package="python", version=platform.python_version())
  found = {
    name: distribution.version
    for distribution in importlib.metadata.distributions()
    if _PACKAGES.fullmatch(name := distribution.metadata["Name"].lower())
  }
  for name in sorted(found):
    yield Version(package=name, version=found[name])


def workers(worker_bytes: int) -> Finding:
  """The cores and the memory that compiles have.

  A process that compiled a small step took `worker_bytes`; 0 if unknown.
  """
  free_bytes = _free_bytes()
  num_cores = pool.num_cores()
  found = f"{in_words.count(num_cores, 'core')}, "
  if free_bytes is None:
    found += "free memory not known"
  else:
    found += f"{free_bytes / 1e9:.1f} GB free"
  advice = ""
  if worker_bytes:
    found += f"; a small compile took {worker_bytes / 1e9:.1f} GB"
    if free_bytes is not None and free_bytes // worker_bytes < num_cores:
      num_fitting = free_bytes // worker_bytes
      advice = f"Pass --workers={num_fitting}, as more do not fit."
  status: trials.Status = "fails" if advice else "works"
  return Finding(name="workers", status=status, found=found, advice=advice)


def _free_bytes() -> int | None:
  """Memory that processes can still have; None where no file tells it."""
  if not MEMORY.exists() or not (match := _FREE.search(MEMORY.read_text())):
    return None
  free_bytes = int(match[1]) * 1024
  # There is none outside of containers, or with cgroup version 1.
  limit = _LIMIT.read_text().strip() if _LIMIT.exists() else "max"
  if limit == "max":
    return free_bytes
  return min(free_bytes, int(limit) - int(_USED.read_text()))


def compile_cache() -> Finding:
  """Whether what is compiled can be kept."""
  folder = cache.folder_of_user()
  found = "off, by LAGOM_XLA_CACHE"
  if folder is not None:
    try:
      whole_files.check_can_make(folder / "any")
    except OSError as error:
      return Finding(
        name="cache",
        status="fails",
        found=f"{folder} cannot be written: {error.strerror}",
        advice="Name another folder in LAGOM_XLA_CACHE.",
      )
    found = f"{folder} can be written"
  return Finding(name="cache", status="works", found=found)


# Many times what a group of trials takes, on an idle machine.
_LIMIT_S = 60.0

_AOT = "pip install 'lagom_xla[aot]'"


_ESSENTIAL = ("flags", "passes", "compile")
# Trials of `trials.py`: what the user knows each by, and what to do where it
# does not work.
_TRIALS: Mapping[str, tuple[str, str]] = {
  "flags": ("XLA_FLAGS", 'lagom-xla flags --check "$XLA_FLAGS"'),
  "passes": ("schedules", _AOT),
  "compile": ("full compiles", _AOT),
  "options": (
    "XLA options",
    "Use a jaxlib of 0.10.2 to 0.12; plans have no options here.",
  ),
  "gpus": ("GPUs", "pip install 'lagom_xla[cuda13]'"),
  "plugin": (
    "NCCL tuner",
    "Install cc, gcc or clang, or name one in CC; env.sh sets NCCL_MAX_CTAS"
    " without it.",
  ),
  "nccl": ("NCCL", "Only GPUs need it: pip install 'lagom_xla[cuda13]'"),
  "profiler": ("profiler", "Without it plans rest on predictions alone."),
  "page": ("report page", "pip install 'lagom_xla[report]'"),
}
# What shares a process, and with it the time that JAX takes to start.
_GROUPS = (
  ("flags", "passes", "compile", "options"),
  ("profiler",),
  ("plugin", "nccl", "page"),
)


def examine(*, limit_s: float = _LIMIT_S) -> Checkup:
  """Tries all that lagom_xla uses, a group of trials for so long at most."""
  # Those that the driver shows, whatever JAX makes of them.
  has_gpus = bool(glob.glob("/dev/nvidia[0-9]*"))
  groups = (*_GROUPS, ("gpus",)) if has_gpus else _GROUPS
  with concurrent.futures.ThreadPoolExecutor(len(groups)) as threads:
    answers = {
      name: answer
      for of_group in threads.map(lambda group: _run(group, limit_s), groups)
      for name, answer in of_group.items()
    }
  compiled = answers["compile"]
  findings = (
    *(_finding(name, answers.get(name)) for name in _TRIALS),
    compile_cache(),
    workers(compiled.peak_bytes if compiled.status == "works" else 0),
  )
  return Checkup(
    works=all(f.status == "works" for f in findings if f.is_essential),
    versions=tuple(versions()),
    findings=findings,
  )


def _finding(trial: str, answer: trials.Answer | None) -> Finding:
  name, advice = _TRIALS[trial]
  if answer is None:  # Of GPUs alone.
    words = "none is here, and tuning needs none"
    return Finding(name=name, status="missing", found=words)
  # Errors of ours end in advice of their own.
  is_advised = any(it in answer.found for it in ("pip install", _TRY_AGAIN))
  return Finding(
    name=name,
    status=answer.status,
    is_essential=trial in _ESSENTIAL,
    found=answer.found,
    advice="" if is_advised or answer.status == "works" else advice,
  )

# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The doctor: checks what works on this machine.

    checkup = doctor.examine()
    checkup.works, checkup.findings

A trial may abort or hang. So trials run in separate processes, with a time
limit:

    python -m lagom_xla.doctor compile profiler

runs these trials in turn and prints an `Answer` for each, as a line of JSON. If
a trial ends the process, the lines before it remain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
import concurrent.futures
import ctypes
import dataclasses
import functools
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import platform
import re
import resource
import signal
import subprocess
import sys
import time
from typing import Any, Literal, NamedTuple

from lagom_xla import errors
from lagom_xla import processes
from lagom_xla import validation
from lagom_xla.compile import cache
from lagom_xla.compile import pool
from lagom_xla.costs import in_words
from lagom_xla.validation import whole_files

Status = Literal["works", "missing", "fails"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Version:
  """A package and its version.

  Attributes:
    package: name of the package on PyPI; "python" for Python itself.
    version: the installed version.
  """

  package: str
  version: str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
  """The result of a trial.

  Attributes:
    name: name of the trial.
    status: "works", "missing" if it is not installed, or "fails".
    is_essential: whether `inspect` and `tune` need it.
    found: the result, in a sentence.
    advice: what to do if it does not work; "" if nothing.
  """

  name: str
  status: Status
  is_essential: bool = False
  found: str
  advice: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Checkup:
  """What works on a machine.

  Attributes:
    format_version: raised when a field changes its meaning.
    works: whether all essential trials work.
    versions: versions of the installed packages.
    findings: results of the trials, essential ones first.
  """

  __pydantic_config__ = validation.STRICT

  format_version: Literal[1] = 1
  works: bool
  versions: tuple[Version, ...]
  findings: tuple[Finding, ...]


# Trials, each run in its own process.

# Most options to name.
_MOST_OPTIONS = 8
# The cluster to compile for.
_CLUSTER = "1x2xh100"
# Package and file of the library that XLA loads from NVIDIA's wheels.
_NCCL_PACKAGE, _NCCL_LIBRARY = "nvidia.nccl", "libnccl.so.2"


class _MissingError(Exception):
  """The subject of a trial is not installed."""


def _flags() -> str:
  """Whether XLA starts with this XLA_FLAGS, and which flags it reads."""
  from lagom_xla.flags import debug_options
  from lagom_xla.flags import environment
  from lagom_xla.flags import syntax

  environment.check()
  flags, _ = syntax.parse(environment.xla_flags())
  if not flags:
    return "none are set"
  defaults = debug_options.under("")
  values = debug_options.under(os.environ["XLA_FLAGS"])
  set_to = [f"{n}={v}" for n, v in values.items() if v != defaults[n]]
  found = in_words.some(set_to, _MOST_OPTIONS) or "nothing"
  found = f"XLA reads {in_words.count(flags, 'flag')} and sets {found}"
  if word := environment.unread():
    found += f"; it stops reading at {word}, which is not a flag"
  return found


def _passes() -> str:
  """Whether XLA runs one of our passes, which reads a schedule."""
  from lagom_xla.compile import compiler

  begun = time.monotonic()
  module = compiler.schedule(_step())
  return (
    f"read a schedule of {module.num_instructions} instructions in"
    f" {time.monotonic() - begun:.1f} s"
  )


def _compile() -> str:
  """Whether XLA compiles to the end for an absent GPU."""
  from lagom_xla.compile import compiler

  begun = time.monotonic()
  compiler.compile(_step())
  return f"compiled a step for two H100s in {time.monotonic() - begun:.1f} s"


@functools.cache
def _step() -> Any:
  """A matrix product and an all-reduce, lowered for two GPUs."""
  import jax
  from jax.sharding import Mesh
  from jax.sharding import NamedSharding
  from jax.sharding import PartitionSpec
  import numpy as np

  from lagom_xla import cluster as cluster_lib
  from lagom_xla.compile import devices
  from lagom_xla.compile import lowered as lowered_lib
  from lagom_xla.passes import registry

  if registry.plugin_path() is None:
    raise _MissingError("JAX's CUDA plugin is not installed")
  cluster = cluster_lib.parse(_CLUSTER)
  mesh = Mesh(np.array(devices.devices(cluster)), ("x",))
  rows = NamedSharding(mesh, PartitionSpec("x"))
  x = jax.ShapeDtypeStruct((256, 256), np.float32, sharding=rows)
  lowered = jax.jit(lambda x: (x.T @ x).sum()).lower(x)
  return lowered_lib.LoweredStep(lowered, cluster)


def _options() -> str:
  """Whether the options of the installed jaxlib can be read."""
  from lagom_xla.flags import debug_options

  return f"read {len(debug_options.options())} options of jaxlib"


def _gpus() -> str:
  """Whether JAX runs on this machine's GPUs."""
  import jax

  found = jax.devices("gpu")
  jax.block_until_ready(jax.device_put(1.0, found[0]) + 1)
  return f"{len(found)} {found[0].device_kind}"


def _profiler() -> str:
  """Whether JAX's profiler takes a readable trace."""
  import jax

  from lagom_xla.profiling import xspace

  with processes.temporary_folder() as folder:
    with jax.profiler.trace(folder):
      jax.block_until_ready(jax.numpy.ones(8) + 1)
    (session,), _, _ = xspace.newest_sessions(folder)
  planes = [plane.name for plane in session.space.planes]
  backend = jax.default_backend().upper()
  if backend == "GPU" and not any("/device:GPU" in name for name in planes):
    raise errors.TraceError(
      "The trace has no GPU. Stop any other profiler, such as nsys: CUPTI"
      " serves only one."
    )
  return f"took and read a trace on {backend}"


def _plugin() -> str:
  """Whether the NCCL tuner plugin can be compiled and loaded."""
  from lagom_xla.apply.nccl import build

  with processes.temporary_folder() as folder:
    path = build.compile_to(folder / build.LIBRARY)
    interfaces = build.interfaces(path)
  compiler = " ".join(build.compiler())
  return f"built by {compiler}, for tuner interfaces {', '.join(interfaces)}"


def _nccl() -> str:
  """Whether NCCL is installed and can be loaded."""
  path = str(nccl_of_wheel() or _NCCL_LIBRARY)
  try:
    library = ctypes.CDLL(path)
  except OSError as error:
    if path != _NCCL_LIBRARY:
      raise
    raise _MissingError("it is not installed") from error
  version = ctypes.c_int()
  if library.ncclGetVersion(ctypes.byref(version)):
    raise OSError(f"{path} does not report its version.")
  return f"{in_words.nccl_version(version.value)}, {path}"


def nccl_of_wheel() -> pathlib.Path | None:
  """The library that XLA would load first; None if no wheel has it."""
  try:
    spec = importlib.util.find_spec(_NCCL_PACKAGE)
  except ModuleNotFoundError:
    spec = None
  folders = [] if spec is None else spec.submodule_search_locations or []
  paths = (pathlib.Path(folder) / "lib" / _NCCL_LIBRARY for folder in folders)
  return next((path for path in paths if path.is_file()), None)


def _page() -> str:
  """Whether report pages can be drawn."""
  from lagom_xla.report.page import report

  try:
    report.check_can_render()
  except errors.OutputError as error:
    raise _MissingError(f"{error.__cause__}") from error
  import jinja2
  from plotly import graph_objects

  graph_objects.Figure(graph_objects.Bar(x=[1.0], y=["step"])).to_html(
    include_plotlyjs=False
  )
  jinja2.Template("{{ step }}").render(step=1)
  return "drawn by plotly and jinja2"


class _Trial(NamedTuple):
  """A trial, its name for users, and what to do if it fails."""

  run: Callable[[], str]
  name: str
  advice: str
  is_essential: bool = False


_IN_CHECKOUT = "in a checkout of lagom_xla"
_AOT = f"pip install '.[aot]' {_IN_CHECKOUT}"
_TRIALS: Mapping[str, _Trial] = {
  "flags": _Trial(
    _flags, "XLA_FLAGS", 'lagom-xla flags --check "$XLA_FLAGS"', True
  ),
  "passes": _Trial(_passes, "schedules", _AOT, True),
  "compile": _Trial(_compile, "full compiles", _AOT, True),
  "options": _Trial(
    _options,
    "XLA options",
    "Use jaxlib 0.10.2 to 0.12; with others, plans have no options.",
  ),
  "gpus": _Trial(_gpus, "GPUs", f"pip install '.[cuda13]' {_IN_CHECKOUT}"),
  "plugin": _Trial(
    _plugin,
    "NCCL tuner",
    "Install cc, gcc or clang, or set CC; without the plugin env.sh sets"
    " NCCL_MAX_CTAS.",
  ),
  "nccl": _Trial(
    _nccl, "NCCL", f"For GPUs only: pip install '.[cuda13]' {_IN_CHECKOUT}"
  ),
  "profiler": _Trial(
    _profiler, "profiler", "Without it, plans rely on predictions alone."
  ),
  "page": _Trial(
    _page, "report page", f"pip install '.[report]' {_IN_CHECKOUT}"
  ),
}
# Trials in one process, so that JAX starts only once for them.
_GROUPS = (
  ("flags", "passes", "compile", "options"),
  ("profiler",),
  ("plugin", "nccl", "page"),
)


@dataclasses.dataclass(frozen=True)
class Answer:
  """The result of a trial, and the peak memory of its process so far."""

  status: Status
  found: str
  peak_bytes: int = 0


def main(names: Sequence[str]) -> None:
  """Runs trials and prints their answers."""
  for name in names:
    status: Status = "works"
    try:
      found = _TRIALS[name].run()
    except Exception as error:
      status = "missing" if isinstance(error, _MissingError) else "fails"
      found = errors.first_line(error)
      if not isinstance(error, _MissingError | errors.LagomError):
        found = f"{type(error).__name__}: {found}"
    # In bytes on macOS and in KiB elsewhere, by getrusage(2) of each.
    unit_bytes = 1 if sys.platform == "darwin" else 1024
    usage = resource.getrusage(resource.RUSAGE_SELF)
    answer = Answer(status, found, usage.ru_maxrss * unit_bytes)
    print(json.dumps({name: dataclasses.asdict(answer)}), flush=True)


# The checkup.

# Many times the time of a group of trials on an idle machine.
_LIMIT_S = 60.0
# Most characters to quote of a child's last line.
_MOST_CHARACTERS = 200
_TRY_AGAIN = "try again"


def examine(*, limit_s: float = _LIMIT_S) -> Checkup:
  """Runs all trials; `limit_s` is for each group of trials."""
  # The driver shows GPUs even if JAX does not find them.
  has_gpus = processes.has_gpus()
  groups = (*_GROUPS, ("gpus",)) if has_gpus else _GROUPS
  answers: dict[str, Answer] = {}
  with concurrent.futures.ThreadPoolExecutor(len(groups)) as threads:
    for of_group in threads.map(lambda group: _run(group, limit_s), groups):
      answers |= of_group
  compiled = answers["compile"]
  findings = (
    *(_finding(trial, answers.get(name)) for name, trial in _TRIALS.items()),
    _cache(),
    workers(compiled.peak_bytes if compiled.status == "works" else 0),
  )
  return Checkup(
    works=all(f.status == "works" for f in findings if f.is_essential),
    versions=tuple(_versions()),
    findings=findings,
  )


def _run(names: Sequence[str], limit_s: float) -> dict[str, Answer]:
  """Runs trials in one process; trials that it never reached fail."""
  child = subprocess.Popen(
    [sys.executable, "-m", "lagom_xla.doctor", *names],
    # Leaves a GPU's memory to other jobs.
    env={**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    start_new_session=True,
  )
  of_others = "not tried: an earlier trial ended the process"
  try:
    printed, said = child.communicate(timeout=limit_s)
    *_, last = said.strip().splitlines() or [""]
    how = f"with status {child.returncode}"
    if child.returncode < 0:
      how = f"by {signal.Signals(-child.returncode).name}"
    reason = f"its process ended {how}: {last[:_MOST_CHARACTERS]}"
  except subprocess.TimeoutExpired:
    # Also ends a compiler that it started.
    os.killpg(child.pid, signal.SIGKILL)
    printed, _ = child.communicate()
    reason = of_others = (
      f"stopped after {limit_s:g} s: {_TRY_AGAIN} when this machine is less"
      " busy"
    )
  answers = {
    name: Answer(**answer)
    for line in printed.splitlines()
    if line.startswith("{")
    for name, answer in json.loads(line).items()
  }
  for name in names:
    if name not in answers:
      answers[name] = Answer("fails", reason)
      reason = of_others
  return answers


def _finding(trial: _Trial, answer: Answer | None) -> Finding:
  if answer is None:  # Only the trial of GPUs is optional.
    words = "none here; tuning does not need one"
    return Finding(name=trial.name, status="missing", found=words)
  # Some errors already contain advice.
  is_advised = any(it in answer.found for it in ("pip install", _TRY_AGAIN))
  return Finding(
    name=trial.name,
    status=answer.status,
    is_essential=trial.is_essential,
    found=answer.found,
    advice="" if is_advised or answer.status == "works" else trial.advice,
  )


_PACKAGES = re.compile(r"lagom-xla|jax|jaxlib|jax-cuda\d+-(plugin|pjrt)|numpy")


def _versions() -> Iterator[Version]:
  """The versions of installed packages that affect a compile."""
  yield Version(package="python", version=platform.python_version())
  found = {
    name: distribution.version
    for distribution in importlib.metadata.distributions()
    if _PACKAGES.fullmatch(name := distribution.metadata["Name"].lower())
  }
  for name in sorted(found):
    yield Version(package=name, version=found[name])


def _cache() -> Finding:
  """Whether compiled modules can be cached."""
  folder = cache.folder_of_user()
  found = "switched off by LAGOM_XLA_CACHE"
  if folder is not None:
    try:
      whole_files.check_can_make(folder / "any")
    except OSError as error:
      return Finding(
        name="cache",
        status="fails",
        found=f"cannot write {folder}: {error.strerror}",
        advice="Name another folder in LAGOM_XLA_CACHE.",
      )
    found = f"can write {folder}"
  return Finding(name="cache", status="works", found=found)


# Only Linux reports the available memory.
MEMORY = pathlib.Path("/proc/meminfo")
_FREE = re.compile(r"MemAvailable: +(\d+) kB")
# A container's memory limit and use, if there is a limit.
_LIMIT = pathlib.Path("/sys/fs/cgroup/memory.max")
_USED = pathlib.Path("/sys/fs/cgroup/memory.current")


def workers(worker_bytes: int) -> Finding:
  """The cores and the memory for compiles.

  `worker_bytes` is the memory of a process that compiled a small step; 0 if
  unknown.
  """
  free_bytes = _free_bytes()
  num_cores = pool.num_cores()
  found = f"{in_words.count(num_cores, 'core')}, "
  if free_bytes is None:
    found += "free memory unknown"
  else:
    found += f"{free_bytes / 1e9:.1f} GB free"
  advice = ""
  if worker_bytes:
    found += f"; a small compile took {worker_bytes / 1e9:.1f} GB"
    if free_bytes is not None and free_bytes // worker_bytes < num_cores:
      num_fitting = free_bytes // worker_bytes
      advice = f"Pass --workers={num_fitting}: more do not fit."
  status: Status = "fails" if advice else "works"
  return Finding(name="workers", status=status, found=found, advice=advice)


def _free_bytes() -> int | None:
  """Available memory in bytes; None if no file reports it."""
  if not MEMORY.exists() or not (match := _FREE.search(MEMORY.read_text())):
    return None
  free_bytes = int(match[1]) * 1024
  # These files do not exist outside containers, or with cgroup version 1.
  limit = _LIMIT.read_text().strip() if _LIMIT.exists() else "max"
  if limit == "max":
    return free_bytes
  return min(free_bytes, int(limit) - int(_USED.read_text()))


if __name__ == "__main__":
  main(sys.argv[1:])

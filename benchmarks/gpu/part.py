# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A part of the measurements: a process with a time limit.

`run` always returns a row, also if the part hangs or the driver kills it. The
row then has the reason, and the figures that the part kept so far.
"""

from __future__ import annotations

from collections.abc import Mapping
import contextlib
import dataclasses
import faulthandler
import importlib
import importlib.metadata
import json
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

from lagom_xla import processes

ROOT = pathlib.Path(__file__).parents[2]
_MOST_WORDS = 600
_NOT_MEASURED = 3  # Exit status; 1 and 2 are Python's.
# A part that hangs logs its stack this long before its limit.
_LAST_WORDS_S = 2.0

# Time limit in seconds and module of each part, in order. Later parts read
# files of earlier ones, and the last one tries as many settings as time allows.
PARTS: Mapping[str, tuple[float, str]] = {
  "environment": (60, "part"),  # Driver, packages and GPUs.
  "traced_step": (120, "example"),  # The Llama example, and its prediction.
  "lone_kernels": (90, "kernels"),  # Products and fusions, and predictions.
  "tuner_plugin": (90, "ranks"),  # NCCL's tuner plugin, loaded and in effect.
  "decorated": (120, "example"),  # lagom_xla.tune around the same step.
  "commands": (150, "example"),  # lagom-xla profile and tune.
  "two_ranks": (300, "ranks"),  # Kernels beside NCCL.
}


class NotMeasuredError(Exception):
  """This machine lacks something to measure; the message says what."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
  """The task of a part.

  Attributes:
    part: its name.
    folder: the folder for files of all parts.
    limit_s: time limit, after which the part is killed.
    cluster: the GPUs here, such as "1x1xh200"; found by the first part.
    is_brief: whether to measure little.
  """

  part: str
  folder: str
  limit_s: float
  cluster: str = ""
  is_brief: bool = False

  @property
  def path(self) -> pathlib.Path:
    """The folder."""
    return pathlib.Path(self.folder)

  @property
  def num_gpus(self) -> int:
    """The number of GPUs here."""
    return int(self.cluster.split("x")[1])

  def several(self, num_gpus: int) -> str:
    """A cluster with this number of this machine's GPU."""
    return f"1x{num_gpus}x{self.cluster.rpartition('x')[2]}"

  def keep(self, figures: Mapping[str, Any]) -> None:
    """Saves the figures found so far, in case the part does not finish."""
    scratch = self.path / f".{self.part}.json"
    scratch.write_text(json.dumps(figures))
    scratch.rename(self.path / f"{self.part}.json")


def row(
  part: str,
  status: str,
  reason: str = "",
  *,
  seconds: float = 0.0,
  figures: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
  """The row of a part; status is "measured", "not measured" or "failed"."""
  return {
    "part": part,
    "status": status,
    "reason": reason,
    "seconds": seconds,
    "figures": figures or {},
  }


def run(task: Task) -> dict[str, Any]:
  """Measures a part in its own process, and ends all that it starts.

  Returns:
    The row, with the reason in a sentence, and all figures, or those kept
    before a failure.
  """
  begin_s = time.monotonic()
  said = task.path / f"{task.part}.log"
  code = "from benchmarks.gpu import part; part.main()"
  with said.open("wb") as log:
    process = subprocess.Popen(
      (sys.executable, "-c", code, json.dumps(dataclasses.asdict(task))),
      cwd=ROOT,
      stdin=subprocess.DEVNULL,
      stdout=log,
      stderr=log,
      start_new_session=True,
    )
  try:
    status: int | None = process.wait(max(task.limit_s, 0.0))
  except subprocess.TimeoutExpired:
    status = None
  finally:
    # Its children may still be running.
    with contextlib.suppress(ProcessLookupError):
      os.killpg(process.pid, signal.SIGKILL)
    process.wait()
  last = said.read_text(errors="replace").strip().rpartition("\n")[2]
  last = last[-_MOST_WORDS:]
  outcome, reason = {
    0: ("measured", ""),
    None: ("failed", f"It did not end within {task.limit_s:.0f} s."),
    _NOT_MEASURED: ("not measured", last),
  }.get(
    status, ("failed", f"It ended with status {status}: {last or 'silently'}")
  )
  kept = task.path / f"{task.part}.json"
  return row(
    *(task.part, outcome, reason),
    seconds=time.monotonic() - begin_s,
    figures=json.loads(kept.read_text()) if kept.exists() else {},
  )


# Prefixes of the packages to list.
_PACKAGES = ("jax", "nvidia-", "flax", "optax", "protobuf", "pydantic", "numpy")
_TOOLS = ("cc", "gcc", "nvcc", "nvidia-cuda-mps-control")
_QUERY = (
  *("name", "driver_version", "memory.total", "clocks.max.sm"),
  *("clocks.max.memory", "power.limit", "compute_mode", "pstate"),
)


def environment(task: Task) -> dict[str, Any]:
  """The machine and software of all other figures."""
  figures: dict[str, Any] = {
    "python": platform.python_version(),
    "kernel": platform.release(),
    "packages": {
      it.name: it.version
      for it in importlib.metadata.distributions()
      if (it.name or "").startswith(_PACKAGES)
    },
    "tools": {tool: shutil.which(tool) for tool in _TOOLS},
  }
  # Kept even without a GPU, to show what could be measured with one.
  task.keep(figures)
  task.keep(figures := figures | _gpus())
  if not shutil.which("nvidia-smi"):
    return figures | {"gpu": "There is no nvidia-smi to describe it."}
  said = subprocess.run(
    ("nvidia-smi", f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader"),
    check=True,
    capture_output=True,
    text=True,
    timeout=20,
  ).stdout
  values = map(str.strip, said.splitlines()[0].split(","))
  return figures | {"gpu": dict(zip(_QUERY, values, strict=True))}


def _gpus() -> dict[str, str]:
  """The GPUs here, by name and as a cluster.

  Raises:
    NotMeasuredError: JAX has no GPU here, or one that lagom_xla does not know.
  """
  # Avoids importing JAX for nothing.
  if not (processes.has_gpus() or shutil.which("nvidia-smi")):
    raise NotMeasuredError("There is no NVIDIA GPU on this machine.")
  import jax

  from lagom_xla import cluster as cluster_lib
  from lagom_xla import errors

  if jax.default_backend() != "gpu":
    raise NotMeasuredError(
      f"JAX {jax.__version__} runs on {jax.default_backend()} here: its CUDA"
      " plugin is not installed, or does not load."
    )
  devices = jax.local_devices()
  try:
    cluster = cluster_lib.of_devices(devices).name
  except errors.ClusterError as error:
    raise NotMeasuredError(str(error)) from error
  return {"device": devices[0].device_kind, "cluster": cluster}


def run_python(
  *arguments: str, limit_s: float, **environ: str
) -> subprocess.CompletedProcess[str]:
  """Runs a Python that does not preallocate GPU memory.

  After the time limit, its status is that of a killed process, and its stderr
  says so.
  """
  try:
    return subprocess.run(
      (sys.executable, *arguments),
      cwd=ROOT,
      env={**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", **environ},
      capture_output=True,
      text=True,
      timeout=limit_s,
    )
  except subprocess.TimeoutExpired:
    said = f"It did not end within {limit_s:.0f} s."
    return subprocess.CompletedProcess(arguments, -signal.SIGKILL, "", said)


def main() -> None:
  """Measures one part in this process."""
  task = Task(**json.loads(sys.argv[1]))
  # Only at the end, because reading a running thread's frames may crash Python
  # 3.13.
  if task.limit_s > _LAST_WORDS_S:
    faulthandler.dump_traceback_later(task.limit_s - _LAST_WORDS_S)
  name, module = task.part, PARTS[task.part][1]
  try:
    found = importlib.import_module(f"{__package__}.{module}")
    task.keep(getattr(found, name)(task))
  except NotMeasuredError as error:
    print(error, file=sys.stderr)
    sys.exit(_NOT_MEASURED)
  except ModuleNotFoundError as error:
    print(
      f"This part needs the package {error.name}: install the dependencies in"
      " pyproject.toml, from wheels if there is no registry.",
      file=sys.stderr,
    )
    sys.exit(_NOT_MEASURED)

# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A part of the measurements: a process of its own, with a time limit.

Whatever becomes of that process, a part that hangs or that the driver kills
too, `run` returns a row that says so; and what the part had measured by then,
if it kept it.
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
# So long before its end a part that hangs says in its log where.
_LAST_WORDS_S = 2.0

# The most seconds of each and its module, in this order: later ones read what
# earlier ones leave, and the last one takes as many settings as there is time
# left for.
PARTS: Mapping[str, tuple[float, str]] = {
  "environment": (60, "part"),  # Driver and packages; what GPUs there are.
  "traced_step": (120, "example"),  # The Llama example, and its prediction.
  "lone_kernels": (90, "kernels"),  # Products and fusions, and predictions.
  "tuner_plugin": (90, "ranks"),  # NCCL's tuner plugin, loaded and obeyed.
  "decorated": (120, "example"),  # lagom_xla.tune around the same step.
  "commands": (150, "example"),  # lagom-xla profile and tune.
  "two_ranks": (300, "ranks"),  # Kernels beside NCCL.
}


class NotMeasuredError(Exception):
  """This machine lacks what the part measures; the message says what."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
  """What a part is given.

  Attributes:
    part: its name.
    folder: where parts leave files for each other.
    limit_s: after which it is killed.
    cluster: the GPUs that are here, such as "1x1xh200"; the first part finds
      it.
    is_brief: whether to measure little of each thing.
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
    """How many there are here."""
    return int(self.cluster.split("x")[1])

  def several(self, num_gpus: int) -> str:
    """So many of this machine's GPU as a cluster."""
    return f"1x{num_gpus}x{self.cluster.rpartition('x')[2]}"

  def keep(self, figures: Mapping[str, Any]) -> None:
    """Keeps what was found so far, should the part not come to its end."""
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
  """What is told of a part: "measured", "not measured" or "failed"."""
  return {
    "part": part,
    "status": status,
    "reason": reason,
    "seconds": seconds,
    "figures": figures or {},
  }


def run(task: Task) -> dict[str, Any]:
  """Measures a part in a process of its own, and ends all that it starts.

  Returns:
    Its row, with the reason in a sentence, and the figures that it found, or
    had kept when it failed.
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
    # What it started may still be there.
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


# Of the packages those whose names begin so.
_PACKAGES = ("jax", "nvidia-", "flax", "optax", "protobuf", "pydantic", "numpy")
_TOOLS = ("cc", "gcc", "nvcc", "nvidia-cuda-mps-control")
_QUERY = (
  *("name", "driver_version", "memory.total", "clocks.max.sm"),
  *("clocks.max.memory", "power.limit", "compute_mode", "pstate"),
)


def environment(task: Task) -> dict[str, Any]:
  """What all other figures were measured on."""
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
  # Kept even where there is no GPU: it says what could be measured with one.
  task.keep(figures)
  task.keep(figures := figures | _gpus())
  if not shutil.which("nvidia-smi"):
    return figures | {"gpu": "There is no nvidia-smi to tell more of it."}
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
  """The GPUs that are here, by name and as a cluster.

  Raises:
    NotMeasuredError: JAX has none here, or one that lagom_xla does not know.
  """
  # Without this, JAX would be imported for nothing.
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
  """Runs a Python that takes no more of the GPU than it uses.

  Where it does not end in that time, its status is that of a killed one, and
  its stderr says so.
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
  # Reading the frames of a thread that runs may crash Python 3.13: at the end.
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
      f"Python has no package {error.name} here, which this part needs: bring"
      " what pyproject.toml lists, as wheels where there is no registry.",
      file=sys.stderr,
    )
    sys.exit(_NOT_MEASURED)

# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A part of the measurements: a process of its own, with a time limit.

    python -m benchmarks.gpu.part NAME FOLDER

measures one part here. Whatever becomes of that process, a part that hangs or
that the driver kills too, `run` returns a row that says so; and what the part
had measured by then, if it kept it.
"""

from __future__ import annotations

from collections.abc import Mapping
import contextlib
import functools
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
_LIMIT = "BENCHMARKS_GPU_LIMIT_S"
_MOST_WORDS = 600
_NOT_MEASURED = 3  # Exit status; 1 and 2 are Python's.

# The most seconds of each, its module, and what it measures, in this order:
# later ones read what earlier ones leave, and the last one takes as many
# settings as there is time left for.
PARTS: Mapping[str, tuple[float, str, str]] = {
  "environment": (30, "part", "driver, NCCL and Python packages"),
  "traced_step": (145, "example", "the Llama example's step, predictions"),
  "lone_kernels": (75, "kernels", "products and fusions, against predictions"),
  "tuner_plugin": (85, "ranks", "the NCCL tuner plugin, loaded"),
  "decorated": (130, "example", "lagom_xla.tune around the same step"),
  "commands": (90, "example", "lagom-xla profile and tune, end to end"),
  "two_ranks": (300, "ranks", "kernels beside NCCL, two ranks on this GPU"),
}


class NotMeasuredError(Exception):
  """This machine lacks what the part measures; the message says what."""


def keep(folder: pathlib.Path, part: str, figures: dict[str, Any]) -> None:
  """Keeps what a part has found so far, should it not come to its end."""
  scratch = folder / f".{part}.json"
  scratch.write_text(json.dumps(figures))
  scratch.rename(folder / f"{part}.json")


def own_limit_s() -> float:
  """How long the part that runs in this process may take."""
  return float(os.environ[_LIMIT])


def run(name: str, folder: pathlib.Path, *, limit_s: float) -> dict[str, Any]:
  """Measures a part in a process of its own, and all that it starts.

  Args:
    name: of the part.
    folder: where parts leave files for each other.
    limit_s: after which it is killed.

  Returns:
    The part's name; its status, "measured", "not measured" or "failed", with
    the reason in a sentence; the seconds that it took; and the figures that it
    found, or had kept when it failed.
  """
  begin_s = time.monotonic()
  said = folder / f"{name}.log"
  with said.open("wb") as log:
    process = subprocess.Popen(
      (sys.executable, "-m", __spec__.name, name, str(folder)),
      cwd=ROOT,
      env={**os.environ, _LIMIT: str(limit_s)},
      stdin=subprocess.DEVNULL,
      stdout=log,
      stderr=log,
      start_new_session=True,
    )
  try:
    status: int | None = process.wait(max(limit_s, 0.0))
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
    None: ("failed", f"It did not end within {limit_s:.0f} s."),
    _NOT_MEASURED: ("not measured", last),
  }.get(
    status, ("failed", f"It ended with status {status}: {last or 'silently'}")
  )
  kept = folder / f"{name}.json"
  return {
    "part": name,
    "status": outcome,
    "reason": reason,
    "seconds": time.monotonic() - begin_s,
    "figures": json.loads(kept.read_text()) if kept.exists() else {},
  }


# Of the packages those whose names begin so.
_PACKAGES = ("jax", "nvidia-", "flax", "optax", "protobuf", "pydantic", "numpy")
_TOOLS = ("cc", "gcc", "nvcc", "nvidia-cuda-mps-control")
_QUERY = (
  *("name", "driver_version", "memory.total", "clocks.max.sm"),
  *("clocks.max.memory", "power.limit", "compute_mode", "pstate"),
)


def environment(folder: pathlib.Path) -> dict[str, Any]:
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
  keep(folder, "environment", figures)
  figures["cluster"] = cluster_name()
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


def _check_is_there() -> None:
  """Raises a NotMeasuredError if there is no GPU; holds none for that."""
  if not (processes.has_gpus() or shutil.which("nvidia-smi")):
    raise NotMeasuredError("There is no NVIDIA GPU on this machine.")


def cluster_name() -> str:
  """The GPUs that this process then holds as a cluster, such as "1x1xh200".

  Raises:
    NotMeasuredError: JAX has none here, or one that lagom_xla does not know.
  """
  _check_is_there()
  import jax

  from lagom_xla import cluster as cluster_lib
  from lagom_xla import errors

  if jax.default_backend() != "gpu":
    raise NotMeasuredError(
      f"JAX {jax.__version__} runs on {jax.default_backend()} here: its CUDA"
      " plugin is not installed, or does not load."
    )
  try:
    return cluster_lib.of_devices(jax.local_devices()).name
  except errors.ClusterError as error:
    raise NotMeasuredError(str(error)) from error


@functools.cache
def several(num_gpus: int) -> str:
  """So many of this machine's GPU as a cluster.

  Asks a process that ends, for parts whose own ones use the GPU.

  Raises:
    NotMeasuredError: as of `cluster_name`.
  """
  code = "from benchmarks.gpu import part; print(part.cluster_name())"
  done = run_python("-c", code, limit_s=60.0)
  if done.returncode:
    raise NotMeasuredError(
      done.stderr.strip().rpartition("\n")[2] or "JAX finds no GPU."
    )
  return f"1x{num_gpus}x{done.stdout.strip().rpartition('x')[2]}"


def run_python(
  *arguments: str, limit_s: float, **environ: str
) -> subprocess.CompletedProcess[str]:
  """Runs a Python that takes no more of the GPU than it uses.

  Raises:
    subprocess.TimeoutExpired: it did not end in that time.
  """
  return subprocess.run(
    (sys.executable, *arguments),
    cwd=ROOT,
    env={**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", **environ},
    capture_output=True,
    text=True,
    timeout=limit_s,
  )


def main() -> None:
  """Measures one part in this process."""
  name, folder = sys.argv[1], pathlib.Path(sys.argv[2])
  module = PARTS[name][1]
  try:
    if name != "environment":  # Which has something to say without one.
      _check_is_there()  # Without this, JAX would be imported for nothing.
    measure = getattr(importlib.import_module(f"{__package__}.{module}"), name)
    keep(folder, name, measure(folder))
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


if __name__ == "__main__":
  # The class that parts raise, not the one of this script.
  from benchmarks.gpu import part as part_lib

  part_lib.main()

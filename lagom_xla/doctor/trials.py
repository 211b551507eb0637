# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Trials, each of one thing that may abort, hang or not be installed.

    python -m lagom_xla.doctor.trials compile profiler

runs them one after the other and prints an `Answer` for each, a line of JSON. A
trial that ends the process leaves the lines before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import ctypes
import dataclasses
import functools
import importlib.util
import json
import pathlib
import resource
import sys
import time
from typing import Any, Literal

from lagom_xla import errors
from lagom_xla import temporary

# What is compiled for, without being here.
_CLUSTER = "1x2xh100"
# Where NVIDIA's wheels have the library that XLA loads.
_NCCL_PACKAGE, _NCCL_LIBRARY = "nvidia.nccl", "libnccl.so.2"

Status = Literal["works", "missing", "fails"]


@dataclasses.dataclass(frozen=True)
class Answer:
  """What came of a trial, and the most memory of its process until then."""

  name: str
  status: Status
  found: str
  peak_bytes: int = 0


class MissingError(Exception):
  """What was tried is not installed here."""


def flags() -> str:
  """XLA starts with the XLA_FLAGS that is set."""
  from lagom_xla.flags import environment

  environment.check()
  num_flags = len(environment.xla_flags().split())
  return f"XLA takes all {num_flags} flags" if num_flags else "none are set"


def passes() -> str:
  """XLA runs a pass of ours, which reads a schedule."""
  from lagom_xla.compile import compiler as compiler_lib

  begun = time.monotonic()
  module = compiler_lib.schedule(_step())
  num_instructions = sum(
    len(it.instructions) for it in module.computations.values()
  )
  return (
    f"a pass of ours read one of {num_instructions} instructions,"
    f" {time.monotonic() - begun:.1f} s"
  )


def options() -> str:
  """The installed jaxlib shows its options."""
  from lagom_xla.flags import debug_options

  return f"{len(debug_options.options())} options of jaxlib can be read"


def compile() -> str:
  """XLA compiles to the end for a GPU that is not here."""
  from lagom_xla.compile import compiler as compiler_lib

  begun = time.monotonic()
  compiler_lib.compile(_step())
  return f"a step for two H100s, {time.monotonic() - begun:.1f} s"


@functools.cache
def _step() -> Any:
  """A product and an all-reduce, lowered for two GPUs."""
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
    raise MissingError("JAX's CUDA plugin is not installed")
  cluster = cluster_lib.parse(_CLUSTER)
  mesh = Mesh(np.array(devices.devices(cluster)), ("x",))
  rows = NamedSharding(mesh, PartitionSpec("x"))
  x = jax.ShapeDtypeStruct((256, 256), np.float32, sharding=rows)
  lowered = jax.jit(lambda x: (x.T @ x).sum()).lower(x)
  return lowered_lib.LoweredStep(lowered, cluster)


def gpus() -> str:
  """JAX runs on the GPUs that are here."""
  import jax

  found = jax.devices("gpu")
  jax.block_until_ready(jax.device_put(1.0, found[0]) + 1)
  return f"{len(found)} {found[0].device_kind}"


def profiler() -> str:
  """JAX's profiler traces, and its trace can be read."""
  import jax

  from lagom_xla.profiling import xspace

  with temporary.folder() as folder:
    with jax.profiler.trace(folder):
      jax.block_until_ready(jax.numpy.ones(8) + 1)
    (session,), _, _ = xspace.newest_sessions(folder)
  planes = [plane.name for plane in session.space.planes]
  platform = jax.default_backend().upper()
  if platform == "GPU" and not any("/device:GPU" in name for name in planes):
    raise errors.TraceError(
      "The trace has no GPU: another profiler has it (CUPTI serves one), such"
      " as nsys. End that one."
    )
  return f"a session was opened on {platform} and its trace read"


def plugin() -> str:
  """The NCCL tuner plugin is compiled and loaded."""
  from lagom_xla.apply.nccl import build

  with temporary.folder() as folder:
    path = build.compile_to(folder / build.LIBRARY)
    interfaces = build.interfaces(path)
  compiler = " ".join(build.compiler())
  return f"{compiler} builds it, for tuner interfaces {', '.join(interfaces)}"


def nccl() -> str:
  """A NCCL is installed, and can be loaded."""
  from lagom_xla.costs import in_words

  path = str(nccl_of_wheel() or _NCCL_LIBRARY)
  try:
    library = ctypes.CDLL(path)
  except OSError as error:
    if path != _NCCL_LIBRARY:
      raise
    raise MissingError("it is not installed") from error
  version = ctypes.c_int()
  if library.ncclGetVersion(ctypes.byref(version)):
    raise OSError(f"{path} does not tell its version.")
  return f"{in_words.nccl_version(version.value)}, {path}"


def nccl_of_wheel() -> pathlib.Path | None:
  """The library that XLA would load first; None where no wheel has one."""
  try:
    spec = importlib.util.find_spec(_NCCL_PACKAGE)
  except ModuleNotFoundError:
    spec = None
  folders = [] if spec is None else spec.submodule_search_locations or []
  paths = (pathlib.Path(folder) / "lib" / _NCCL_LIBRARY for folder in folders)
  return next((path for path in paths if path.is_file()), None)


def page() -> str:
  """What draws report pages draws."""
  from lagom_xla.report.page import rendering

  try:
    rendering.check_can_render()
  except errors.OutputError as error:
    raise MissingError(f"{error.__cause__}") from error
  import jinja2
  from plotly import graph_objects

  graph_objects.Figure(graph_objects.Bar(x=[1.0], y=["step"])).to_html(
    include_plotlyjs=False
  )
  jinja2.Template("{{ step }}").render(step=1)
  return "plotly and jinja2 draw"


TRIALS: dict[str, Callable[[], str]] = {
  function.__name__: function
  for function in (
    *(flags, passes, options, compile, gpus, profiler, plugin, nccl, page),
  )
}


def main(names: Sequence[str]) -> None:
  """Runs trials, and prints what came of them."""
  for name in names:
    status: Status = "works"
    try:
      found = TRIALS[name]()
    except Exception as error:
      status = "missing" if isinstance(error, MissingError) else "fails"
      found = errors.first_line(error)
      if not isinstance(error, MissingError | errors.LagomError):
        found = f"{type(error).__name__}: {found}"
    # In bytes on macOS and in KiB elsewhere, by getrusage(2) of each.
    unit_bytes = 1 if sys.platform == "darwin" else 1024
    usage = resource.getrusage(resource.RUSAGE_SELF)
    peak_bytes = usage.ru_maxrss * unit_bytes
    answer = Answer(name, status, found, peak_bytes)
    print(json.dumps(dataclasses.asdict(answer)), flush=True)


if __name__ == "__main__":
  main(sys.argv[1:])

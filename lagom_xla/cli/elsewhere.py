# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A process that lowers one target for one number of devices.

    python -m lagom_xla.cli.elsewhere FILE PARENT < TASK

A program that makes its mesh on import uses all devices that JAX started with,
and JAX starts once per process. FILE gets the HLO module, or a line of JSON
that says why there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
import json
import os
import pathlib
import subprocess
import sys
from typing import TYPE_CHECKING

from lagom_xla import errors
from lagom_xla import processes

if TYPE_CHECKING:
  from lagom_xla import cluster as cluster_lib
  from lagom_xla.compile import target as target_lib

_REASON = b'{"reason": '
_MOST_WORDS = 400


def loader(
  text: str, arguments: Mapping[str, str]
) -> Callable[[cluster_lib.Cluster], target_lib.Target]:
  """Returns a function that loads a target for a cluster.

  It loads in this process if possible. `text` is the target on the command
  line, and `arguments` are keyword arguments for its function.
  """
  from lagom_xla.compile import load as load_lib
  from lagom_xla.compile import target as target_lib

  first: target_lib.Target | None = None

  def load(cluster: cluster_lib.Cluster) -> target_lib.Target:
    nonlocal first
    # A program that makes its mesh from the given devices is a step.
    if (
      first is not None
      and cluster.num_devices != first.cluster.num_devices
      and load_lib.is_python(text)
      and not isinstance(first, target_lib.StepTarget)
    ):
      return _lowered(text, cluster, arguments)
    target = load_lib.load(text, cluster, arguments=arguments)
    first = first or target
    return target

  return load


def _lowered(
  text: str, cluster: cluster_lib.Cluster, arguments: Mapping[str, str]
) -> target_lib.Target:
  """A target, lowered in a separate process."""
  from lagom_xla.compile import target as target_lib
  from lagom_xla.passes import hlo

  task = {"text": text, "cluster": cluster.to_dict(), "arguments": arguments}
  with processes.temporary_folder() as folder:
    file = folder / "lowered"
    done = subprocess.run(
      [sys.executable, "-m", __name__, str(file), str(os.getpid())],
      # It never uses the GPUs, like compile processes.
      env={
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": processes.python_path(),
      },
      input=json.dumps(task),
      stdout=subprocess.DEVNULL,
      stderr=subprocess.PIPE,
      text=True,
      check=False,
    )
    content = file.read_bytes() if file.is_file() else b""
  if content.startswith(_REASON):
    raise errors.TargetError(json.loads(content)["reason"])
  if not content:
    said = done.stderr.strip()[-_MOST_WORDS:]
    raise errors.TargetError(
      f"The process that lowered {text} for {cluster.name} exited with status"
      f" {done.returncode}: {said}"
    )
  return target_lib.of_module(hlo.load(content), cluster, name=text)


def main() -> None:
  """Lowers the target of the task, and writes the result."""
  file, parent = pathlib.Path(sys.argv[1]), int(sys.argv[2])
  from lagom_xla.compile import worker

  worker.end_with(parent)
  from lagom_xla import cluster as cluster_lib
  from lagom_xla.compile import load
  from lagom_xla.compile import target as target_lib

  task = json.loads(sys.stdin.read())
  text, arguments = task["text"], task["arguments"]
  cluster = cluster_lib.from_dict(task["cluster"], where="the cluster")
  try:
    target = load.load(text, cluster, arguments=arguments)
    if not isinstance(target, target_lib.ModuleTarget):
      raise errors.TargetError(
        f"{text} makes its mesh on import for some clusters, but not for"
        f" {cluster.name}."
      )
    content = target.lowered.module.proto.SerializeToString()
  except errors.LagomError as error:
    content = json.dumps({"reason": str(error)}).encode()
  file.write_bytes(content)
  os._exit(0)  # Does not wait for the program's threads.


if __name__ == "__main__":
  main()

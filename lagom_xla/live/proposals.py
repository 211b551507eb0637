# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Proposals: other ways to run a step. Each platform has a proposer.

A proposer makes and compiles proposals for one kind of device. It measures
nothing. A proposal is bytes, so that every process of a job can compile the
same.

Importing a proposer takes most of a second. Runs that are too short for a
search never import it; longer runs do in a thread, while the step trains.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Generator
import dataclasses
import importlib
import json
import os
import pathlib
import socket
import threading
from typing import TYPE_CHECKING, Any, Protocol, cast

import jax

from lagom_xla import errors
from lagom_xla.jax_internals import lowerings

if TYPE_CHECKING:  # Imported by threads while the step trains.
  from lagom_xla import cluster as cluster_lib


@dataclasses.dataclass(frozen=True, kw_only=True)
class Proposal:
  """Another way to run a step, named in a few words.

  Every process of the job compiles it from `payload`, which is JSON.
  `predicted_ratio` is the predicted step time over the baseline's.
  """

  name: str
  payload: bytes
  predicted_ratio: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
  """Measurements of the step, for a proposer.

  `trace_dir` is the folder of this process's jax.profiler trace, if any;
  `step_s` is the baseline's step time in seconds.
  """

  trace_dir: pathlib.Path | None
  step_s: float


class Proposer(Protocol):
  """Makes proposals for one kind of device, and compiles them.

  Attributes:
    has_profile_build: Whether traces show more of the step as compiled by
      `compile_for_profile`.
  """

  has_profile_build: bool = False

  def proposals(
    self,
    lowered: jax.stages.Lowered,
    measured: Measured,
    stop: threading.Event,
  ) -> Generator[Proposal, None, str | None]:
    """Yields proposals, best first, until `stop` is set.

    Runs in a background thread of the job's first process. If it raises,
    training keeps the variant in use.

    Returns:
      The reason to stop, if it is not that all proposals were yielded.
    """

  def compile(
    self, lowered: jax.stages.Lowered, payload: bytes
  ) -> jax.stages.Compiled:
    """Compiles the proposal with this payload, in a background thread.

    The collectives and their order must be the same in every process.
    """

  def compile_for_profile(
    self, lowered: jax.stages.Lowered
  ) -> jax.stages.Compiled:
    """Compiles the unchanged step for a profiler, in a background thread."""
    return lowered.compile()

  def digest(self, compiled: jax.stages.Compiled) -> str:
    """A hash of the collectives, which must be equal in all processes."""


class _Deferred:
  """A stand-in for a proposer that is made on first use."""

  has_profile_build = True

  def __init__(self, make: Callable[[], Proposer]):
    self._make = make
    self._made: Proposer | None = None
    self._lock = threading.Lock()

  def __getattr__(self, name: str) -> Any:
    if name.startswith("_"):
      raise AttributeError(name)
    with self._lock:
      if self._made is None:
        self._made = self._make()
        # Imported here, because the training thread needs it for verdicts.
        importlib.import_module("scipy.special")
      return getattr(self._made, name)


def deferred(make: Callable[[], Proposer]) -> Proposer:
  """A proposer with a profile build, which the first thread to use it makes."""
  return cast(Proposer, _Deferred(make))


def check_no_refs(lowered: jax.stages.Lowered) -> None:
  """Raises a TargetError if a step uses refs.

  JAX (0.10.2 to 0.12) does not expose the types and shardings of such an
  executable's results. So whether it may replace another cannot be checked.
  """
  if lowerings.changes_refs(lowered):
    raise errors.TargetError(
      "it uses a jax.ref.Ref (jax.new_ref), and the results of executables"
      " with refs cannot be compared. To tune it, pass the array itself,"
      " donated, and return the new array."
    )


def platform_of(lowered: jax.stages.Lowered) -> str:
  """The platform that a step was lowered for, such as "cpu" or "gpu"."""
  platform = lowerings.client_of(lowered).platform
  return "gpu" if platform in ("gpu", "cuda", "rocm") else platform


def devices_of(lowered: jax.stages.Lowered) -> str:
  """The devices of a step's client, as in "8 NVIDIA H100 80GB HBM3"."""
  devices = lowerings.client_of(lowered).devices()
  kinds = collections.Counter(device.device_kind for device in devices)
  return ", ".join(f"{number} {kind}" for kind, number in kinds.items())


def of_live_gpus() -> cluster_lib.Cluster:
  """The cluster of this job's GPUs."""
  from lagom_xla import cluster as cluster_lib

  return cluster_lib.of_devices(jax.devices())


def machine_of(
  lowered: jax.stages.Lowered, cluster: cluster_lib.Cluster | None
) -> str:
  """A description of the machine, as far as step times depend on it.

  On GPUs, it describes `cluster`, or the cluster of the live GPUs. Raises a
  ClusterError if their kind is unknown.
  """
  if platform_of(lowered) == "gpu":
    cluster = cluster or of_live_gpus()
    return json.dumps(cluster.to_dict(), sort_keys=True)
  num_threads = os.environ.get("PJRT_NPROC")
  counts = (num_threads, jax.device_count(), jax.process_count())
  return repr((socket.gethostname(), *counts))


def nothing_to_tune(platform: str) -> errors.ClusterError:
  """The error for a platform without a proposer."""
  return errors.ClusterError(
    f"{platform} devices cannot be tuned. To tune by predictions, name the GPUs"
    " that they stand for with cluster=."
  )

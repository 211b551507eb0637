# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Platforms, and who makes proposals for a step on each."""

from __future__ import annotations

from collections.abc import Callable
import json
import os
import socket
from typing import TYPE_CHECKING, Any

import jax

from lagom_xla import errors
from lagom_xla.jax_internals import lowerings
from lagom_xla.live import proposals

if TYPE_CHECKING:  # Imported by threads, beside training.
  from lagom_xla import cluster as cluster_lib

_GPUS = ("gpu", "cuda", "rocm")


def platform_of(lowered: jax.stages.Lowered) -> str:
  """What a step was lowered for: "cpu", "gpu" or what else JAX calls it."""
  platform = lowerings.client_of(lowered).platform
  return "gpu" if platform in _GPUS else platform


def _on_gpus(
  cluster: cluster_lib.Cluster | None, searcher: str | None
) -> proposals.Proposer:
  def make() -> proposals.Proposer:
    from lagom_xla.live import gpu
    from lagom_xla.search import nccl

    return gpu.PlanProposer(
      cluster=cluster or _of_live_gpus(),
      searcher=searcher or nccl.DEFAULT_SEARCHER,
    )

  return proposals.Deferred(make, has_profile_build=True)


# Platform -> what makes its proposer, for a cluster and a searcher. Whoever has
# one for another platform adds it.
PROPOSERS: dict[str, Callable[[Any, str | None], proposals.Proposer]] = {
  "gpu": _on_gpus
}


def proposer_of(
  lowered: jax.stages.Lowered,
  cluster: cluster_lib.Cluster | None,
  *,
  searcher: str | None,
) -> proposals.Proposer:
  """Who makes proposals for a step where it was lowered for.

  Args:
    lowered: The step.
    cluster: What its GPUs make up; None for what the live ones do.
    searcher: Of NCCL settings, on GPUs; None for the default one.

  Raises:
    ClusterError: Nobody does. That the GPUs are of no known kind is raised by
      what is asked of the proposer.
  """
  platform = platform_of(lowered)
  if platform not in PROPOSERS:
    raise nothing_to_tune(platform)
  return PROPOSERS[platform](cluster, searcher)


def _of_live_gpus() -> cluster_lib.Cluster:
  from lagom_xla import cluster as cluster_lib

  return cluster_lib.of_devices(jax.devices())


def machine_of(
  lowered: jax.stages.Lowered, cluster: cluster_lib.Cluster | None
) -> str:
  """What a step runs on, as far as its times may depend on it.

  Args:
    lowered: The step.
    cluster: What its GPUs make up; None for what the live ones do.

  Raises:
    ClusterError: The GPUs are of no known kind.
  """
  if platform_of(lowered) == "gpu":
    cluster = cluster or _of_live_gpus()
    return json.dumps(cluster.to_dict(), sort_keys=True)
  facts = {
    "host": socket.gethostname(),
    "num_threads": os.environ.get("PJRT_NPROC"),
    "num_devices": jax.device_count(),
    "num_processes": jax.process_count(),
  }
  return json.dumps(facts, sort_keys=True)


def nothing_to_tune(platform: str) -> errors.ClusterError:
  """The error that says so of a platform."""
  return errors.ClusterError(
    f"nothing is tuned or measured on {platform} devices; cluster= says which"
    " GPUs they stand for, and has the step tuned on predictions."
  )

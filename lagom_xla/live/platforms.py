# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Platforms, and who makes proposals for a step on each."""

from __future__ import annotations

import json
import os
import pathlib
import platform as platform_lib
from typing import TYPE_CHECKING

import jax

from lagom_xla import errors
from lagom_xla.jax_internals import lowerings
from lagom_xla.live import deferred
from lagom_xla.live import proposals

if TYPE_CHECKING:  # Imported by threads, beside training; see `deferred.py`.
  from lagom_xla import cluster as cluster_lib

_GPUS = ("gpu", "cuda", "rocm")


def platform_of(lowered: jax.stages.Lowered) -> str:
  """What a step was lowered for: "cpu", "gpu" or what else JAX calls it."""
  platform = lowerings.client_of(lowered).platform
  return "gpu" if platform in _GPUS else platform


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
  if platform == "gpu":
    return deferred.Deferred(
      lambda: _on_gpus(cluster, searcher), has_profile_build=True
    )
  if platform == "cpu":
    # A step runs on all cores of the host, and waits for whichever is taken.
    # Of two processes on two cores tuning cost twice what it should have, where
    # a search was taken to cost a core's share of its time.
    return deferred.Deferred(_on_cpus, lost_per_core=1.0)
  raise nothing_to_tune(platform)


def _on_gpus(
  cluster: cluster_lib.Cluster | None, searcher: str | None
) -> proposals.Proposer:
  from lagom_xla.live.gpu import plans
  from lagom_xla.search import nccl

  return plans.PlanProposer(
    cluster=cluster or _of_live_gpus(),
    searcher=searcher or nccl.DEFAULT_SEARCHER,
  )


def _on_cpus() -> proposals.Proposer:
  from lagom_xla.live import cpu

  return cpu.CpuProposer()


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
    "processor": _processor(),
    "num_cores": os.cpu_count(),
    "num_threads": os.environ.get("PJRT_NPROC"),
    "num_devices": jax.device_count(),
    "num_processes": jax.process_count(),
  }
  return json.dumps(facts, sort_keys=True)


def _processor() -> str:
  """The model of this host's processor."""
  try:
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
  except OSError:
    return platform_lib.processor()
  names = [line for line in lines if line.startswith("model name")]
  return names[0] if names else platform_lib.processor()


def nothing_to_tune(platform: str) -> errors.ClusterError:
  """The error that says so of a platform."""
  return errors.ClusterError(
    f"it runs on {platform} devices, where there is nothing to tune; cluster="
    " tells which GPUs they stand for."
  )

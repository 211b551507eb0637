# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Platforms, and who makes proposals for a step on each."""

from __future__ import annotations

import importlib
from typing import Any

import jax

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import _jax
from lagom_xla.live import proposals

_GPUS = ("gpu", "cuda", "rocm")


def platform_of(lowered: jax.stages.Lowered) -> str:
  """What a step was lowered for: "cpu", "gpu" or what else JAX calls it."""
  platform = _jax.client_of(lowered).platform
  return "gpu" if platform in _GPUS else platform


def proposer_of(
  lowered: jax.stages.Lowered,
  cluster: cluster_lib.Cluster | None,
  *,
  searcher: str,
) -> proposals.Proposer:
  """Who makes proposals for a step where it was lowered for.

  Args:
    lowered: The step.
    cluster: What its GPUs make up; None for what the live ones do.
    searcher: Of NCCL settings, on GPUs.

  Raises:
    ClusterError: Nobody does, or the GPUs are of no known kind.
  """
  platform = platform_of(lowered)
  if platform == "gpu":
    plans = _module("lagom_xla.live.plans", platform)
    if cluster is None:
      cluster = cluster_lib.of_devices(jax.devices())
    return plans.PlanProposer(cluster=cluster, searcher=searcher)
  if platform == "cpu":
    return _module("lagom_xla.live.cpu", platform).CpuProposer()
  raise nothing_to_tune(platform)


def _module(name: str, platform: str) -> Any:
  """A module that is imported only where its platform is."""
  try:
    return importlib.import_module(name)
  except ModuleNotFoundError as error:
    if error.name != name:
      raise
    raise nothing_to_tune(platform) from error


def nothing_to_tune(platform: str) -> errors.ClusterError:
  """The error that says so of a platform."""
  return errors.ClusterError(
    f"it runs on {platform} devices, where there is nothing to tune; cluster="
    " tells which GPUs they stand for."
  )

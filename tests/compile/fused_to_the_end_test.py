# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compiles to the end from a fused module: what runs, and its memory.

The step of `wide_step.py` fits an L40S of 48 GB, and one of 24 GB only if XLA
computes activations again.
"""

from __future__ import annotations

from collections.abc import Mapping
import functools

import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla import temporary
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import fused
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.compile import xla
from lagom_xla.jax_internals import request as request_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import hlo_pb2
from lagom_xla.passes import pjrt_transform
from lagom_xla.passes import rematerialization
from lagom_xla.passes.schedule import digest
import wide_step

_Options = Mapping[str, int | bool | str]
_NO_RECOMPUTING = {"xla_disable_hlo_passes": "rematerialization"}
_FITS_BYTES, _SHORT_BYTES = int(48e9), int(24e9)


@pytest.mark.parametrize(
  "options",
  [
    {},
    {"xla_gpu_all_reduce_combine_threshold_bytes": 0},
    {"xla_gpu_enable_latency_hiding_scheduler": True},
    _NO_RECOMPUTING,
  ],
  ids=str,
)
@pytest.mark.parametrize("device_bytes", [_FITS_BYTES, _SHORT_BYTES])
def test_it_runs_what_the_program_does_in_as_much_memory(
  device_bytes: int, options: _Options
) -> None:
  cluster = _cluster(device_bytes)
  _, request = _request(device_bytes, options)
  ended = fused.end_from_fused(_fused(device_bytes), cluster, request)
  assert ended is not None
  expected = _from_the_beginning(device_bytes, options)
  assert digest.of(ended.runs) == digest.of(expected.module)
  assert ended.peak_bytes == expected.peak_bytes
  is_recomputed = bool(rematerialization.recomputed(hlo.Module(ended.runs)))
  is_short = device_bytes == _SHORT_BYTES
  assert is_recomputed == (is_short and options != _NO_RECOMPUTING)


def _cluster(device_bytes: int) -> cluster_lib.Cluster:
  gpu = {"base": "l40s", "hbm_bytes": device_bytes}
  return cluster_lib.from_dict(
    {"num_nodes": 1, "gpus_per_node": 8, "gpu": gpu}, where="a test"
  )


@functools.cache
def _step(device_bytes: int) -> lowered_lib.LoweredStep:
  if pjrt_transform.plugin_path() is None:
    pytest.skip("JAX's CUDA plugin is not installed (extra aot)")
  cluster = _cluster(device_bytes)
  lowered = wide_step.lower(devices_lib.devices(cluster))
  return lowered_lib.LoweredStep(lowered, cluster)


def _request(
  device_bytes: int, options: _Options
) -> tuple[str, request_lib.Request]:
  step = _step(device_bytes)
  request = step.request(options, None)
  assert request is not None
  return step.name, request


@functools.cache
def _fused(device_bytes: int) -> hlo_pb2.HloModuleProto:
  """The module that others go on from."""
  name, request = _request(device_bytes, {})
  cluster = _cluster(device_bytes)
  begun = fused.from_the_beginning(name, cluster, request)
  assert begun.fused is not None
  return begun.fused


def _from_the_beginning(device_bytes: int, options: _Options) -> xla.Assigned:
  name, request = _request(device_bytes, options)
  devices = devices_lib.devices(_cluster(device_bytes))
  with temporary.folder() as folder:
    ending = xla.options_before_code(name, folder)
    with_all = request_lib.with_options(request, ending, None)
    return xla.until_assigned(
      folder, lambda: request_lib.compile(with_all, devices)
    )

# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Estimates of kernels that XLA writes into a schedule, and can be taken out.

XLA has the tables for some GPUs only. Its estimates are costs of a schedule;
the module that runs has none.
"""

from __future__ import annotations

from collections.abc import Callable
import re
from typing import TypeVar

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import pending as pending_lib
from lagom_xla.passes import hlo_pb2

# Has XLA write its own estimate of each kernel into the module.
OPTION = "xla_gpu_collect_cost_model_stats"
# Those for which XLA was seen to have no tables; asking again costs a compile.
_gpus_without: set[str] = set()

_T = TypeVar("_T")

# Of GpuBackendConfig in JSON; a ReificationCost has no lists.
_WRITTEN = re.compile(rb'"reification_cost":\[[^\]]*\]')
_NONE = b'"reification_cost":[]'


def where_there_are(
  run: Callable[[bool], pending_lib.Pending[_T]],
  cluster: cluster_lib.Cluster,
  config: config_lib.XlaConfig,
) -> pending_lib.Pending[_T]:
  """A compile with XLA's estimates; without where it has no tables.

  Args:
    run: starts it with estimates, or without.
    cluster: what it is compiled for.
    config: with which; one that sets the option itself has the last word.
  """
  gpu = cluster.gpu.name
  is_asked = OPTION in config.options or gpu in _gpus_without
  first = run(not is_asked)

  def result() -> _T:
    try:
      return first.result()
    except errors.CompileError as error:
      if is_asked:
        raise
      found = run(False).result()
      # An abort is of this module; the tables, of all.
      if not isinstance(error, errors.CompileAbortedError):
        _gpus_without.add(gpu)
      return found

  return pending_lib.Pending(result=result, drop=first.drop)


def take_out(module: hlo_pb2.HloModuleProto) -> None:
  """Makes a module what it would be had XLA not been asked for estimates.

  But for configs in which nothing else is set, which stay, with nothing set;
  and for XLA's own fingerprint from before it scheduled.
  """
  for computation in module.computations:
    for instruction in computation.instructions:
      if instruction.backend_config:
        instruction.backend_config = _without(instruction.backend_config)
      payload = instruction.backend_config_payload
      if payload.WhichOneof("payload_source") == "value":
        payload.value = _without(payload.value)
  for index, shared in enumerate(module.payloads):
    module.payloads[index] = _without(shared)


def _without(config: bytes) -> bytes:
  return _WRITTEN.sub(_NONE, config)

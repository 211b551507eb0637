# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Live devices make up the cluster whose GPUs they are, or are refused."""

from __future__ import annotations

import types
from typing import Any

import pytest

from lagom_xla import cluster
from lagom_xla import errors


def _devices(
  count: int,
  *,
  kind: str = "NVIDIA H100 80GB HBM3",
  per_process: int,
  per_slice: int,
) -> Any:
  return [
    types.SimpleNamespace(
      device_kind=kind,
      process_index=n // per_process,
      slice_index=n // per_slice,
    )
    for n in range(count)
  ]


@pytest.mark.parametrize("name", cluster.gpu_names())
def test_devices_of_a_known_kind_make_up_a_cluster_of_that_gpu(
  name: str,
) -> None:
  expected = cluster.parse(f"2x4x{name}")
  kind = expected.gpu.device_name
  devices = _devices(8, kind=kind, per_process=4, per_slice=4)
  assert cluster.of_devices(devices) == expected


@pytest.mark.parametrize(
  ("per_process", "per_slice", "name"),
  [
    (8, 8, "2x8xh100"),
    (8, 16, "2x8xh100"),
    (1, 8, "2x8xh100"),
    (1, 1, "16x1xh100"),
    (16, 16, "1x16xh100"),
  ],
)
def test_a_node_is_a_process_or_the_slice_of_single_gpu_processes(
  per_process: int, per_slice: int, name: str
) -> None:
  devices = _devices(16, per_process=per_process, per_slice=per_slice)
  assert cluster.of_devices(devices) == cluster.parse(name)


def test_one_device_is_a_node() -> None:
  devices = _devices(1, per_process=1, per_slice=1)
  assert cluster.of_devices(devices) == cluster.parse("1x1xh100")


_EIGHT = _devices(8, per_process=8, per_slice=8)


@pytest.mark.parametrize(
  ("devices", "message"),
  [
    (_devices(8, kind="TPU v5", per_process=8, per_slice=8), "are 'TPU v5';"),
    (
      _EIGHT + _devices(8, kind="NVIDIA A40", per_process=8, per_slice=8),
      "are 'NVIDIA A40' and 'NVIDIA H100 80GB HBM3';",
    ),
    (_EIGHT + _devices(2, per_process=1, per_slice=8), "nodes have 1 or 9"),
    ([], "the devices are none;"),
  ],
  ids=["unknown", "mixed", "uneven", "none"],
)
def test_devices_that_make_up_no_known_cluster_are_refused(
  devices: Any, message: str
) -> None:
  with pytest.raises(errors.ClusterError, match=message):
    cluster.of_devices(devices)

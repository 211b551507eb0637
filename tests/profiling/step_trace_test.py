# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Traces of real steps: which GPU, which ranks, which kernels."""

from __future__ import annotations

import lzma
import pathlib

import pytest

from benchmarks.steps import traced_step
from lagom_xla.passes import collectives
from lagom_xla.passes import overlap

_DATA = pathlib.Path(__file__).resolve().parents[3] / "shared/data"
_GPUS = {"pax_a100": "a100_40", "maxtext_h100": "h100"}


@pytest.mark.parametrize("name", _GPUS)
def test_a_step_is_what_its_folder_has(name):
  folder = _DATA / name
  if not folder.exists():
    pytest.skip(f"shared/data/{name} is not there: too large to ship")
  module = traced_step.read_module(folder)
  cluster = traced_step.cluster_of(folder, module)
  assert cluster.gpu.name == _GPUS[name]
  assert (cluster.num_nodes, cluster.gpus_per_node) == (1, 4)
  ranks = traced_step.by_rank(folder, module)
  assert ranks.keys() == {
    p.name.partition(".")[0] for p in folder.glob("rank*")
  }
  assert all(len(steps) == 3 for steps in ranks.values())
  # All that is long is a kernel or collective of the module.
  known = {k.name for k in overlap.analyze(module).kernels.values()}
  known |= {c.name for c in collectives.find(module)}
  events = [e for s in traced_step.steady_steps(folder, module) for e in s]
  unknown_us = sum(e.time_us for e in events if e.name not in known)
  assert unknown_us < 1e-3 * sum(event.time_us for event in events)


def test_a_gpu_that_is_not_known_is_named(tmp_path, fsdp_scan):
  config = tmp_path / "step.gpu_target_config.pbtxt.xz"
  config.write_bytes(lzma.compress(b'device_description_str: "NVIDIA X1"\n'))
  with pytest.raises(ValueError, match="no GPU that is known is a 'NVIDIA X1'"):
    traced_step.cluster_of(tmp_path, fsdp_scan)


def test_a_folder_without_ranks_is_no_step(tmp_path):
  folder = tmp_path / "step"
  folder.mkdir()
  (folder / "m.gpu_after_optimizations.hlo.pb.xz").touch()
  assert traced_step.folders(tmp_path) == []
  (folder / "rank7.csv.xz").touch()
  assert traced_step.folders(tmp_path) == [folder]

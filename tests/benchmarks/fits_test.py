# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fits recover the parameters behind rows, the shipped ones, and the errors."""

from __future__ import annotations

import json
import math
import pathlib

import pytest

from benchmarks import errors
from benchmarks import groups
from benchmarks.collectives import fit_paths
from benchmarks.collectives import lone_collective
from benchmarks.kernels import fit_fusions
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import target
from lagom_xla.costs import fusion
from lagom_xla.costs import uncertainty
from lagom_xla.passes import hlo


def _group(name: str, *ratios: float) -> groups.Group:
  """Figures with this ratio of measured to predicted values."""
  return groups.of_comparisons(
    name,
    [
      groups.Comparison(what=str(ratio), measured=ratio, predicted=1.0)
      for ratio in ratios
    ],
  )


def _slowdowns(*pairs: tuple[str, float, float]) -> groups.Group:
  return groups.of_comparisons(
    "a step: kernels beside collectives",
    [
      groups.Comparison(what=what, measured=measured, predicted=predicted)
      for what, measured, predicted in pairs
    ],
  )


_ONE_NODE = "one node, 64 KiB and more"


def test_spreads_use_only_held_out_groups_where_there_are_any():
  fitted = _group(f"nccl-tests: {_ONE_NODE}", 1.0)
  held_out = _group(f"nccl-tests, held out: {_ONE_NODE}", *([math.e] * 3))
  (spread,) = errors.spreads([fitted, held_out]).values()
  assert spread == uncertainty.Spread(
    groups=(held_out.name,),
    n=3,
    median=1.0,
    p90=1.0,
    low=0.0,
    bias=1.0,
    high=1.0,
    is_held_out=True,
  )
  (spread,) = errors.spreads([fitted]).values()
  assert not spread.is_held_out


def test_contention_errors_sum_all_kernels_that_a_collective_slows():
  found = errors.spreads(
    [
      _slowdowns(
        ("a beside x", 1.4, 1.1),
        ("b beside x", 1.4, 1.3),
        ("c beside y", 1.01, 1.0),  # No slowdown, as predicted.
      )
    ]
  )
  spread = found["contention"]
  assert spread.n == 2
  assert spread.high == pytest.approx(math.log(0.8 / 0.4), abs=5e-3)
  assert spread.low == 0


def test_errors_of_single_kernels_average_out_over_a_step():
  ratios = [0.5, 2.0] * 50
  found = errors.spreads([_group("a step: lone other kernels", *ratios)])
  spread = found["other_kernels"]
  assert spread.n == 100
  assert 0 < spread.p90 < math.log(2) / 2


def test_step_errors_exclude_scatters_whose_time_depends_on_data():
  name = "a step: step time from module and spec"
  rest = _group(f"{name}, less colliding scatters", 1.1)
  spread = errors.spreads([_group(name, 2.0), rest])["steps"]
  assert spread.groups == (rest.name,)
  assert spread.high == pytest.approx(math.log(1.1), rel=1e-2)
  assert spread.low == 0


def test_error_spreads_are_written_as_the_model_reads_them():
  shipped = pathlib.Path(uncertainty.__file__).parent / "fitted/errors.json"
  written = json.loads(json.dumps(errors.document(uncertainty.spreads())))
  assert written == json.loads(shipped.read_text(encoding="utf-8"))


_DATA = pathlib.Path(__file__).resolve().parents[3] / "shared/data"
_TABLE = lone_collective.read_table()

_ADD = """
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b)
}
"""
_GROUPS = "replica_groups=[1,8]<=[8], channel_id=1"
# The modules of XLA's generator, but for the loop around a permute. They have
# 8 MiB, as small all-reduces are not NCCL's from JAX 0.12 on.
_MODULES = {
  "all-reduce": f"ROOT r = f32[2097152] all-reduce(p), {_GROUPS}, to_apply=add,"
  " use_global_device_ids=true",
  "all-gather": f"ROOT r = f32[16777216] all-gather(p), {_GROUPS},"
  " use_global_device_ids=true, dimensions={0}",
}


@pytest.mark.parametrize("kind", _MODULES)
def test_xla_copies_the_operand_of_an_all_reduce_not_of_an_all_gather(
  kind: str,
):
  module = hlo.load(
    f"HloModule m, num_partitions=8\n{_ADD}"
    f"ENTRY e {{\n  p = f32[2097152] parameter(0)\n  {_MODULES[kind]}\n}}\n"
  )
  cluster = cluster_lib.parse("1x8xh100")
  scheduled = target.of_module(module, cluster, name=kind).schedule()
  copies = [i for i in scheduled.entry.instructions if i.opcode == "copy"]
  assert len(copies) == (1 if kind == "all-reduce" else 0)


def test_table_rows_include_copies_of_all_reduces_and_permutes():
  copied = {row.key.kind for row in _TABLE if row.copy_us}
  assert copied == {"all-reduce", "collective-permute"}
  assert {row.device for row in _TABLE if row.copy_us} == {
    "sm_90",
    "sm_100_B200",
  }


def _folder(root: pathlib.Path, times_us: dict[str, float]) -> pathlib.Path:
  """A data folder with one small all-reduce on eight GPUs per system."""
  folder = root / "nccl_tests"
  folder.mkdir()
  cluster = {"num_nodes": 1, "gpus_per_node": 8, "gpu": {"base": "h100"}}
  systems = {name: {"nic": "none", "cluster": cluster} for name in times_us}
  (folder / "systems.json").write_text(json.dumps(systems))
  lines = [
    f"{name},all_reduce,{num_bytes},{time_us},,2.29.2,,"
    for name, least_us in times_us.items()
    for num_bytes, time_us in ((65536, least_us), (131072, 1.5 * least_us))
  ]
  header = "system,collective,bytes,time_us,busbw_gbps,nccl_version,env,notes"
  (folder / "rows.csv").write_text("\n".join([header, *lines]) + "\n")
  return root


def test_launch_time_grows_with_each_channel(tmp_path: pathlib.Path):
  rows = fit_paths.other_rows(_folder(tmp_path, {"a": 32.0, "b": 50.0}))
  assert [row.setting.num_channels for row in rows] == [2, 4, 2, 4]
  # For each GPU 4 and 6 us, and 6.25 and 9.375: 1.0 and 1.56 a channel. Less
  # that, the fastest rows of the systems take 0.8 and 3.65.
  launch_us, channel_us = fit_paths.launches_us(rows)
  assert channel_us == 1.3
  assert launch_us == pytest.approx((0.8 * 3.65) ** 0.5, rel=0.01)


def test_systems_of_a_single_site_are_predicted_without_launch_time(
  tmp_path: pathlib.Path,
):
  names = sorted(
    n for n in lone_collective.seen_systems() if n.startswith("xx1-")
  )
  folder = _folder(tmp_path, dict.fromkeys(names, 40.0))
  predicted = fit_paths.held_out(_TABLE, fit_paths.other_rows(folder))
  # No launch time is known without another site, so none is added.
  assert [row.system for row, _ in predicted] == [
    n for n in names for _ in "ab"
  ]
  assert all(time_us < 35.0 for _, time_us in predicted)


def test_a_system_outside_all_fits_is_predicted_with_shipped_values(
  tmp_path: pathlib.Path,
):
  folder = _folder(tmp_path, {"new": 40.0})
  predicted = fit_paths.held_out(_TABLE, fit_paths.other_rows(folder))
  assert [time_us for _, time_us in predicted] == [
    row.predict_us() for row, _ in predicted
  ]


@pytest.mark.skipif(not _DATA.is_dir(), reason=f"{_DATA} is not here")
def test_errors_of_held_out_one_node_systems_stay_within_bounds():
  # docs/cost_model.md has the current errors; before, 14.9 % and 33.8 %.
  found = {group.name: group for group in fit_paths.compare(_DATA)}
  title = "nccl-tests, held out: one node"
  assert found[f"{title}, 64 KiB and more"].median < 0.035
  assert found[f"{title}, 64 KiB and more"].p90 < 0.16
  for system, median in (("a100", 0.05), ("h100", 0.031), ("b200", 0.15)):
    assert found[f"{title}, {system}"].median < median


_SHIPPED = pathlib.Path(fusion.__file__).with_name("fitted") / "fusion.json"


@pytest.mark.skipif(
  not _DATA.is_dir(), reason="traces are not beside this checkout (shared/data)"
)
def test_shipped_fusion_parameters_equal_a_fresh_fit():
  steps = list(fit_fusions.read(_DATA))
  shipped = json.loads(_SHIPPED.read_text(encoding="utf-8"))
  assert fit_fusions.fusions(steps) == shipped

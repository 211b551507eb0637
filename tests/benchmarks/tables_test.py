# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables of benchmarks: their format, and plausible contents.

Only a device's time is measured here.
"""

from __future__ import annotations

import itertools
import os
import pathlib
import time

import jax
import pytest

from benchmarks import overhead
from benchmarks import schedules
from benchmarks import shaped_hosts
from benchmarks import table as table_lib
from benchmarks.recipes import __main__ as recipes_lib
from benchmarks.recipes import cases as cases_lib
from benchmarks.strands import __main__ as strands
from benchmarks.strands import modules as modules_lib
from benchmarks.strands import wall_clock
import commands
import fake_target
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.apply.nccl import build
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import load
from lagom_xla.flags import recipes
from lagom_xla.passes import hlo


def _table(*rows: table_lib.Row) -> table_lib.Table:
  return table_lib.Table(
    name="one",
    title="A table",
    columns=table_lib.columns(module="", share=".1%", n="d"),
    rows=rows,
    targets=(table_lib.Target(wanted="w", found="f", is_met=False),),
  )


def test_a_table_is_printed_as_in_its_csv_file(
  tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
):
  table = _table({"module": "a", "share": 0.125, "n": 2}, {"module": "b"})
  table_lib.show([table], "csv", tmp_path / "results")
  text = "module,share,n\na,12.5%,2\nb,,\n"
  assert (tmp_path / "results" / "one.csv").read_text() == text
  assert capsys.readouterr().out == text
  targets = (tmp_path / "results" / "one_targets.csv").read_text()
  assert targets == "outcome,wanted,found\nmissed,w,f\n"


def test_rows_of_earlier_runs_are_merged_with_new_ones(tmp_path: pathlib.Path):
  old = [{"module": name, "share": 0.5, "n": 1} for name in ("a", "b", "gone")]
  _table(*old).write_csv(tmp_path)
  new = {"module": "b", "share": 0.25, "n": 2}
  assert table_lib.beside(_table(new), tmp_path, [("a",), ("b",)]) == [
    old[0],
    new,
  ]
  (tmp_path / "one.csv").write_text("module,best\n")
  with pytest.raises(errors.LagomError, match=r"one.csv has other columns"):
    table_lib.beside(_table(), tmp_path, [])


def test_wall_clock_without_root_is_skipped_with_one_message(
  monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
  monkeypatch.setattr(os, "geteuid", lambda: 1000)
  with pytest.raises(SystemExit, match=r"--wall-clock skipped: .* need root"):
    strands.main(["--wall-clock", "--format=csv"])
  assert capsys.readouterr().out == ""


def test_hosts_and_their_processes_are_removed_after_an_error():
  obstacle = shaped_hosts.obstacle()
  if obstacle is not None:
    pytest.skip(obstacle)
  with pytest.raises(errors.LagomError, match="on purpose"):
    with shaped_hosts.pair_of_hosts(mbit_per_s=100) as pair:
      process = pair.start(0, ["sleep", "600"], {})
      assert process.poll() is None
      raise errors.LagomError("on purpose")
  assert process.poll() is not None
  assert not any(
    os.path.exists(f"/var/run/netns/{name}") for name in pair.names
  )


def test_intervals_are_of_paired_ratios_and_widen_if_launches_differ():
  # Rounds differ tenfold, and within each the ratio is the same.
  rounds = [1.0, 10.0, 2.0, 5.0, 3.0]
  launches = [
    {
      "sequential": [rounds, rounds],
      "strands": [[x * r for r in rounds], [0.1] * 5],
    }
    for x in (0.8, 0.9, 1.1, 1.2)
  ]
  one = shaped_hosts.ratio(launches[:1], "strands", "sequential")
  assert [*one.values()] == pytest.approx([0.8, 0.8, 0.8])
  all_ = shaped_hosts.ratio(launches, "strands", "sequential")
  assert all_["ratio"] == pytest.approx((0.8 * 0.9 * 1.1 * 1.2) ** 0.25)
  assert all_["low"] < 0.9 and all_["high"] > 1.1


def test_wall_clock_rows_are_compared_with_the_first_form():
  hosts = [
    {
      "seconds": {"sequential": [1.0, 1.1], "strands": [0.9, 1.0]},
      "is_same": {"sequential": True, "strands": same},
    }
    for same in (True, False)
  ]
  launches = [{"hosts": hosts, "load": load} for load in (1.0, 2.0)]
  (row,) = wall_clock.rows_of("T 512, 200 Mb/s", launches)
  assert (row["form"], row["over"]) == ("strands", "sequential")
  assert row["low"] <= row["ratio"] <= row["high"] < 1
  assert (row["same_bits"], row["load"]) == ("no", 2.0)


def test_kept_rows_are_written_unchanged(tmp_path: pathlib.Path):
  results = pathlib.Path(strands.__file__).parent / "results"
  names = [(name,) for name in modules_lib.MODULES]
  rows = table_lib.beside(strands.table_of([]), results, names)
  strands.table_of(rows).write_csv(tmp_path)
  assert len(rows) == len(names)
  for name in ("forms.csv", "forms_targets.csv"):
    assert (tmp_path / name).read_bytes() == (results / name).read_bytes()


def _schedule(config: config_lib.XlaConfig) -> hlo.Module:
  start, done = hlo_text.all_gather("all-gather", 2**18)
  is_doubled = "xla_gpu_enable_while_loop_double_buffering" in config.options
  kernel = hlo_text.kernel("kernel", 80.0 if is_doubled else 90.0)
  return hlo_text.load(f"""
  p = f32[256,256] parameter(0)
  {start}
  {done}
  {kernel}
  ROOT result = (f32[256,256]) tuple(kernel)
""")


def test_a_tuned_step_is_no_slower_than_any_recipe():
  target = fake_target.FakeTarget(
    name="step", cluster=cluster_lib.parse("1x8xh100"), scheduled=_schedule
  )
  row = recipes_lib.searched(target)
  # The schedule has no loop, so only recipes set the option that gains.
  assert row["from_default_ms"] == row["default_ms"]
  best_ms = min(row[recipe.name] for recipe in recipes.for_nodes(1))
  assert row["lower_bound_ms"] <= row["tuned_ms"] <= row["uncapped_ms"]
  assert row["tuned_ms"] <= best_ms < row["default_ms"]
  assert row["over_recipe"] == best_ms / row["tuned_ms"]
  first, second = recipes_lib.table([{**row, "module": "step"}]).targets
  assert first.is_met and not second.is_met


def test_every_gpu_has_the_same_cases():
  by_gpu = {
    gpu: {(c.module, c.cluster.removesuffix(gpu)) for c in cases_lib.cases(gpu)}
    for gpu in cases_lib.GPUS
  }
  h100 = by_gpu["h100"]
  assert all(found == h100 for found in by_gpu.values())
  for name in ("moe", "llama-8b", "phi-2/fsdp", "mixtral_8x7b_bf16_2x8"):
    assert name in {module for module, _ in h100}


@pytest.mark.parametrize("way", [schedules.fused, schedules.left_out])
def test_quick_schedules_are_predicted_within_a_percent_of_xlas_own(
  tmp_path: pathlib.Path, h100s: object, way
) -> None:
  del h100s  # Only says whether there is anything to compile with.
  target = load.load(
    commands.write_steps(tmp_path), cluster_lib.parse("1x8xh100")
  )
  rows = list(itertools.islice(way(target), 3))
  assert len(rows) >= 2
  assert all(abs(row["excess"]) < 0.01 for row in rows)


try:
  build.compiler()
  _HAS_COMPILER = True
except build.BuildError:
  _HAS_COMPILER = False

needs_compiler = pytest.mark.skipif(
  not _HAS_COMPILER, reason="no cc compiles a custom call: apt-get install gcc"
)
_DEVICE_S = 0.2


@needs_compiler
def test_a_device_step_takes_its_time_without_blocking_or_using_a_core():
  step = overhead.on_device(1e3 * _DEVICE_S)
  jitted = step.jitted()
  weights = jax.block_until_ready(jitted(step.weights, step.batch))
  begin_s, used_s = time.monotonic(), time.process_time()
  for _ in range(3):
    weights = jitted(weights, step.batch)
  # The calls return before the device is done.
  is_done = all(it.is_ready() for it in weights)
  assert not is_done
  jax.block_until_ready(weights)
  assert time.monotonic() - begin_s >= 3 * _DEVICE_S
  # Devices that compute would take that much CPU time.
  assert time.process_time() - used_s < 3 * _DEVICE_S


def test_rows_of_overhead_have_intervals_around_their_means():
  row = overhead.measure(overhead.on_cores(8), num_steps=12, num_pairs=2)
  assert (row["step"], row["steps"]) == ("8 rows", 12)
  for what in ("wall", "cpu", "thread"):
    assert row[f"{what}_low"] <= row[f"{what}_steps"] <= row[f"{what}_high"]
  assert "told_steps" not in row  # They end in the baseline.

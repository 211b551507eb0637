# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The tables and the wall clock of benchmarks.strands show what can be true.

Nothing is timed here: two hosts are tested by what they are made of.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import os
import pathlib

import jax
import pytest

from benchmarks import shaped_hosts
from benchmarks import table as table_lib
from benchmarks.strands import __main__ as command
from benchmarks.strands import forms_table
from benchmarks.strands import modules as modules_lib
from benchmarks.strands import settings_table
from benchmarks.strands.wall_clock import table as wall_clock
from benchmarks.workloads import architectures
from benchmarks.workloads import layout as layout_lib
from benchmarks.workloads import train_step as workloads
from lagom_xla import errors


@pytest.mark.parametrize(
  ("model", "num_params"),
  [
    (modules_lib.gpt_25b, 25e9),
    # Of its 14.77e9 all but a few thousand.
    (modules_lib.qwen3_14b_like, 14.77e9),
    # A tenth of the layers of Llama 3.1 70B.
    (modules_lib.dhellam_demo, 8.3e9),
  ],
)
def test_a_model_has_as_many_parameters_as_its_name_says(
  model: Callable[[], architectures.Architecture], num_params: float
):
  assert model().num_params == pytest.approx(num_params, rel=2e-2)
  work = workloads.Workload(
    arch=model(),
    layout=layout_lib.Layout(kind="tp", model=4),
    microbatch_size=1,
  )
  _, ((params, _), _) = workloads.train_step(jax.devices()[:4], work)
  counted = sum(leaf.size for leaf in jax.tree.leaves(params))
  assert counted == model().num_params


def launch(**seconds: list[list[float]]) -> wall_clock.Launch:
  return wall_clock.Launch(
    seconds=seconds, is_same=dict.fromkeys(seconds, True), load=1.0
  )


def test_without_root_the_wall_clock_is_skipped_with_one_message(
  monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
  monkeypatch.setattr(os, "geteuid", lambda: 1000)
  with pytest.raises(SystemExit, match=r"--wall-clock skipped: .* need root"):
    command.main(["--wall-clock", "--format=csv"])
  assert capsys.readouterr().out == ""


def test_hosts_and_their_processes_are_gone_after_an_error():
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


def test_an_interval_is_of_pairs_and_widens_where_launches_differ():
  # Rounds differ tenfold, and within each the ratio is the same.
  rounds = [1.0, 10.0, 2.0, 5.0, 3.0]
  launches = [
    launch(
      sequential=[rounds, rounds], strands=[[x * r for r in rounds], [0.1] * 5]
    ).seconds
    for x in (0.8, 0.9, 1.1, 1.2)
  ]
  one = shaped_hosts.ratio(launches[:1], "strands", "sequential")
  assert (one.ratio, one.low, one.high) == pytest.approx((0.8, 0.8, 0.8))
  all_ = shaped_hosts.ratio(launches, "strands", "sequential")
  assert all_.ratio == pytest.approx((0.8 * 0.9 * 1.1 * 1.2) ** 0.25)
  assert all_.low < 0.9 and all_.high > 1.1


def test_wall_clock_rows_are_of_the_form_that_surely_gains():
  launches = [
    launch(sequential=[[1.0, 1.1]], strands=[[0.9, 1.0]]) for _ in range(2)
  ]
  rows = wall_clock.rows_of("T 512, 200 Mb/s", launches)
  assert [row["form"] for row in rows] == ["strands", "chosen: strands"]
  assert all(row["low"] <= row["ratio"] <= row["high"] for row in rows)


@pytest.mark.parametrize(
  "table",
  [
    forms_table.table_of([]),
    forms_table.exposed_table_of([]),
    settings_table.table_of([]),
  ],
  ids=lambda table: table.name,
)
def test_kept_rows_are_written_as_they_were(table, tmp_path: pathlib.Path):
  results = pathlib.Path(command.__file__).parent / "results"
  names = [(name,) for name in modules_lib.MODULES]
  kept = table_lib.beside(table, results, names)
  dataclasses.replace(table, rows=kept).write_csv(tmp_path)
  name = f"{table.name}.csv"
  assert (tmp_path / name).read_bytes() == (results / name).read_bytes()

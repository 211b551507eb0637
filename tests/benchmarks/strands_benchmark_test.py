# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The tables and the wall clock of benchmarks.strands show what can be true.

Nothing is timed here: two hosts are tested by what they are made of.
"""

from __future__ import annotations

import os
import pathlib

import pytest

from benchmarks import shaped_hosts
from benchmarks import table as table_lib
from benchmarks.strands import __main__ as command
from benchmarks.strands import modules as modules_lib
from benchmarks.strands import wall_clock
from lagom_xla import errors


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
    {
      "sequential": [rounds, rounds],
      "strands": [[x * r for r in rounds], [0.1] * 5],
    }
    for x in (0.8, 0.9, 1.1, 1.2)
  ]
  one = shaped_hosts.ratio(launches[:1], "strands", "sequential")
  assert (one.ratio, one.low, one.high) == pytest.approx((0.8, 0.8, 0.8))
  all_ = shaped_hosts.ratio(launches, "strands", "sequential")
  assert all_.ratio == pytest.approx((0.8 * 0.9 * 1.1 * 1.2) ** 0.25)
  assert all_.low < 0.9 and all_.high > 1.1


def test_wall_clock_rows_are_held_to_the_first_form():
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


def test_kept_rows_are_written_as_they_were(tmp_path: pathlib.Path):
  results = pathlib.Path(command.__file__).parent / "results"
  names = [(name,) for name in modules_lib.MODULES]
  rows = table_lib.beside(command.table_of([]), results, names)
  command.table_of(rows).write_csv(tmp_path)
  assert len(rows) == len(names)
  for name in ("forms.csv", "forms_targets.csv"):
    assert (tmp_path / name).read_bytes() == (results / name).read_bytes()

# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The command `calibrate` makes a cluster file of logs of nccl-tests."""

from __future__ import annotations

from collections.abc import Sequence
import json
import pathlib
import statistics

import pytest

from benchmarks.collectives import nccl_tests
import commands
from lagom_xla import cluster as cluster_lib
from lagom_xla.calibrate import calibration
from lagom_xla.calibrate import log
import nccl_tests_log

_TWO_NODES = nccl_tests_log.TWO_NODES
_SIZES = nccl_tests_log.SIZES
_DATA = pathlib.Path(__file__).resolve().parents[3] / "shared/data"


@pytest.fixture(autouse=True)
def _here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.chdir(tmp_path)


def test_the_command_uses_good_logs_and_names_bad_ones(
  tmp_path: pathlib.Path,
) -> None:
  site = nccl_tests_log.calibrated_by(_TWO_NODES, latency_factor=2.0)
  (tmp_path / "good.log").write_text(
    nccl_tests_log.log_of(site), encoding="utf-8"
  )
  (tmp_path / "bad.log").write_text("nothing\n", encoding="utf-8")
  done = commands.run(
    *("calibrate", "--cluster=2x8xh100", "good.log", "bad.log", "none.log"),
    *("--out=mine.json", "--format=json"),
  )
  assert done.status == 0
  printed = json.loads(done.out)
  assert printed["fits"][0]["num_rows"] == len(_SIZES)
  assert done.err.splitlines()[:2] == [
    "lagom-xla: bad.log: has no rows of nccl-tests; give its output",
    "lagom-xla: none.log: cannot be read: No such file or directory",
  ]
  mine = json.loads((tmp_path / "mine.json").read_text(encoding="utf-8"))
  assert mine["calibration"] == printed["calibration"]
  assert mine["sources"]["calibration"] == (
    "lagom-xla calibrate: 17 rows of nccl-tests, NCCL 2.29.7, in good.log"
  )


def test_the_command_writes_nothing_without_a_good_log(
  tmp_path: pathlib.Path,
) -> None:
  (tmp_path / "bad.log").write_text("nothing\n", encoding="utf-8")
  done = commands.run(
    "calibrate", "--cluster=2x8xh100", "bad.log", "--out=mine.json"
  )
  assert done.status == 2
  assert "have no rows to calibrate by" in done.err
  assert not (tmp_path / "mine.json").exists()


def test_a_file_that_cannot_be_written_is_found_before_the_logs_are_read() -> (
  None
):
  done = commands.run(
    "calibrate", "--cluster=2x8xh100", "no.log", "--out=/proc/x.json"
  )
  assert done.status == 2
  assert done.err.startswith("lagom-xla: Cannot write /proc/x.json: ")
  assert "no.log" not in done.err


def _system_logs(
  folder: pathlib.Path, rows: Sequence[nccl_tests.Row]
) -> list[str]:
  """A log for each program, with every third size that a system measured."""
  names = []
  for program in ("all_reduce", "all_gather"):
    of_program = [r for r in rows if r.key.kind == log.KINDS[program]]
    of_program.sort(key=lambda row: row.num_bytes)
    lines = [
      nccl_tests_log.row(program, row.key.num_ranks, row.num_bytes, row.time_us)
      for row in of_program[1::3]
    ]
    names.append(f"{program}.log")
    text = nccl_tests_log.log_of(rows[0].cluster, program, rows=lines)
    (folder / names[-1]).write_text(text, encoding="utf-8")
  return names


@pytest.mark.parametrize("system", ["xx1-N10G2", "xx1-N10G4", "xx1-N10G8"])
def test_logs_of_a_real_system_foretell_its_other_rows(
  tmp_path: pathlib.Path, system: str
) -> None:
  if not _DATA.is_dir():
    pytest.skip("the folder of shared data is not beside this checkout")
  rows = [
    r for r in nccl_tests.rows(_DATA / "nccl_tests") if r.system == system
  ]
  calibration.write(tmp_path / "usual.json", rows[0].cluster, {})
  names = _system_logs(tmp_path, rows)
  (tmp_path / "bad.log").write_text("srun: error: node-7\n", encoding="utf-8")
  done = commands.run(
    *("calibrate", "--cluster=usual.json", *names, "bad.log"),
    "--out=mine.json",
  )
  assert done.status == 0
  assert done.err.splitlines()[0].startswith("lagom-xla: bad.log: has no")
  mine = cluster_lib.parse(str(tmp_path / "mine.json"))

  def median_error(cluster: cluster_lib.Cluster) -> float:
    return statistics.median(
      abs(
        nccl_tests_log.predicted_us(cluster, row.key.kind, row.num_bytes)
        / row.time_us
        - 1
      )
      for row in rows
      if row.key.kind in ("all-reduce", "all-gather")
    )

  assert median_error(mine) < 0.75 * median_error(rows[0].cluster)
  assert median_error(mine) < 0.03

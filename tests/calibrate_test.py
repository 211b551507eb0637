# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Calibration from logs of nccl-tests: what is read, fitted and written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import dataclasses
import itertools
import json
import pathlib
import statistics
import subprocess
import sys

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import pytest

from benchmarks.collectives import calibrated
from benchmarks.collectives import nccl_tests
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.calibrate import calibration as calibration_lib
from lagom_xla.calibrate import cluster_file
from lagom_xla.calibrate import log
from lagom_xla.calibrate import run as run_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import lower_bound
from lagom_xla.costs import wire

_MIB = 2**20
_NODE = cluster_lib.parse("1x8xh100")
_TWO_NODES = cluster_lib.parse("2x8xh100")
_DATA = pathlib.Path(__file__).resolve().parents[2] / "shared/data"
_SIZES = tuple(2**exponent for exponent in range(16, 33))
_PATHS = (
  *("ring.ll", "ring.ll128", "ring.simple", "pat.simple", "nvlstree.simple"),
  *(
    "tree.ll",
    "tree.ll128",
    "tree.simple",
    "nvls.simple",
    "nvls_gather.simple",
  ),
)
_COMMAND = "./build/all_reduce_perf -b 64K -e 4G -f 2 -g 1"
_COLUMNS = (
  "#       size         count      type   redop    root     time   algbw"
  "   busbw #wrong     time   algbw   busbw #wrong"
)


def _with(
  cluster: cluster_lib.Cluster, **between_nodes: object
) -> cluster_lib.Cluster:
  raw = cluster.to_dict()
  raw["calibration"] = {"between_nodes": between_nodes}
  return cluster_lib.from_dict(raw, where="a test")


def _key(
  cluster: cluster_lib.Cluster, kind: str, num_bytes: int
) -> collective_lib.TuningKey:
  return collective_lib.TuningKey(
    kind=kind,
    num_ranks=cluster.num_devices,
    num_nodes=cluster.num_nccl_nodes_of(range(cluster.num_devices)),
    num_bytes=num_bytes,
  )


def _us(cluster: cluster_lib.Cluster, kind: str, num_bytes: int) -> float:
  key = _key(cluster, kind, num_bytes)
  setting = collective_lib.default_setting(key, cluster)
  return collective_lib.predict(key, setting, cluster).time_us


def _row(program: str, num_ranks: int, num_bytes: int, us: float) -> str:
  gbps = num_bytes / us / 1e3
  bus_gbps = gbps * run_lib.bus_share(program, num_ranks)
  columns = f"{us:8.2f} {gbps:7.2f} {bus_gbps:7.2f}"
  return (
    f"{num_bytes:12d} {num_bytes // 4:13d}     float     sum      -1"
    f" {columns}      0 {columns}    N/A"
  )


def _rows(
  cluster: cluster_lib.Cluster,
  program: str = "all_reduce",
  sizes: Sequence[int] = _SIZES,
) -> list[str]:
  """What a program prints on a machine that is as it is predicted."""
  kind = run_lib.KINDS[program]
  return [
    _row(program, cluster.num_devices, n, _us(cluster, kind, n)) for n in sizes
  ]


def _devices(
  cluster: cluster_lib.Cluster, gpus_per_process: int = 1
) -> list[str]:
  return [
    f"#  Rank {rank:2d} Group  0 Pid {7000 + rank // gpus_per_process} on node-"
    f"{rank // cluster.gpus_per_node} device {rank % 8:2d} [0000:{rank:02x}:00]"
    f" {cluster.gpu.device_name}"
    for rank in range(cluster.num_devices)
  ]


def _log(
  cluster: cluster_lib.Cluster,
  program: str = "all_reduce",
  *,
  before: Sequence[str] = (),
  rows: Sequence[str] | None = None,
  gpus_per_thread: int = 1,
) -> str:
  return "\n".join(
    [
      "# nccl-tests version 2.18.3 nccl-headers=22907 nccl-library=22907",
      f"# Collective test starting: {program}_perf",
      f"# nThread 1 nGpus {gpus_per_thread} minBytes 65536 maxBytes 4294967296"
      " step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1"
      " graph: 0",
      "#",
      "# Using devices",
      *_devices(cluster, gpus_per_thread),
      *before,
      _COLUMNS,
      *(_rows(cluster, program) if rows is None else rows),
      "# Out of bounds values : 0 OK",
      "# Avg bus bandwidth    : 123.4",
    ]
  )


def _read(
  folder: pathlib.Path, text: str, name: str = "my.log"
) -> tuple[list[run_lib.Run], list[log.Problem]]:
  path = folder / name
  path.write_text(text, encoding="utf-8")
  return log.read(path)


def _calibrate(
  folder: pathlib.Path,
  text: str,
  cluster: cluster_lib.Cluster = _TWO_NODES,
  name: str = "my.log",
) -> calibration_lib.Result:
  path = folder / name
  path.write_text(text, encoding="utf-8")
  measured = calibration_lib.read(cluster, [path])
  assert measured.problems == []
  return calibration_lib.calibrate(cluster, measured)


def _factors(result: calibration_lib.Result) -> cluster_lib.Factors:
  assert result.cluster.calibration is not None
  return result.cluster.calibration.between_nodes


@pytest.mark.parametrize(
  "prefixed",
  [
    lambda rank, line: line,
    lambda rank, line: f"[1,{rank}]<stdout>:{line}",
    lambda rank, line: f"[1,{rank}]<stdout>: {line}",
    lambda rank, line: f"{rank:2d}: {line}",
    lambda rank, line: f"worker-{rank}: {line}",
    lambda rank, line: f"2026-03-01T10:00:00.123456Z {line}",
    lambda rank, line: f"\x1b[32m{line}\x1b[0m",
    lambda rank, line: f"{line}\r",
  ],
  ids=["bare", "mpirun", "tagged", "srun", "pod", "kubectl", "colour", "crlf"],
)
def test_a_run_is_read_whatever_a_launcher_puts_around_its_lines(
  tmp_path: pathlib.Path, prefixed: Callable[[int, str], str]
) -> None:
  lines = _log(_TWO_NODES).split("\n")
  text = "\n".join(prefixed(0, line) for line in lines)
  (run,), problems = _read(tmp_path, text)
  assert problems == []
  assert run.program == "all_reduce"
  assert run.nccl_version == "2.29.7"
  assert len(run.ranks) == 16
  assert set(run.ranks.values()) == {"node-0", "node-1"}
  assert run.gpus == {"NVIDIA H100 80GB HBM3"}
  assert [row.num_bytes for row in run.rows] == list(_SIZES)
  assert run.rows[4].time_us == pytest.approx(
    _us(_TWO_NODES, "all-reduce", _MIB), abs=0.006
  )


@pytest.mark.parametrize(
  "row",
  [
    # 2.0 to 2.12, with and without redop and root; 2.13 and newer; validation
    # off; in place alone; not in place.
    "1048576 262144 float sum 100.00 10.49 19.66 1e-06 101.0 10.38 19.47 1e-06",
    "1048576 262144 float 100.00 10.49 19.66 0e+00 101.0 10.38 19.47 0e+00",
    "1048576 262144 float 0 100.00 10.49 19.66 0e+00 101.0 10.38 19.47 0e+00",
    "1048576 262144 float sum -1 100.00 10.49 19.66 0 101.0 10.38 19.47 0",
    "1048576 524288 bfloat16 avg -1 100.00 10.49 19.66 N/A 101 10.38 19.47 N/A",
    "1048576 1048576 f8e4m3 none 0 N/A N/A N/A N/A 100.0 10.49 19.66 0",
    "1048576 262144 float none -1 100.00 10.49 19.66 0",
    # Tagged at each write, as mpirun -prepend-rank does.
    "[0] 1048576 262144 float sum -1[0] 100.00 10.49 19.66 0[0] 9 10.38 19.4 0",
  ],
)
def test_rows_of_every_layout_are_read(
  tmp_path: pathlib.Path, row: str
) -> None:
  (run,), problems = _read(tmp_path, f"{_COMMAND}\n  {row}\n")
  assert problems == []
  assert [(r.line, r.num_bytes, r.time_us) for r in run.rows] == [
    (2, _MIB, 100)
  ]
  assert run.rows[0].bus_gbps == 19.66


def test_a_log_of_several_programs_is_as_many_runs(
  tmp_path: pathlib.Path,
) -> None:
  programs = tuple(run_lib.KINDS)
  text = "\n".join(_log(_TWO_NODES, program) for program in programs)
  runs, problems = _read(tmp_path, text)
  assert problems == []
  assert [run.program for run in runs] == list(programs)
  assert {len(run.rows) for run in runs} == {len(_SIZES)}
  assert all(len(run.ranks) == 16 for run in runs)


def test_marks_that_a_web_page_ate_are_not_missed(
  tmp_path: pathlib.Path,
) -> None:
  text = _log(_TWO_NODES).replace("#", "")
  (run,), _ = _read(tmp_path, text)
  assert len(run.ranks) == 16
  assert run.program == "all_reduce"


def test_a_command_names_its_program_and_its_environment(
  tmp_path: pathlib.Path,
) -> None:
  rows = "\n".join(_rows(_TWO_NODES))
  runs, _ = _read(
    tmp_path,
    f"mpirun -x NCCL_ALGO=Ring {_COMMAND}\n# nThread 1 nGpus 1 \n{rows}\n"
    f"mpirun -x NCCL_PROTO=LL {_COMMAND.replace('all_reduce', 'all_gather')}\n"
    f"# nThread 1 nGpus 1 \n{rows}\n",
  )
  assert [run.program for run in runs] == ["all_reduce", "all_gather"]
  assert [dict(run.environment) for run in runs] == [
    {"NCCL_ALGO": "Ring"},
    {"NCCL_PROTO": "LL"},
  ]


@pytest.mark.parametrize(
  ("line", "message"),
  [
    (
      "1048576 262144 float sum -1 100.00 99.90 19.66 0 101 10.38 19.47 0",
      ":2: says 1048576 B in 100.00 us at 99.90 GB/s, which contradict",
    ),
    ("1048576 262144 float sum -1 100.00", ":2: is cut off"),
    ("no such thing", ": has no rows of nccl-tests"),
    ("", ": has no rows of nccl-tests"),
  ],
)
def test_what_is_wrong_with_a_log_is_told_in_a_line(
  tmp_path: pathlib.Path, line: str, message: str
) -> None:
  runs, problems = _read(tmp_path, f"{_COMMAND}\n{line}\n")
  assert runs == []
  (problem,) = map(str, problems)
  assert problem.startswith(f"{tmp_path / 'my.log'}{message}")
  assert "\n" not in problem


@given(st.text())
def test_any_text_is_read_or_refused(
  tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
  folder = tmp_path_factory.mktemp("any")
  runs, problems = _read(folder, text)
  assert runs or problems


@settings(max_examples=20)
@given(
  latency=st.floats(0.5, 5),
  rate=st.floats(0.5, 1.2),
  program=st.sampled_from(["all_reduce", "all_gather", "reduce_scatter"]),
)
def test_the_figures_of_a_site_are_found_again(
  tmp_path_factory: pytest.TempPathFactory,
  latency: float,
  rate: float,
  program: str,
) -> None:
  site = _with(_TWO_NODES, latency_factor=latency, rate_factor=rate)
  folder = tmp_path_factory.mktemp("site")
  result = _calibrate(folder, _log(site, program))
  factors = _factors(result)
  # What all paths share is in the common factors, but for a little.
  assert factors.latency_factor == pytest.approx(latency, rel=0.25)
  assert factors.rate_factor == pytest.approx(rate, rel=0.1)
  assert not any(sample.doubt for sample in result.samples)
  (fit,) = result.fits
  assert fit.after[1] < 0.03
  assert fit.held_out[1] < 0.05
  # Commands take it, and predict what was measured.
  for num_bytes in _SIZES:
    kind = run_lib.KINDS[program]
    found_us = _us(result.cluster, kind, num_bytes)
    assert found_us == pytest.approx(_us(site, kind, num_bytes), rel=0.05)


def test_a_few_rows_move_little_but_what_they_show(
  tmp_path: pathlib.Path,
) -> None:
  site = _with(_TWO_NODES, latency_factor=3.0, rate_factor=0.8)
  large = _log(site, rows=_rows(site, sizes=(2**32,)))
  factors = _factors(_calibrate(tmp_path, large))
  assert factors.rate_factor == pytest.approx(0.8, rel=0.03)
  assert factors.latency_factor == pytest.approx(1.0, rel=0.03)


def test_figures_that_foretell_nothing_are_not_kept(
  tmp_path: pathlib.Path,
) -> None:
  # Longer and shorter by turns: no factor on latency or rate says that.
  by_turns = (1.0, 2.0, 0.5)
  rows = [
    _row("all_reduce", 16, size, _us(_TWO_NODES, "all-reduce", size) * times)
    for size, times in zip(_SIZES, itertools.cycle(by_turns), strict=False)
  ]
  result = _calibrate(tmp_path, _log(_TWO_NODES, rows=rows))
  assert _factors(result) == cluster_lib.Factors()
  assert any("no figures foretell" in note for note in result.notes)


def test_a_slow_row_turns_nothing_and_is_distrusted(
  tmp_path: pathlib.Path,
) -> None:
  rows = _rows(_TWO_NODES)
  us = _us(_TWO_NODES, "all-reduce", 2**28)
  place = _SIZES.index(2**28)
  rows[place] = _row("all_reduce", 16, 2**28, 5 * us)
  result = _calibrate(tmp_path, _log(_TWO_NODES, rows=rows))
  assert _factors(result).rate_factor == pytest.approx(1.0, abs=0.03)
  (doubted,) = (sample for sample in result.samples if sample.doubt)
  assert doubted.key.num_bytes == 2**28
  assert "slower than the others say" in doubted.doubt


def _launch_bound(gpus_per_thread: int, *, without: str = "nothing") -> str:
  """A log of a node where nothing takes less than 40 us."""
  us = {n: max(_us(_NODE, "all-reduce", n), 40.0) for n in _SIZES}
  rows = [_row("all_reduce", 8, n, time_us) for n, time_us in us.items()]
  text = _log(_NODE, rows=rows, gpus_per_thread=gpus_per_thread)
  return "\n".join(line for line in text.split("\n") if without not in line)


@pytest.mark.parametrize(
  "without", ["nothing of it", "nThread", " Rank ", "# "]
)
def test_launches_of_one_thread_are_not_taken_for_latency(
  tmp_path: pathlib.Path, without: str
) -> None:
  text = f"{_COMMAND}\n{_launch_bound(8, without=without)}"
  result = _calibrate(tmp_path, text, _NODE)
  assert result.cluster.calibration is not None
  assert result.cluster.calibration.within_node == cluster_lib.Factors()
  doubted = {s.measured_us for s in result.samples if s.doubt}
  assert {us for us in doubted if us <= 40.0} == {40.0}
  assert any(
    "no longer than a thread's launches on 8 GPUs" in s.doubt
    for s in result.samples
  )


def test_latency_of_processes_for_each_gpu_is_latency(
  tmp_path: pathlib.Path,
) -> None:
  result = _calibrate(tmp_path, _launch_bound(1), _NODE)
  assert result.cluster.calibration is not None
  assert result.cluster.calibration.within_node.latency_factor > 1.1


@pytest.mark.parametrize(
  ("line", "doubt"),
  [
    (
      "node-0:7000:7000 [0] NCCL INFO NCCL_ALGO set by environment to Ring.",
      "ran under NCCL_ALGO=Ring",
    ),
    ("NCCL_MAX_NCHANNELS=4", "ran under NCCL_MAX_NCHANNELS=4"),
    ("NCCL_NVLS_ENABLE=0", "ran under NCCL_NVLS_ENABLE=0"),
    ("NCCL_P2P_DISABLE=1", "ran under NCCL_P2P_DISABLE=1"),
  ],
)
def test_rows_under_another_choice_than_nccls_are_distrusted(
  tmp_path: pathlib.Path, line: str, doubt: str
) -> None:
  path = tmp_path / "my.log"
  path.write_text(_log(_TWO_NODES, before=[line]), encoding="utf-8")
  measured = calibration_lib.read(_TWO_NODES, [path])
  assert {sample.doubt for sample in measured.samples} == {doubt}
  with pytest.raises(errors.CalibrationError, match=" ran under NCCL_"):
    calibration_lib.calibrate(_TWO_NODES, measured)


@pytest.mark.parametrize("line", ["NCCL_P2P_DISABLE=0", "NCCL_DEBUG=INFO"])
def test_an_environment_that_leaves_nccl_its_choice_is_trusted(
  tmp_path: pathlib.Path, line: str
) -> None:
  result = _calibrate(tmp_path, _log(_TWO_NODES, before=[line]))
  assert not any(sample.doubt for sample in result.samples)


def test_a_logged_choice_that_was_not_foreseen_is_distrusted(
  tmp_path: pathlib.Path,
) -> None:
  setting = collective_lib.default_setting(
    _key(_TWO_NODES, "all-reduce", 2**20), _TWO_NODES
  )
  lines = [
    f"NCCL INFO AllReduce: {2**20} Bytes -> Algo {setting.algorithm.upper()}"
    f" proto {setting.protocol.upper()} channel{{Lo..Hi}}={{0..7}}",
    f"NCCL INFO AllReduce: {2**21} Bytes -> Algo 6 proto 2 time 12.5",
  ]
  result = _calibrate(tmp_path, _log(_TWO_NODES, before=lines))
  (doubted,) = (sample for sample in result.samples if sample.doubt)
  assert doubted.key.num_bytes == 2**21
  assert doubted.doubt.startswith("ran pat/simple, where ")


@pytest.mark.parametrize("name", ["4x8xh100", "1x16xh100", "2x4xh100"])
def test_ranks_that_are_not_the_clusters_are_refused_naming_both(
  tmp_path: pathlib.Path, name: str
) -> None:
  asked = cluster_lib.parse(name)
  path = tmp_path / "my.log"
  path.write_text(_log(_TWO_NODES), encoding="utf-8")
  (problem,) = calibration_lib.read(asked, [path]).problems
  assert "has 16 ranks on 2 hosts, but" in problem
  assert f"has {asked.num_devices} GPUs on {asked.num_nodes} nodes" in problem


def test_without_a_header_the_bus_bandwidth_tells_the_ranks(
  tmp_path: pathlib.Path,
) -> None:
  text = "\n".join([_COMMAND, *_rows(_TWO_NODES)])
  assert _calibrate(tmp_path, text).fits[0].num_ranks == 16
  wrong = calibration_lib.read(
    cluster_lib.parse("4x8xh100"), [tmp_path / "my.log"]
  )
  (problem,) = wrong.problems
  assert "ranks whose bus bandwidth is 1.875 of bytes over time" in problem
  assert "4x8xh100 has 32 GPUs on 4 nodes" in problem


def test_a_file_may_be_named_by_its_program(tmp_path: pathlib.Path) -> None:
  text = "\n".join(_rows(_TWO_NODES, "reduce_scatter"))
  result = _calibrate(tmp_path, text, name="reduce-scatter.2nodes.txt")
  assert result.fits[0].kind == "reduce-scatter"
  path = tmp_path / "run7.log"
  path.write_text(text, encoding="utf-8")
  (problem,) = calibration_lib.read(_TWO_NODES, [path]).problems
  assert "nothing says which program printed this" in problem


def test_one_node_of_a_cluster_tells_of_what_is_within_nodes(
  tmp_path: pathlib.Path,
) -> None:
  raw = cluster_lib.parse("1x8xh100").to_dict()
  raw["calibration"] = {"within_node": {"rate_factor": 0.7}}
  site = cluster_lib.from_dict(raw, where="a test")
  result = _calibrate(tmp_path, _log(site))
  calibration = result.cluster.calibration
  assert calibration is not None
  for num_bytes in _SIZES:
    found = dataclasses.replace(site, calibration=calibration)
    found_us = _us(found, "all-reduce", num_bytes)
    expected_us = _us(site, "all-reduce", num_bytes)
    assert found_us == pytest.approx(expected_us, rel=0.05)
  assert calibration.between_nodes == cluster_lib.Factors()
  assert result.notes == [
    "no row is of collectives between nodes: they stay as predicted"
  ]


def test_processes_that_ran_alone_are_told_so(tmp_path: pathlib.Path) -> None:
  alone = cluster_lib.parse("1x1xh100")
  row = "1048576 262144 float sum -1 3.20 327.68 0.00 0 3.1 338.25 0.00 0"
  path = tmp_path / "my.log"
  path.write_text(_log(alone, rows=[row]), encoding="utf-8")
  (problem,) = calibration_lib.read(_TWO_NODES, [path]).problems
  assert "has 1 ranks on 1 hosts (build nccl-tests with MPI=1" in problem


@given(
  exponent=st.integers(0, 32),
  latency=st.floats(0.1, 10),
  rate=st.floats(0.1, 10),
  kind=st.sampled_from(["all-reduce", "all-gather", "reduce-scatter"]),
)
def test_calibration_changes_times_and_no_choice_of_nccls(
  exponent: int, latency: float, rate: float, kind: str
) -> None:
  site = _with(_TWO_NODES, latency_factor=latency, rate_factor=rate)
  key = _key(_TWO_NODES, kind, 2**exponent)
  setting = collective_lib.default_setting(key, _TWO_NODES)
  assert collective_lib.default_setting(key, site) == setting
  found_us = _us(site, kind, 2**exponent)
  assert lower_bound.links_us(key, site) <= found_us * (1 + 1e-9)
  slower = _with(
    _TWO_NODES,
    latency_factor=latency,
    rate_factor=rate,
    latency_factors=dict.fromkeys(_PATHS, 2),
    rate_factors=dict.fromkeys(_PATHS, 0.5),
  )
  assert _us(slower, kind, 2**exponent) == pytest.approx(2 * found_us)


def test_calibration_by_ones_is_none(tmp_path: pathlib.Path) -> None:
  same = _with(_TWO_NODES)
  for num_bytes in (1, 2**16, 2**24, 2**32):
    for kind in run_lib.KINDS.values():
      expected = pytest.approx(_us(_TWO_NODES, kind, num_bytes))
      assert _us(same, kind, num_bytes) == expected


def test_only_what_spans_nodes_takes_the_factors_between_nodes() -> None:
  site = _with(_TWO_NODES, latency_factor=5.0)
  inside = collective_lib.TuningKey("all-reduce", 8, 1, _MIB)
  setting = collective_lib.default_setting(inside, site)
  assert wire.time_us(
    site, inside.communicator, inside.kind, _MIB, setting
  ) == wire.time_us(_TWO_NODES, inside.communicator, inside.kind, _MIB, setting)
  assert _us(site, "all-reduce", _MIB) > 3 * _us(_TWO_NODES, "all-reduce", _MIB)


@pytest.mark.parametrize(
  ("calibration", "message"),
  [
    ({"beside": {}}, "calibration.beside is unknown; known: within_node"),
    (
      {"within_node": {"rate_factor": 0}},
      "calibration.within_node.rate_factor is 0; it must be a number from 0.01",
    ),
    (
      {"between_nodes": {"rate_factors": {"ring": 1.0}}},
      "rate_factors of ring; it must have no other than ring.ll, ",
    ),
    (5, "calibration is 5; it must be an object or null"),
  ],
)
def test_a_calibration_that_breaks_a_rule_is_refused(
  calibration: object, message: str
) -> None:
  raw = {"gpu": "h100", "calibration": calibration}
  with pytest.raises(errors.ClusterError, match="mine: ") as caught:
    cluster_lib.from_dict(raw, where="mine")
  assert message in str(caught.value)


def test_what_is_written_is_read_as_the_calibrated_cluster(
  tmp_path: pathlib.Path,
) -> None:
  site = _with(_TWO_NODES, latency_factor=2.0, rate_factors={"ring.ll": 0.9})
  path = tmp_path / "deep" / "mine.json"
  cluster_file.write(path, site, {"calibration": "a test"})
  assert cluster_lib.parse(str(path)) == dataclasses.replace(site, name="mine")
  cluster_file.write(path, _TWO_NODES, {})  # An older cluster is replaced.
  assert cluster_lib.parse(str(path)).calibration is None
  assert [entry.name for entry in path.parent.iterdir()] == ["mine.json"]


@pytest.mark.parametrize("text", ["{}", "[]", "not JSON"])
def test_nothing_but_a_cluster_is_overwritten(
  tmp_path: pathlib.Path, text: str
) -> None:
  path = tmp_path / "other.json"
  path.write_text(text, encoding="utf-8")
  with pytest.raises(errors.CalibrationError, match="something else than a"):
    cluster_file.check(path)
  assert path.read_text(encoding="utf-8") == text


def _command(
  folder: pathlib.Path, *arguments: str
) -> subprocess.CompletedProcess[str]:
  return subprocess.run(
    [sys.executable, "-m", "lagom_xla.cli", "calibrate", *arguments],
    cwd=folder,
    capture_output=True,
    text=True,
    check=False,
  )


def test_the_command_uses_good_logs_and_names_bad_ones(
  tmp_path: pathlib.Path,
) -> None:
  site = _with(_TWO_NODES, latency_factor=2.0)
  (tmp_path / "good.log").write_text(_log(site), encoding="utf-8")
  (tmp_path / "bad.log").write_text("nothing\n", encoding="utf-8")
  done = _command(
    tmp_path,
    *("--cluster=2x8xh100", "good.log", "bad.log", "none.log"),
    *("--out=mine.json", "--format=json"),
  )
  assert done.returncode == 0
  printed = json.loads(done.stdout)
  assert printed["fits"][0]["num_rows"] == len(_SIZES)
  assert done.stderr.splitlines()[:2] == [
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
  done = _command(tmp_path, "--cluster=2x8xh100", "bad.log", "--out=mine.json")
  assert done.returncode == 2
  assert "have no rows to calibrate by" in done.stderr
  assert not (tmp_path / "mine.json").exists()


def test_real_systems_are_foretold_from_a_third_of_their_rows() -> None:
  if not _DATA.is_dir():
    pytest.skip("the folder of shared data is not beside this checkout")
  found = {
    group.name.rpartition(": ")[2]: group
    for group in calibrated.compare(_DATA / "nccl_tests")
  }
  # Missed, and said so in docs/calibrate.md: sites with several sets of
  # software, whose latencies differ by half, hold up the 90th percentile.
  assert found["all systems"].median < 0.03
  assert found["all systems"].p90 < 0.33
  assert found["one node"].median < 0.03
  assert found["one node"].p90 < 0.13


def _system_logs(
  folder: pathlib.Path, rows: Sequence[nccl_tests.Row]
) -> list[str]:
  """A log for each program, with every third size that a system measured."""
  names = []
  for program in ("all_reduce", "all_gather"):
    of_program = [r for r in rows if r.key.kind == run_lib.KINDS[program]]
    of_program.sort(key=lambda row: row.num_bytes)
    lines = [
      _row(program, row.key.num_ranks, row.num_bytes, row.time_us)
      for row in of_program[1::3]
    ]
    names.append(f"{program}.log")
    text = _log(rows[0].cluster, program, rows=lines)
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
  cluster_file.write(tmp_path / "usual.json", rows[0].cluster, {})
  names = _system_logs(tmp_path, rows)
  (tmp_path / "bad.log").write_text("srun: error: node-7\n", encoding="utf-8")
  done = _command(
    tmp_path, "--cluster=usual.json", *names, "bad.log", "--out=mine.json"
  )
  assert done.returncode == 0
  assert done.stderr.splitlines()[0].startswith("lagom-xla: bad.log: has no")
  mine = cluster_lib.parse(str(tmp_path / "mine.json"))

  def median_error(cluster: cluster_lib.Cluster) -> float:
    return statistics.median(
      abs(_us(cluster, row.key.kind, row.num_bytes) / row.time_us - 1)
      for row in rows
      if row.key.kind in ("all-reduce", "all-gather")
    )

  assert median_error(mine) < 0.75 * median_error(rows[0].cluster)
  assert median_error(mine) < 0.03

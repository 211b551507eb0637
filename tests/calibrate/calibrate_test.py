# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Logs of nccl-tests are read regardless of text around their rows, or refused.

Calibration recovers a site's parameters from them, and predicts its times.
"""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import json
import lzma
import pathlib
import re

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import pytest

from benchmarks.collectives import calibrated
import commands
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.calibrate import calibration as calibration_lib
from lagom_xla.calibrate import log
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import lower_bound
from lagom_xla.costs import step as step_lib
import nccl_tests_log
from nccl_tests_log import calibrate
from nccl_tests_log import calibrated_by
from nccl_tests_log import log_of
from nccl_tests_log import measured
from nccl_tests_log import predicted_us
from nccl_tests_log import row
from nccl_tests_log import rows_of

_MIB = 2**20
_TWO_NODES = nccl_tests_log.TWO_NODES
_SIZES = nccl_tests_log.SIZES
_COMMAND = nccl_tests_log.COMMAND


def _read(
  folder: pathlib.Path, text: str, name: str = "my.log"
) -> tuple[list[log.Run], list[str]]:
  path = folder / name
  path.write_text(text, encoding="utf-8")
  return log.read(path)


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
  ids=["bare", "mpirun", "tagged", "srun", "pod", "kubectl", "color", "crlf"],
)
def test_a_log_is_read_with_any_launchers_prefixes_around_its_lines(
  tmp_path, prefixed
):
  lines = log_of(_TWO_NODES).split("\n")
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
    predicted_us(_TWO_NODES, "all-reduce", _MIB), abs=0.006
  )


@pytest.mark.parametrize(
  "row",
  [
    # 2.0 to 2.12, with and without redop and root; 2.13 and newer; validation
    # off; only in place; only out of place.
    "1048576 262144 float sum 100.00 10.49 19.66 1e-06 101.0 10.38 19.47 1e-06",
    "1048576 262144 float 100.00 10.49 19.66 0e+00 101.0 10.38 19.47 0e+00",
    "1048576 262144 float 0 100.00 10.49 19.66 0e+00 101.0 10.38 19.47 0e+00",
    "1048576 262144 float sum -1 100.00 10.49 19.66 0 101.0 10.38 19.47 0",
    "1048576 524288 bfloat16 avg -1 100.00 10.49 19.66 N/A 101 10.38 19.47 N/A",
    "1048576 1048576 f8e4m3 none 0 N/A N/A N/A N/A 100.0 10.49 19.66 0",
    "1048576 262144 float none -1 100.00 10.49 19.66 0",
    # With dates (-S 1), and with times of single iterations (2.19.6).
    "1048576 262144 float sum -1 100.00 10.49 19.66 0 101.0 10.38 19.47 0"
    " 2026-07-01 12:00:00",
    "1048576 262144 float sum -1 100.00 10.49 19.66 0 99 104 103 1.2"
    " 101.0 10.38 19.47 0 99.1 105 104 1.3",
    # With a tag at each write, as mpirun -prepend-rank does.
    "[0] 1048576 262144 float sum -1[0] 100.00 10.49 19.66 0[0] 9 10.38 19.4 0",
  ],
)
def test_rows_of_every_nccl_tests_version_are_read(tmp_path, row):
  (run,), problems = _read(tmp_path, f"{_COMMAND}\n  {row}\n")
  assert problems == []
  assert [(r.line, r.num_bytes, r.time_us) for r in run.rows] == [
    (2, _MIB, 100)
  ]
  assert run.rows[0].bus_gbps == 19.66


def test_a_count_of_wrong_results_is_read_in_scientific_notation(tmp_path):
  row = "1048576 262144 float sum -1 100.00 10.49 19.66 1e+06 101 10.38 19.4 0"
  (run,), _ = _read(tmp_path, f"{_COMMAND}\n{row}\n")
  assert run.rows[0].num_wrong == 1_000_000


# Rows of nccl-tests under NCCL_DEBUG_SUBSYS=TUNING, also on a host whose name
# starts like a number; NVIDIA/nccl's issue 1453 has such a log, with tags.
@pytest.mark.parametrize("label", ["", "0: ", "[1,0]<stdout>:", "[0] "])
@pytest.mark.parametrize("host", ["node-0", "9c3d25a5"])
def test_rows_interrupted_by_nccl_messages_are_read(tmp_path, host, label):
  said = f"{host}:700:711 [0] NCCL INFO AllReduce: "
  other = "[2026-03-01 10:00:00] node-1:700:711 [0] net.cc:7 NCCL WARN no 7"
  lines = log_of(_TWO_NODES).replace("node-0", host).split("\n")
  for place, line in enumerate(lines):
    if line and line.split()[0] in map(str, _SIZES):
      message = f"{said}{line.split()[0]} Bytes -> Algo RING proto LL channel"
      head, first, second = line[:52], line[52:84], line[84:]
      lines[place] = "\n".join(
        (head + message, other, message, first + message, second)
      )
  text = "\n".join(label + line for line in "\n".join(lines).split("\n"))
  (run,), problems = _read(tmp_path, text)
  assert problems == []
  (unbroken,), _ = _read(tmp_path, log_of(_TWO_NODES))
  assert [(r.num_bytes, r.time_us, r.num_wrong) for r in run.rows] == [
    (r.num_bytes, r.time_us, 0) for r in unbroken.rows
  ]
  assert dict(run.choices) == dict.fromkeys(_SIZES, ("ring", "ll"))


@pytest.mark.parametrize(
  "packed",
  [
    gzip.compress,
    lzma.compress,
    lambda data: data.decode().encode("utf-16"),
    lambda data: data.decode().encode("utf-8-sig"),
  ],
  ids=["gz", "xz", "utf16", "utf8_mark"],
)
def test_a_log_is_read_in_any_compression_or_encoding(tmp_path, packed):
  path = tmp_path / "my.log.gz"
  path.write_bytes(packed(log_of(_TWO_NODES).encode()))
  (run,), problems = log.read(path)
  assert (problems, len(run.rows)) == ([], len(_SIZES))
  path.write_bytes(gzip.compress(b"cut off")[:-5])
  assert "is damaged or truncated" in log.read(path)[1][0]


def test_a_log_of_several_programs_is_split_into_their_runs(tmp_path):
  programs = tuple(log.KINDS)
  text = "\n".join(log_of(_TWO_NODES, program) for program in programs)
  runs, problems = _read(tmp_path, text)
  assert problems == []
  assert [run.program for run in runs] == list(programs)
  assert {len(run.rows) for run in runs} == {len(_SIZES)}
  assert all(len(run.ranks) == 16 for run in runs)


def test_a_log_without_its_comment_marks_is_read(tmp_path):
  text = log_of(_TWO_NODES).replace("#", "")
  (run,), _ = _read(tmp_path, text)
  assert len(run.ranks) == 16
  assert run.program == "all_reduce"


def test_an_incomplete_list_of_ranks_is_ignored(tmp_path):
  # oracle-quickstart/oci-gpu-quickstarts has "..." in place of some ranks.
  lines = log_of(_TWO_NODES).split("\n")
  kept = [line for line in lines if "Rank  7 " not in line]
  (run,), problems = _read(tmp_path, "\n".join(kept))
  assert problems == []
  assert run.ranks == {}
  assert len(run.rows) == len(_SIZES)


def test_a_commands_program_and_environment_are_read_for_its_run(tmp_path):
  rows = "\n".join(rows_of(_TWO_NODES))
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
      ":2: is damaged: 1048576 B in 100.00 us is not 99.90 GB/s",
    ),
    ("1048576 262144 float sum -1 100.00", ":2: is cut off"),
    ("1048576 262144 float sum -1 1e400 10.49 19.66 0", ":2: is cut off"),
    ("1048576 262144 float sum -1 1.2.3 10.49 19.66 0", ":2: is cut off"),
    ("no such thing", ": has no rows of nccl-tests"),
    ("", ": has no rows of nccl-tests"),
  ],
)
def test_errors_in_a_log_are_reported_in_one_line(tmp_path, line, message):
  runs, problems = _read(tmp_path, f"{_COMMAND}\n{line}\n")
  assert runs == []
  (problem,) = map(str, problems)
  assert problem.startswith(f"{tmp_path / 'my.log'}{message}")
  assert "\n" not in problem


@given(st.text())
def test_any_text_gives_runs_or_problems(tmp_path_factory, text):
  folder = tmp_path_factory.mktemp("any")
  runs, problems = _read(folder, text)
  assert runs or problems


_NODE = nccl_tests_log.NODE


def _launch_bound(gpus_per_thread: int, *, without: str = "nothing") -> str:
  """A log of a node where everything takes at least 40 us."""
  us = {n: max(predicted_us(_NODE, "all-reduce", n), 40.0) for n in _SIZES}
  rows = [row("all_reduce", 8, n, time_us) for n, time_us in us.items()]
  text = log_of(_NODE, rows=rows, gpus_per_thread=gpus_per_thread)
  return "\n".join(line for line in text.split("\n") if without not in line)


@pytest.mark.parametrize(
  "without", ["nothing of it", "nThread", " Rank ", "# "]
)
def test_times_bound_by_one_threads_launches_are_not_taken_for_latency(
  tmp_path, without
):
  text = f"{_COMMAND}\n{_launch_bound(8, without=without)}"
  result = calibrate(tmp_path, text, _NODE)
  assert result.calibration.within_node == cluster_lib.Factors()
  doubted = {s.measured_us for s in result.samples if s.doubt}
  assert {us for us in doubted if us <= 40.0} == {40.0}
  assert any(
    "bound by one thread's launches on 8 GPUs" in s.doubt
    for s in result.samples
  )


def test_latency_with_one_gpu_per_thread_is_calibrated(tmp_path):
  result = calibrate(tmp_path, _launch_bound(1), _NODE)
  assert result.calibration.within_node.latency_factor > 1.1


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
    (
      "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 iters: 20 agg iters: 4",
      "ran 4 collectives in one group; run it without -m",
    ),
  ],
)
def test_rows_measured_under_overridden_nccl_choices_are_distrusted(
  tmp_path, line, doubt
):
  found = measured(tmp_path, log_of(_TWO_NODES, before=[line]))
  assert {sample.doubt for sample in found.samples} == {doubt}
  with pytest.raises(errors.CalibrationError, match=f" {doubt}"):
    calibration_lib.calibrate(_TWO_NODES, found)


@pytest.mark.parametrize("line", ["NCCL_P2P_DISABLE=0", "NCCL_DEBUG=INFO"])
def test_an_environment_that_does_not_override_nccl_is_trusted(tmp_path, line):
  result = calibrate(tmp_path, log_of(_TWO_NODES, before=[line]))
  assert not any(sample.doubt for sample in result.samples)


_TYPES = {"float": 1.0, "half": 1.0, "int8": 1.0, "int32": 1.1}


def _rows_of_type(element_type: str, times: float = 1.0) -> list[str]:
  """Predicted rows, with NVLS for types that it adds; longer by a factor."""
  multicasts = element_type != "int8"
  return [
    row("all_reduce", 16, n, times * us, element_type)
    for n in _SIZES
    if (us := predicted_us(_TWO_NODES, "all-reduce", n, multicasts))
  ]


def test_a_log_of_all_types_is_fitted_to_floats_with_factors_for_others(
  tmp_path,
):
  rows = [r for t in _TYPES for r in _rows_of_type(t, _TYPES[t])]
  result = calibrate(tmp_path, log_of(_TWO_NODES, rows=rows))
  # Each other type gets the rate of its own rows.
  (times,) = _factors(result).type_factors.items()
  assert times == ("s32", pytest.approx(1 / 1.1, rel=0.03))
  assert _factors(result) == cluster_lib.Factors(type_factors=dict([times]))
  assert not any(sample.doubt for sample in result.samples)
  off = {fit.element_type: fit.held_out.median for fit in result.fits}
  assert off == dict.fromkeys(["", "s8", "s32"], pytest.approx(0, abs=0.03))
  # A step's reduction is predicted with its type's factor.
  module = hlo_text.load(
    "\n".join(
      [
        "p = s32[67108864] parameter(0)",
        "ROOT r = s32[67108864] all-reduce(p), channel_id=1,"
        " replica_groups=[1,16]<=[16], use_global_device_ids=true,"
        " to_apply=add_s32",
      ]
    ),
    computations="add_s32 {\n  a = s32[] parameter(0)\n"
    "  b = s32[] parameter(1)\n  ROOT s = s32[] add(a, b)\n}",
    header="is_scheduled=true, num_partitions=16",
  )
  uncalibrated_us, calibrated_us = (
    step.timeline(step.default).step_time_us
    for cluster in (_TWO_NODES, result.cluster)
    if (step := step_lib.of_module(module, cluster))
  )
  assert calibrated_us == pytest.approx(1.1 * uncalibrated_us, rel=0.03)


def test_a_log_of_only_another_type_uses_nccls_predicted_choice(tmp_path):
  result = calibrate(tmp_path, log_of(_TWO_NODES, rows=_rows_of_type("int8")))
  assert _factors(result) == cluster_lib.Factors()
  assert not any(sample.doubt for sample in result.samples)
  assert "nvlstree.simple" not in {sample.path for sample in result.samples}


def test_an_algorithm_missing_from_a_log_is_inferred_from_its_rates(tmp_path):
  rows = [
    row("all_reduce", 8, n, predicted_us(_NODE, "all-reduce", n, False))
    for n in _SIZES
  ]
  result = calibrate(tmp_path, log_of(_NODE, rows=rows), _NODE)
  assert result.calibration.within_node == cluster_lib.Factors()
  note, _ = result.notes
  assert "where NCCL would choose NVLS" in note
  # The note is not given for a machine that is slow in all collectives.
  raw = _NODE.to_dict()
  raw["calibration"] = {"within_node": {"rate_factor": 0.77}}
  slow = cluster_lib.from_dict(raw, where="a test")
  assert "where NCCL would choose" not in str(
    calibrate(tmp_path, log_of(slow), _NODE).notes
  )


def test_rows_whose_logged_choice_was_not_predicted_are_distrusted(tmp_path):
  setting = collective_lib.default_setting(
    nccl_tests_log.tuning_key(_TWO_NODES, "all-reduce", 2**20), _TWO_NODES
  )
  lines = [
    f"NCCL INFO AllReduce: {2**20} Bytes -> Algo {setting.algorithm.upper()}"
    f" proto {setting.protocol.upper()} channel{{Lo..Hi}}={{0..7}}",
    f"NCCL INFO AllReduce: {2**21} Bytes -> Algo 6 proto 2 time 12.5",
  ]
  result = calibrate(tmp_path, log_of(_TWO_NODES, before=lines))
  (doubted,) = (sample for sample in result.samples if sample.doubt)
  assert doubted.key.num_bytes == 2**21
  assert doubted.doubt.startswith("ran pat/simple, where ")


@pytest.mark.parametrize("name", ["4x8xh100", "1x16xh100", "2x4xh100"])
def test_a_log_with_other_ranks_than_the_clusters_is_refused_with_both(
  tmp_path, name
):
  asked = cluster_lib.parse(name)
  (problem,) = measured(tmp_path, log_of(_TWO_NODES), asked).problems
  assert "has 16 ranks on 2 hosts, but" in problem
  nodes = "1 node;" if asked.num_nodes == 1 else f"{asked.num_nodes} nodes;"
  assert f"has {asked.num_devices} GPUs on {nodes}" in problem


def test_the_number_of_ranks_is_inferred_from_bus_bandwidth_if_missing(
  tmp_path,
):
  text = "\n".join([_COMMAND, *rows_of(_TWO_NODES)])
  assert calibrate(tmp_path, text).fits[0].num_ranks == 16
  asked = cluster_lib.parse("4x8xh100")
  (problem,) = measured(tmp_path, text, asked).problems
  assert "ranks whose bus bandwidth is 1.875 of bytes over time" in problem
  assert "4x8xh100 has 32 GPUs on 4 nodes" in problem


def test_the_program_is_inferred_from_the_files_name(tmp_path):
  text = "\n".join(rows_of(_TWO_NODES, "reduce_scatter"))
  result = calibrate(tmp_path, text, name="reduce-scatter.2nodes.txt")
  assert result.fits[0].kind == "reduce-scatter"


@pytest.mark.parametrize("program", list(log.KINDS))
def test_the_program_is_inferred_from_the_columns_of_its_rows(
  tmp_path, program
):
  text = "\n".join(rows_of(_TWO_NODES, program))
  assert calibrate(tmp_path, text).fits[0].kind == log.KINDS[program]


def test_ambiguous_columns_leave_the_program_unknown(tmp_path):
  text = "\n".join(rows_of(_TWO_NODES, "all_gather"))
  unchecked = re.sub(r" 0( |$)", r" N/A\1", text, flags=re.MULTILINE)
  (problem,) = measured(tmp_path, unchecked).problems
  assert "the program is unknown" in problem


def test_a_log_of_independent_single_rank_processes_is_refused(tmp_path):
  alone = cluster_lib.parse("1x1xh100")
  row = "1048576 262144 float sum -1 3.20 327.68 0.00 0 3.1 338.25 0.00 0"
  (problem,) = measured(tmp_path, log_of(alone, rows=[row])).problems
  assert "has 1 rank on 1 host (build nccl-tests with MPI=1" in problem


_DATA = pathlib.Path(__file__).resolve().parents[3] / "shared/data"


def _factors(result: calibration_lib.Result) -> cluster_lib.Factors:
  return result.calibration.between_nodes


@settings(max_examples=20)
@given(
  latency=st.floats(0.5, 5),
  rate=st.floats(0.5, 1.2),
  program=st.sampled_from(["all_reduce", "all_gather", "reduce_scatter"]),
)
def test_calibration_recovers_the_factors_of_a_simulated_site(
  tmp_path_factory, latency, rate, program
):
  site = calibrated_by(_TWO_NODES, latency_factor=latency, rate_factor=rate)
  folder = tmp_path_factory.mktemp("site")
  result = calibrate(folder, log_of(site, program))
  factors = _factors(result)
  # Nearly all of what the paths have in common is in the common factors.
  assert factors.latency_factor == pytest.approx(latency, rel=0.25)
  assert factors.rate_factor == pytest.approx(rate, rel=0.1)
  assert not any(sample.doubt for sample in result.samples)
  (fit,) = result.fits
  assert fit.after.p90 < 0.03
  assert fit.held_out.p90 < 0.05
  # The calibrated cluster predicts the measured times.
  for num_bytes in _SIZES:
    kind = log.KINDS[program]
    found_us = predicted_us(result.cluster, kind, num_bytes)
    assert found_us == pytest.approx(
      predicted_us(site, kind, num_bytes), rel=0.05
    )


def test_large_rows_calibrate_the_rate_but_not_the_latency(tmp_path):
  site = calibrated_by(_TWO_NODES, latency_factor=3.0, rate_factor=0.8)
  large = log_of(site, rows=rows_of(site, sizes=(2**32,)))
  factors = _factors(calibrate(tmp_path, large))
  assert factors.rate_factor == pytest.approx(0.8, rel=0.03)
  assert factors.latency_factor == pytest.approx(1.0, rel=0.03)


def test_a_calibration_without_predictive_value_is_dropped(tmp_path):
  # Times alternate between longer and shorter, which no factor of latency or
  # rate can express.
  by_turns = (1.0, 2.0, 0.5)
  rows = [
    row(
      "all_reduce",
      16,
      size,
      predicted_us(_TWO_NODES, "all-reduce", size) * times,
    )
    for size, times in zip(_SIZES, itertools.cycle(by_turns), strict=False)
  ]
  result = calibrate(tmp_path, log_of(_TWO_NODES, rows=rows))
  assert _factors(result) == cluster_lib.Factors()
  assert any("no calibration predicts rows" in note for note in result.notes)


def test_many_small_rows_do_not_distort_the_common_rate_factor(tmp_path):
  # Adapters reach half of their rate, and small collectives take equally long
  # for any size: no rate is too high for LL.
  site = calibrated_by(_TWO_NODES, rate_factor=0.5)
  flat_us = predicted_us(site, "all-reduce", 2**16)
  small = [
    row("all_reduce", 16, size, flat_us) for size in range(2**16, 2**20, 2**10)
  ]
  large = rows_of(site, sizes=[2**n for n in range(24, 33)])
  result = calibrate(tmp_path, log_of(site, rows=[*small, *large]))
  factors = _factors(result)
  assert factors.rate_factor * factors.rate_factors["nvlstree.simple"] == (
    pytest.approx(0.5, rel=0.1)
  )
  assert 0.4 < factors.rate_factor < 1.5


def test_an_outlier_row_is_distrusted_and_does_not_change_the_rate(tmp_path):
  rows = rows_of(_TWO_NODES)
  us = predicted_us(_TWO_NODES, "all-reduce", 2**28)
  place = _SIZES.index(2**28)
  rows[place] = row("all_reduce", 16, 2**28, 5 * us)
  result = calibrate(tmp_path, log_of(_TWO_NODES, rows=rows))
  assert _factors(result).rate_factor == pytest.approx(1.0, abs=0.03)
  (doubted,) = (sample for sample in result.samples if sample.doubt)
  assert doubted.key.num_bytes == 2**28
  assert "slower than the other rows suggest" in doubted.doubt


def test_a_log_of_one_node_calibrates_only_collectives_within_nodes(tmp_path):
  raw = cluster_lib.parse("1x8xh100").to_dict()
  raw["calibration"] = {"within_node": {"rate_factor": 0.7}}
  site = cluster_lib.from_dict(raw, where="a test")
  result = calibrate(tmp_path, log_of(site))
  calibration = result.calibration
  for num_bytes in _SIZES:
    found = dataclasses.replace(site, calibration=calibration)
    found_us = predicted_us(found, "all-reduce", num_bytes)
    expected_us = predicted_us(site, "all-reduce", num_bytes)
    assert found_us == pytest.approx(expected_us, rel=0.05)
  assert calibration.between_nodes == cluster_lib.Factors()
  assert result.notes == [
    "no rows between nodes: those collectives are not calibrated"
  ]


def test_real_systems_are_predicted_from_a_third_of_their_rows():
  if not _DATA.is_dir():
    pytest.skip("the folder of shared data is not beside this checkout")
  title = "nccl-tests, calibrated on a third: "
  found = {
    group.name.removeprefix(title): group
    for group in calibrated.compare(_DATA / "nccl_tests")
  }
  # The aim is missed (docs/calibrate.md): sites with several software versions,
  # whose latencies differ by half, raise the 90th percentile.
  assert found["all systems"].median < 0.03
  assert found["all systems"].p90 < 0.33
  assert found["one node"].median < 0.03
  assert found["one node"].p90 < 0.13


_PATHS = (
  *("ring.ll", "ring.ll128", "ring.simple", "pat.simple", "nvlstree.simple"),
  *("tree.ll", "tree.ll128", "tree.simple", "nvls.simple"),
  "nvls_gather.simple",
)


@given(
  exponent=st.integers(0, 32),
  latency=st.floats(0.1, 10),
  rate=st.floats(0.1, 10),
  kind=st.sampled_from(["all-reduce", "all-gather", "reduce-scatter"]),
)
def test_calibration_changes_times_but_not_nccls_choices(
  exponent, latency, rate, kind
):
  site = calibrated_by(_TWO_NODES, latency_factor=latency, rate_factor=rate)
  key = nccl_tests_log.tuning_key(_TWO_NODES, kind, 2**exponent)
  setting = collective_lib.default_setting(key, _TWO_NODES)
  assert collective_lib.default_setting(key, site) == setting
  found_us = predicted_us(site, kind, 2**exponent)
  assert lower_bound.links_us(key, site) <= found_us * (1 + 1e-9)
  slower = calibrated_by(
    _TWO_NODES,
    latency_factor=latency,
    rate_factor=rate,
    latency_factors=dict.fromkeys(_PATHS, 2),
    rate_factors=dict.fromkeys(_PATHS, 0.5),
  )
  assert predicted_us(slower, kind, 2**exponent) == pytest.approx(2 * found_us)


def test_factors_between_nodes_apply_only_to_collectives_across_nodes():
  same = calibrated_by(_TWO_NODES)
  for num_bytes in (1, 2**16, 2**24, 2**32):
    for kind in log.KINDS.values():
      assert predicted_us(same, kind, num_bytes) == pytest.approx(
        predicted_us(_TWO_NODES, kind, num_bytes)
      )
  site = calibrated_by(_TWO_NODES, latency_factor=5.0)
  inside = collective_lib.TuningKey("all-reduce", 8, 1, _MIB)
  setting = collective_lib.default_setting(inside, site)
  assert collective_lib.predict(inside, setting, site) == (
    collective_lib.predict(inside, setting, _TWO_NODES)
  )
  across_us = predicted_us(_TWO_NODES, "all-reduce", _MIB)
  assert predicted_us(site, "all-reduce", _MIB) > 3 * across_us


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
      "rate_factors of ring; the known paths are ring.ll, ",
    ),
    (5, "calibration is 5; it must be an object or null"),
  ],
)
def test_an_invalid_calibration_in_a_cluster_file_is_refused(
  calibration, message
):
  raw = {"gpu": "h100", "calibration": calibration}
  with pytest.raises(errors.ClusterError, match="mine: ") as caught:
    cluster_lib.from_dict(raw, where="mine")
  assert message in str(caught.value)


def test_a_written_cluster_file_is_read_as_the_calibrated_cluster(tmp_path):
  site = calibrated_by(
    _TWO_NODES, latency_factor=2.0, rate_factors={"ring.ll": 0.9}
  )
  path = tmp_path / "deep" / "mine.json"
  calibration_lib.write(path, site, {"calibration": "a test"})
  assert cluster_lib.parse(str(path)) == dataclasses.replace(site, name="mine")
  calibration_lib.write(path, _TWO_NODES, {})  # An older cluster is replaced.
  assert cluster_lib.parse(str(path)).calibration is None
  assert [entry.name for entry in path.parent.iterdir()] == ["mine.json"]


def test_writing_through_a_symlink_keeps_the_link(tmp_path):
  shared, link = tmp_path / "shared.json", tmp_path / "mine.json"
  calibration_lib.write(shared, _TWO_NODES, {})
  link.symlink_to(shared)
  site = calibrated_by(_TWO_NODES, latency_factor=2.0)
  calibration_lib.write(link, site, {})
  assert link.is_symlink()
  assert cluster_lib.parse(str(shared)).calibration == site.calibration


@pytest.mark.parametrize("text", ["{}", "[]", "not JSON"])
def test_only_cluster_files_are_overwritten(tmp_path, text):
  path = tmp_path / "other.json"
  path.write_text(text, encoding="utf-8")
  with pytest.raises(errors.CalibrationError, match="is not a cluster"):
    calibration_lib.check(path)
  assert path.read_text(encoding="utf-8") == text


@pytest.fixture(name="here")
def fixture_here(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> pathlib.Path:
  """A separate working folder for commands."""
  monkeypatch.chdir(tmp_path)
  return tmp_path


def test_the_command_uses_good_logs_and_names_bad_ones(here):
  site = calibrated_by(_TWO_NODES, latency_factor=2.0)
  (here / "good.log").write_text(log_of(site), encoding="utf-8")
  (here / "bad.log").write_text("nothing\n", encoding="utf-8")
  done = commands.run(
    *("calibrate", "--cluster=2x8xh100", "good.log", "bad.log", "none.log"),
    *("--out=mine.json", "--format=json"),
  )
  assert done.status == 0
  printed = json.loads(done.out)
  assert printed["fits"][0]["num_rows"] == len(_SIZES)
  assert done.err.splitlines()[:2] == [
    "lagom-xla: bad.log: has no rows of nccl-tests; pass its output",
    "lagom-xla: none.log: cannot be read: No such file or directory",
  ]
  mine = json.loads((here / "mine.json").read_text(encoding="utf-8"))
  assert mine["calibration"] == printed["calibration"]
  assert mine["sources"]["calibration"] == (
    "lagom-xla calibrate: 17 rows of nccl-tests, NCCL 2.29.7, in good.log"
  )


def test_the_command_writes_nothing_without_a_good_log(here):
  (here / "bad.log").write_text("nothing\n", encoding="utf-8")
  done = commands.run(
    "calibrate", "--cluster=2x8xh100", "bad.log", "--out=mine.json"
  )
  assert done.status == 2
  assert "have no row of 64 KiB or more" in done.err
  assert not (here / "mine.json").exists()


def test_an_unwritable_output_file_is_reported_before_logs_are_read():
  done = commands.run(
    "calibrate", "--cluster=2x8xh100", "no.log", "--out=/proc/x.json"
  )
  assert done.status == 2
  assert done.err.startswith("lagom-xla: Cannot write /proc/x.json: ")
  assert "no.log" not in done.err

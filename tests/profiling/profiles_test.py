# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Profiles: which traces are read, and what they show of a run."""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import gzip
import lzma
import pathlib
import re
import statistics
from typing import Any
import zlib

import hypothesis
from hypothesis import strategies
import jax
import pytest

from benchmarks.steps import traced_step
from lagom_xla import errors
from lagom_xla import profiling
from lagom_xla.passes import collectives
from lagom_xla.passes import hlo
from lagom_xla.passes import hlo_pb2
from lagom_xla.passes import overlap
from lagom_xla.profiling import overlaps as overlaps_lib
from lagom_xla.profiling import profile as profile_lib
from lagom_xla.profiling import xspace
from lagom_xla.report import notes
import simulated_run
import xspace_text

NUM_STEPS = 3
SECOND_NS = 10**9


def lone_us(name: str) -> float:
  return 5.0 + zlib.crc32(name.encode()) % 40


def own_us(name: str) -> float:
  return 30.0 + zlib.crc32(name.encode()) % 50


def run_of(module: hlo.Module, late_us: Sequence[float]) -> simulated_run.Run:
  return simulated_run.Run(
    module=module, lone_us=lone_us, own_us=own_us, late_us=late_us
  )


def _serialized(kernels: Sequence[xspace_text.Kernel], **fields: Any) -> bytes:
  """The profile of a process that ran these kernels on its GPU."""
  process = xspace_text.Process(devices=[kernels], **fields)
  return xspace_text.serialized(process)


def profile_of(
  module: hlo.Module,
  ranks: Sequence[Sequence[xspace_text.Kernel]],
  starts_ns: Sequence[int | None] | None = None,
) -> profile_lib.Profile:
  """The profile of ranks, in separate processes or in one."""
  if starts_ns is None:
    process = xspace_text.Process(devices=ranks, module=module)
    serialized = {"host": xspace_text.serialized(process)}
  else:
    serialized = {
      # Each process numbers its programs itself.
      f"host{index}": _serialized(
        kernels, module=module, start_ns=start_ns, program_id=17 + index
      )
      for index, (kernels, start_ns) in enumerate(
        zip(ranks, starts_ns, strict=True)
      )
    }
  return profile_lib.of_trace(xspace.of_bytes(serialized))


@pytest.fixture(scope="module")
def profile(fsdp_scan: hlo.Module) -> profile_lib.Profile:
  """Eight ranks in one process, one of them 200 us late."""
  late_us = [0.0] * 8
  late_us[5] = 200.0
  return profile_of(fsdp_scan, run_of(fsdp_scan, late_us).steps(NUM_STEPS))


def test_the_module_is_read_from_the_trace(fsdp_scan, profile):
  assert profile.analysis.module.proto == fsdp_scan.proto


def test_every_step_is_found_on_every_device(profile):
  found = sorted((step.device, step.number) for step in profile.whole_steps)
  assert found == [(d, n) for d in range(8) for n in range(NUM_STEPS)]


def test_every_iteration_of_a_loops_collectives_is_found(profile):
  assert profile.steps and profile.collectives
  for step in profile.steps:
    names = [event.name for event in step.collectives]
    for name, collective in profile.collectives.items():
      assert names.count(name) == collective.executions


def test_kernels_without_overlap_have_their_undisturbed_time(profile):
  assert profile.lone_us
  for name, times_us in profile.lone_us.items():
    # The trace's resolution is a picosecond.
    assert times_us == pytest.approx([lone_us(name)] * len(times_us), abs=1e-3)


def test_slowdowns_of_overlapped_kernels_are_measured(profile):
  covered = [
    row
    for row in overlaps_lib.of_profile(profile).slowdowns
    if row.beside_us is not None and row.num_kernels == 1
  ]
  assert covered
  for row in covered:
    if row.kernel in profile.lone_us:
      expected = simulated_run.SLOWDOWN * lone_us(row.kernel)
      assert row.beside_us == pytest.approx(expected, rel=0.05)


def test_a_collectives_own_time_excludes_waiting(profile):
  assert all(i.has_all_ranks for i in profile.instances)
  for instance in profile.instances:
    assert instance.own_us == pytest.approx(own_us(instance.name), abs=1e-3)


def test_a_late_rank_is_identified_with_its_delay(profile):
  rows = overlaps_lib.of_profile(profile).devices
  assert max(rows, key=lambda row: row.late_us).name == "host GPU:5"
  assert max(rows, key=lambda row: row.late_us).late_us >= 200.0


def test_kernels_exposed_collectives_and_gaps_add_up_to_the_step(profile):
  overlaps = overlaps_lib.of_profile(profile)
  parts_us = overlaps.kernel_us + overlaps.exposed_us + overlaps.gap_us
  spans_us = [s.end_us - s.begin_us for s in profile.whole_steps]
  assert parts_us == pytest.approx(statistics.mean(spans_us))


def test_waits_for_late_ranks_are_distinguished_from_network_time(fsdp_scan):
  def late_ranks_us(late_us: Sequence[float]) -> float:
    ranks = run_of(fsdp_scan, late_us).steps(NUM_STEPS)
    rows = overlaps_lib.of_profile(profile_of(fsdp_scan, ranks)).collectives
    return sum(row.late_ranks_us for row in rows)

  assert late_ranks_us([0.0] * 8) == pytest.approx(0.0, abs=1e-3)
  # Seven of eight ranks wait for the last one, once a step. Kernels hide
  # equally much of both delays.
  late, later = (late_ranks_us([0.0] * 7 + [us]) for us in (1000.0, 1160.0))
  assert later - late == pytest.approx(160.0 * 7 / 8, rel=0.1)


def test_the_channel_count_is_the_grid_size_of_the_nccl_kernel(profile):
  assert set(profile.num_channels.values()) == {24}


def test_results_do_not_depend_on_offsets_of_the_hosts_clocks(fsdp_scan):
  ranks = run_of(fsdp_scan, [0.0, 60.0]).steps(2)

  @hypothesis.settings(max_examples=5)
  @hypothesis.given(strategies.integers(min_value=0, max_value=SECOND_NS))
  def check(apart_ns: int) -> None:
    found = profile_of(fsdp_scan, ranks, [SECOND_NS, SECOND_NS + apart_ns])
    names = {c.name for c in found.analysis.collectives}
    assert len(found.instances) == sum(k.op in names for k in ranks[0])
    for instance in found.instances:
      assert instance.own_us == pytest.approx(own_us(instance.name), abs=1e-2)
    rows = overlaps_lib.of_profile(found).devices
    assert max(rows, key=lambda row: row.late_us).name == "host1 GPU:0"

  check()


def test_profiles_with_different_start_times_are_aligned_by_clock(fsdp_scan):
  ranks = run_of(fsdp_scan, [0.0, 60.0]).steps(2)
  shifted = [
    dataclasses.replace(k, begin_us=k.begin_us + 3000.0) for k in ranks[1]
  ]
  start_ns = 1_770_000_000 * SECOND_NS
  found = profile_of(
    fsdp_scan, [ranks[0], shifted], [start_ns, start_ns - 3_000_000]
  )
  # An epoch in float64 nanoseconds has a resolution of half a microsecond.
  assert found.offsets_us == pytest.approx([0.0, 0.0], abs=0.5)


def test_a_lost_event_on_one_device_does_not_misalign_the_others(fsdp_scan):
  ranks = [list(r) for r in run_of(fsdp_scan, [0.0] * 8).steps(NUM_STEPS)]
  names = {c.name for c in profile_of(fsdp_scan, ranks).analysis.collectives}
  # A collective in a loop, whose occurrences would be counted wrong.
  repeated = next(
    k.op
    for k in ranks[0]
    if [x.op for x in ranks[0]].count(k.op) > 6 and k.op in names
  )
  ranks[0].remove(next(k for k in ranks[0] if k.op == repeated))
  found = profile_of(fsdp_scan, ranks)
  for instance in found.instances:
    ends_us = [run.end_us for run in instance.runs.values()]
    assert max(ends_us) - min(ends_us) == pytest.approx(0.0, abs=1e-3)
  incomplete = [i for i in found.instances if not i.has_all_ranks]
  assert [i.name for i in incomplete] == [repeated]


def test_a_truncated_step_is_not_counted_as_whole(fsdp_scan):
  (ranks,) = run_of(fsdp_scan, [0.0]).steps(NUM_STEPS)
  found = profile_of(fsdp_scan, [ranks[len(ranks) // 6 :]])
  assert [step.is_whole for step in found.steps] == [False, True, True]


def test_several_kernels_of_one_instruction_are_added_up(fsdp_scan):
  (ranks,) = run_of(fsdp_scan, [0.0]).steps(1)
  whole = profile_of(fsdp_scan, [ranks])
  halves = [
    dataclasses.replace(
      k, begin_us=k.begin_us + part * k.time_us / 2, time_us=k.time_us / 2
    )
    for k in ranks
    for part in range(2)
    if k.op in whole.kernels or part == 0
  ]
  halved = profile_of(fsdp_scan, [halves])
  assert halved.lone_us.keys() >= whole.lone_us.keys()
  for name, times_us in whole.lone_us.items():
    assert halved.lone_us[name] == pytest.approx(times_us, abs=1e-3)


_TRACES = pathlib.Path(__file__).resolve().parents[3] / "shared/data/traces"


@pytest.mark.parametrize(
  "stream", ["Stream #7(Compute)", "Stream #7(Kernel)", "Stream #7"]
)
def test_streams_are_recognized_in_every_spelling(fsdp_scan, stream):
  (ranks,) = run_of(fsdp_scan, [0.0]).steps(1)
  (device,) = profile_of(
    fsdp_scan, [[dataclasses.replace(k, stream=stream) for k in ranks]]
  ).trace.devices
  # The line "XLA Ops" has all launches a second time.
  assert len(device.launches) == len(ranks)


def test_another_steps_trace_is_refused(fsdp_scan, tp_scan):
  (ranks,) = run_of(fsdp_scan, [0.0]).steps(1)
  renamed = [dataclasses.replace(k, op=f"another_{k.op}") for k in ranks]
  trace = xspace.of_bytes({"host": _serialized(renamed)})
  with pytest.raises(errors.TraceError, match=re.escape(tp_scan.name)):
    profile_lib.of_trace(trace, tp_scan)


def _of_another(kernels: Sequence[xspace_text.Kernel]) -> bytes:
  """The profile of a process that ran another program, ten times as long."""
  others = [
    dataclasses.replace(k, op=f"another_{k.op}", time_us=10 * k.time_us)
    for k in kernels
  ]
  return _serialized(others, program_id=99)


def test_the_error_about_another_step_names_its_process(fsdp_scan):
  ranks = run_of(fsdp_scan, [0.0, 0.0]).steps(1)
  serialized = {
    "host0": _serialized(ranks[0], module=fsdp_scan),
    "host1": _of_another(ranks[1]),
  }
  with pytest.raises(errors.TraceError, match="of host1 is not of "):
    profiling.read(serialized)


def test_the_common_step_is_found_in_processes_that_also_ran_others(fsdp_scan):
  ranks = run_of(fsdp_scan, [0.0, 0.0]).steps(2)
  processes = [_serialized(kernels, module=fsdp_scan) for kernels in ranks]
  processes[1] += _of_another(ranks[1])
  found = profiling.read({"host0": processes[0], "host1": processes[1]})
  assert [step.device for step in found.whole_steps] == [0, 0, 1, 1]


def test_a_trace_without_its_module_needs_the_module_option(fsdp_scan):
  (ranks,) = run_of(fsdp_scan, [0.0]).steps(1)
  trace = xspace.of_bytes({"host": _serialized(ranks)})
  with pytest.raises(errors.TraceError, match="--module"):
    profile_lib.of_trace(trace)
  assert profile_lib.of_trace(trace, fsdp_scan).lone_us


def test_the_error_about_a_folder_without_a_trace_names_the_folder(tmp_path):
  with pytest.raises(errors.TraceError, match=re.escape(str(tmp_path))):
    profile_lib.read(tmp_path)
  with pytest.raises(errors.TraceError, match=r"^There is no .*/absent: pass"):
    profile_lib.read(tmp_path / "absent")


@pytest.mark.parametrize(
  ("name", "data", "message"),
  [
    ("rank3.xplane.pb", b"", r"rank3.* is empty"),
    ("rank3.xplane.pb", b"\x0a\xff\xff\x01half", "rank3"),
    ("rank3.xplane.pb.gz", gzip.compress(b"", mtime=0)[:-4] + b"oops", "rank3"),
  ],
)
def test_the_error_about_an_empty_or_damaged_trace_names_the_file(
  tmp_path, name, data, message
):
  (tmp_path / name).write_bytes(data)
  with pytest.raises(errors.TraceError, match=message):
    profile_lib.read(tmp_path)


def _spanning(
  kernels: Sequence[xspace_text.Kernel], module: hlo.Module, start_s: float
) -> bytes:
  """The profile of a process that traced for a second."""
  start_ns = 1_770_000_000 * SECOND_NS + round(start_s * SECOND_NS)
  stop_ns = start_ns + SECOND_NS
  return _serialized(kernels, module=module, start_ns=start_ns, stop_ns=stop_ns)


def _put(folder: pathlib.Path, place: str, data: bytes) -> pathlib.Path:
  file = folder / f"{place}.xplane.pb"
  file.parent.mkdir(parents=True, exist_ok=True)
  file.write_bytes(data)
  return file


def test_the_newest_profile_of_a_log_folder_is_read(tmp_path, fsdp_scan):
  (ranks,) = run_of(fsdp_scan, [0.0]).steps(2)
  data = _serialized(ranks, module=fsdp_scan)
  for place in ("2026_01_02/a", "2026_01_03/h2", "2026_01_03/h10"):
    _put(tmp_path, f"plugins/profile/{place}", data)
  processes = profile_lib.read(tmp_path).trace.processes
  assert [process.name for process in processes] == ["h2", "h10"]


def test_hosts_that_finished_in_different_seconds_are_one_run(
  tmp_path, fsdp_scan
):
  ranks = run_of(fsdp_scan, [0.0, 60.0]).steps(2)
  for place, kernels, start_s in (
    # Two processes of one host, each with a log folder, and an older run.
    ("p0/plugins/profile/2026_01_02_10_00_00/host", ranks[0], 0.0),
    ("p0/plugins/profile/2026_01_02_10_05_00/host", ranks[0], 300.0),
    ("p1/plugins/profile/2026_01_02_10_05_01/host", ranks[1], 300.4),
  ):
    _put(tmp_path, place, _spanning(kernels, fsdp_scan, start_s))
  trace = profiling.read(tmp_path).trace
  assert [process.name for process in trace.processes] == ["p0/host", "p1/host"]
  assert trace.num_other_files == 1


def test_an_unreadable_older_run_is_a_note_and_the_newest_an_error(
  tmp_path, fsdp_scan
):
  (ranks,) = run_of(fsdp_scan, [0.0]).steps(2)
  whole = _spanning(ranks, fsdp_scan, 300.0)
  cut_off = whole[: len(whole) // 2]
  _put(tmp_path, "2026_01_02_10_00_00/host", cut_off)
  _put(tmp_path, "2026_01_02_10_05_00/host", whole)
  found = profiling.read(tmp_path)
  assert len(found.steps) == 2
  (note,) = (n for n in notes.profile_notes(found) if "Skipped" in n)
  assert "2026_01_02_10_00_00/host.xplane.pb" in note and "cut off" in note
  newest = _put(tmp_path, "2026_01_02_10_06_00/host", cut_off)
  with pytest.raises(errors.TraceError, match=re.escape(str(newest))):
    profiling.read(tmp_path)


@pytest.mark.parametrize(
  ("name", "num_devices", "num_steps"),
  [("mi300x8_jax_conv_0.8", 8, 40), ("mi355_jax_te_fused_attn", 1, 5)],
)
def test_real_traces_are_matched_with_their_modules(
  name, num_devices, num_steps
):
  file = _TRACES / f"{name}.xplane.pb.xz"
  if not file.exists():
    pytest.skip(f"{file} is not there: it is not shipped")
  found = profile_lib.read(file)
  assert len(found.trace.devices) == num_devices
  assert len(found.steps) == num_steps
  # All kernels of these modules ran without overlap.
  assert found.lone_us.keys() == found.kernels.keys()


@pytest.mark.parametrize("damaged", ["line", "event"])
@pytest.mark.parametrize("plane", [b"/device:GPU:0", b"/host:CPU"])
def test_an_error_names_a_profile_with_damaged_lines_or_events(plane, damaged):
  def field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2, len(value)]) + value

  line = cut_off = b"\x0a\xff\x01"  # 255 bytes should follow.
  if damaged == "event":
    line = field(2, b"Stream #7") + field(4, cut_off)
  serialized = field(1, field(2, plane) + field(3, line))
  with pytest.raises(errors.TraceError, match="profile of this is damaged"):
    profiling.read({"this": serialized})


def test_a_module_in_place_of_a_profile_is_refused(fsdp_scan):
  # A module can be parsed as an XSpace.
  proto = hlo_pb2.HloProto(hlo_module=fsdp_scan.proto)
  with pytest.raises(errors.TraceError, match="is not an XSpace"):
    profiling.read({"step": proto.SerializeToString()})


def test_every_truncated_profile_is_a_lagom_error(fsdp_scan):
  (ranks,) = run_of(fsdp_scan, [0.0]).steps(1)
  whole = _spanning(ranks, fsdp_scan, 0.0)

  @hypothesis.settings(max_examples=20)
  @hypothesis.given(strategies.integers(0, len(whole) - 300))
  def check(size: int) -> None:
    with pytest.raises(errors.LagomError):
      profiling.read({"rank": whole[:size]})

  check()


@pytest.mark.parametrize("number", [1, 5000])
def test_errors_of_the_profiler_are_summarized_in_one_note(fsdp_scan, number):
  (ranks,) = run_of(fsdp_scan, [0.0]).steps(1)
  text = "\n".join(f'errors: "no {i}\\n\\n{i}"' for i in range(number))
  many = jax.profiler.ProfileData.text_proto_to_serialized_xspace(text)
  found = profiling.read({"rank": _spanning(ranks, fsdp_scan, 0.0) + many})
  (note,) = (n for n in notes.profile_notes(found) if "no 0" in n)
  assert ("4,997 more" in note) == (number > 1)
  assert len(note.splitlines()) == 1 and len(note) < 200


def test_a_trace_is_read_up_to_the_limit_on_launches(fsdp_scan, monkeypatch):
  ranks = run_of(fsdp_scan, [0.0, 60.0]).steps(4)
  num_per_step = sum(map(len, ranks)) // 4
  monkeypatch.setattr(xspace, "MOST_LAUNCHES", 2 * num_per_step)
  found = profile_of(fsdp_scan, ranks)
  assert found.trace.num_left_out == 2 * num_per_step
  assert {step.number for step in found.whole_steps} == {0, 1}
  assert any("were skipped" in note for note in notes.profile_notes(found))


_DATA = pathlib.Path(__file__).resolve().parents[3] / "shared/data"
_GPUS = {"pax_a100": "a100_40", "maxtext_h100": "h100"}


@pytest.mark.parametrize("name", _GPUS)
def test_a_traced_steps_folder_has_its_cluster_ranks_and_events(name):
  folder = _DATA / name
  if not folder.exists():
    pytest.skip(f"shared/data/{name} is not there: too large to ship")
  module = traced_step.read_module(folder)
  cluster = traced_step.cluster_of(folder, module)
  assert cluster.gpu.name == _GPUS[name]
  assert (cluster.num_nodes, cluster.gpus_per_node) == (1, 4)
  ranks = traced_step.by_rank(folder, module)
  assert len(ranks) == len(list(folder.glob("rank*")))
  assert all(len(steps) == 3 for steps in ranks)
  # All long events are kernels or collectives of the module.
  known = {k.name for k in overlap.analyze(module).kernels.values()}
  known |= {c.name for c in collectives.find(module)}
  events = [e for steps in ranks for step in steps for e in step]
  unknown_us = sum(e.time_us for e in events if e.name not in known)
  assert unknown_us < 1e-3 * sum(event.time_us for event in events)


def test_the_error_about_an_unknown_gpu_quotes_it(tmp_path, fsdp_scan):
  config = tmp_path / "step.gpu_target_config.pbtxt.xz"
  config.write_bytes(lzma.compress(b'device_description_str: "NVIDIA X1"\n'))
  with pytest.raises(ValueError, match="no GPU that is known is a 'NVIDIA X1'"):
    traced_step.cluster_of(tmp_path, fsdp_scan)


def test_a_folder_without_ranks_is_not_a_traced_step(tmp_path):
  folder = tmp_path / "step"
  folder.mkdir()
  (folder / "m.gpu_after_optimizations.hlo.pb.xz").touch()
  assert traced_step.folders(tmp_path) == []
  (folder / "rank7.csv.xz").touch()
  assert traced_step.folders(tmp_path) == [folder]

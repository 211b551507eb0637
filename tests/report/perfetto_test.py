# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Traces for ui.perfetto.dev, as Chrome's Trace Event Format has them."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence
import gzip
import json
import pathlib
from typing import Any

from hypothesis import given
import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import program as program_lib
from lagom_xla.costs.replay import recorder
from lagom_xla.passes import hlo
from lagom_xla.profiling import profile as profile_lib
from lagom_xla.profiling import xspace
from lagom_xla.report import instructions as instructions_lib
from lagom_xla.report import trace as trace_lib
import replay_parts
import simulated_run
import xspace_text

_Events = Sequence[trace_lib.Event]


def _threads(events: _Events) -> dict[str, list[trace_lib.Event]]:
  """Slices by the name of their thread, of one process."""
  names = {
    event["tid"]: event["args"]["name"]
    for event in events
    if event["name"] == "thread_name"
  }
  found = collections.defaultdict(list)
  for event in events:
    if event["ph"] == "X":
      found[names[event["tid"]]].append(event)
  return found


def _follow_each_other(slices: Iterable[trace_lib.Event]) -> bool:
  end_us = 0.0
  for event in sorted(slices, key=lambda e: e["ts"]):
    if event["ts"] < end_us - 1e-6:
      return False
    end_us = event["ts"] + event["dur"]
  return True


def _flows(events: _Events) -> dict[int, list[trace_lib.Event]]:
  found = collections.defaultdict(list)
  for event in events:
    if event["ph"] in "stf":
      found[event["id"]].append(event)
  return found


def _encloses(slice_: trace_lib.Event, flow: trace_lib.Event) -> bool:
  end_us = slice_["ts"] + slice_["dur"]
  return slice_["ts"] <= flow["ts"] <= end_us


@given(program=replay_parts.programs())
def test_every_stream_is_a_thread_whose_slices_follow_each_other(
  program: program_lib.Program,
) -> None:
  recorded = recorder.record(program, replay_parts.costs(wait_us=3.0))
  events = trace_lib.of_recording(1, "before", recorded, {}).events
  threads = _threads(events)
  assert all(map(_follow_each_other, threads.values()))
  busy_us = sum(event["dur"] for event in threads.get("compute", ()))
  assert busy_us == pytest.approx(recorded.step_time_us, abs=1e-6)


@given(program=replay_parts.programs())
def test_every_start_flows_to_its_collective_and_its_done(
  program: program_lib.Program,
) -> None:
  recorded = recorder.record(program, replay_parts.costs())
  events = trace_lib.of_recording(1, "before", recorded, {}).events
  flows = list(_flows(events).values())
  moved = [s for s in recorded.slices if s.kind in ("collective", "copy")]
  assert len(flows) == len(moved)
  marks = _threads(events)["starts and dones"] if moved else []
  assert sorted(mark["name"] for mark in marks) == sorted(
    f"{s.name} {end}" for s in moved for end in ("start", "done")
  )
  for start, through, done in flows:
    assert [start["ph"], through["ph"], done["ph"]] == ["s", "t", "f"]
    # Times are in steps of 0.01, whose sum is a last digit above the next one.
    assert start["ts"] <= through["ts"] + 1.001e-2
    assert any(_encloses(mark, start) for mark in marks)
    assert any(_encloses(mark, done) for mark in marks)


@given(program=replay_parts.programs())
def test_counters_end_at_no_channels_and_all_waits(
  program: program_lib.Program,
) -> None:
  recorded = recorder.record(program, replay_parts.costs())
  events = trace_lib.of_recording(1, "before", recorded, {}).events
  last: dict[str, float] = {}
  for event in events:
    if event["ph"] == "C":
      last[event["name"]] = event["args"]["value"]
  waits_us = sum(
    s.time_us if s.kind == "wait" else s.wait_us for s in recorded.slices
  )
  assert last["channels in use"] == 0
  assert last["exposed ms so far"] == pytest.approx(waits_us / 1e3)


@pytest.fixture(scope="module")
def step(fsdp_scan: hlo.Module) -> step_lib.Step:
  return step_lib.of_module(fsdp_scan, cluster_lib.parse("1x8xh100"))


def test_a_collective_of_a_compiled_step_tells_its_bytes_and_source_line(
  step: step_lib.Step,
) -> None:
  recorded = recorder.record(step.program, step.costs(step.default))
  instructions = instructions_lib.of_step(step)
  events = trace_lib.of_recording(1, "before", recorded, instructions).events
  bytes_of = {c.name: c.nccl_bytes for c in step.analysis.collectives}
  slices = [
    event
    for event in _threads(events)["communication"]
    if "more trip" not in event["name"]
  ]
  assert {event["name"] for event in slices} == bytes_of.keys()
  for event in slices:
    assert event["args"]["bytes"] == bytes_of[event["name"]]
    assert event["args"]["source"].startswith("conftest.py:")


def test_a_trace_is_written_as_one_json_object(
  step: step_lib.Step, tmp_path: pathlib.Path
) -> None:
  recorded = recorder.record(step.program, step.costs(step.default))
  before = trace_lib.of_recording(1, "before", recorded, {})
  after = trace_lib.of_recording(2, "after", recorded, {})
  trace_lib.write(tmp_path / "trace.json.gz", [before, after])
  trace_lib.write(tmp_path / "trace.json", [before, after])
  packed = gzip.decompress((tmp_path / "trace.json.gz").read_bytes())
  assert packed == (tmp_path / "trace.json").read_bytes()
  trace: dict[str, Any] = json.loads(packed)
  assert trace["traceEvents"] == [*before.events, *after.events]
  ids = [e["id"] for e in trace["traceEvents"] if e["ph"] == "s"]
  assert len(ids) == len(set(ids))


def test_a_trace_that_cannot_be_written_is_one_sentence(
  tmp_path: pathlib.Path,
) -> None:
  with pytest.raises(errors.OutputError, match="No such file"):
    trace_lib.write(tmp_path / "missing/trace.json", [])


def test_measured_steps_are_a_process_for_each_gpu(
  fsdp_scan: hlo.Module,
) -> None:
  late_us = [0.0, 200.0]
  run = simulated_run.Run(
    module=fsdp_scan,
    lone_us=lambda _: 20.0,
    own_us=lambda _: 50.0,
    late_us=late_us,
  )
  traced = xspace_text.Process(devices=run.steps(3), module=fsdp_scan)
  profile = profile_lib.of_trace(
    xspace.of_bytes({"host": xspace_text.serialized(traced)})
  )
  processes = list(trace_lib.measured(3, profile))
  assert len(processes) == 2
  for process, step in zip(
    processes, trace_lib.median_step(profile), strict=True
  ):
    threads = _threads(process.events)
    assert all(map(_follow_each_other, threads.values()))
    assert len(threads["compute"]) == len(step.kernels)
    assert len(threads["communication"]) == len(step.collectives)
    busy_us = sum(event["dur"] for event in threads["compute"])
    assert busy_us == pytest.approx(sum(e.time_us for e in step.kernels))

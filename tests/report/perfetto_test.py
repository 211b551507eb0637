# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Traces for ui.perfetto.dev, in Chrome's Trace Event Format."""

from __future__ import annotations

import collections
from collections.abc import Sequence
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
  for slices in found.values():
    end_us = 0.0
    for event in sorted(slices, key=lambda e: e["ts"]):
      assert event["ts"] >= end_us - 1e-6, "slices follow each other"
      end_us = event["ts"] + event["dur"]
  return found


def _encloses(slice_: trace_lib.Event, flow: trace_lib.Event) -> bool:
  end_us = slice_["ts"] + slice_["dur"]
  return slice_["ts"] <= flow["ts"] <= end_us


@given(program=replay_parts.programs())
def test_a_trace_has_all_streams_flows_and_counters_of_a_recording(
  program: program_lib.Program,
) -> None:
  recorded = recorder.record(program, replay_parts.costs(wait_us=3.0))
  events = trace_lib.of_recording(1, "before", recorded, {}).events
  # Every stream is a thread.
  threads = _threads(events)
  busy_us = sum(event["dur"] for event in threads.get("compute", ()))
  assert busy_us == pytest.approx(recorded.step_time_us, abs=1e-6)
  # Every start flows to its collective or copy, and to its done.
  moved = [s for s in recorded.slices if s.kind in ("collective", "copy")]
  flows = collections.defaultdict(list)
  for event in events:
    if event["ph"] in "stf":
      flows[event["id"]].append(event)
  assert len(flows) == len(moved)
  marks = threads.get("starts and dones", [])
  assert sorted(mark["name"] for mark in marks) == sorted(
    f"{s.name} {end}" for s in moved for end in ("start", "done")
  )
  for start, through, done in flows.values():
    assert [start["ph"], through["ph"], done["ph"]] == ["s", "t", "f"]
    # Marks of one time are drawn one after the other, each 0.001 long.
    assert start["ts"] <= through["ts"] + 1e-3 * len(marks)
    assert any(_encloses(mark, start) for mark in marks)
    assert any(_encloses(mark, done) for mark in marks)
  # Counters end at no channels, and at all waits.
  last = {e["name"]: e["args"]["value"] for e in events if e["ph"] == "C"}
  waits_us = sum(s.wait_us for s in recorded.slices)
  assert last["channels in use"] == 0
  assert last["exposed ms so far"] == pytest.approx(waits_us / 1e3)


@pytest.fixture(scope="module")
def step(fsdp_scan: hlo.Module) -> step_lib.Step:
  return step_lib.of_module(fsdp_scan, cluster_lib.parse("1x8xh100"))


def test_collectives_in_a_trace_have_their_bytes_and_source_lines(
  step: step_lib.Step,
) -> None:
  events = trace_lib.predicted(1, "before", step, step.default).events
  bytes_of = {c.name: c.nccl_bytes for c in step.analysis.collectives}
  told = {
    event["name"]: event["args"]
    for thread, of_thread in _threads(events).items()
    if thread.startswith("communication")
    for event in of_thread
    if "more trip" not in event["name"]
  }
  assert {name: args["bytes"] for name, args in told.items()} == bytes_of
  assert all(a["source"].startswith("conftest.py:") for a in told.values())


def test_a_trace_is_written_as_one_json_object(
  step: step_lib.Step, tmp_path: pathlib.Path
) -> None:
  before = trace_lib.predicted(1, "before", step, step.default)
  after = trace_lib.predicted(2, "after", step, step.default)
  trace_lib.write(tmp_path / "trace.json.gz", [before, after])
  trace_lib.write(tmp_path / "trace.json", [before, after])
  packed = gzip.decompress((tmp_path / "trace.json.gz").read_bytes())
  assert packed == (tmp_path / "trace.json").read_bytes()
  trace: dict[str, Any] = json.loads(packed)
  assert trace["traceEvents"] == [*before.events, *after.events]
  ids = [e["id"] for e in trace["traceEvents"] if e["ph"] == "s"]
  assert len(ids) == len(set(ids))
  with pytest.raises(errors.OutputError, match="Is a directory"):
    trace_lib.write(tmp_path, [])


def test_measured_steps_have_one_process_for_each_gpu(
  fsdp_scan: hlo.Module,
) -> None:
  run = simulated_run.Run(
    module=fsdp_scan,
    lone_us=lambda _: 20.0,
    own_us=lambda _: 50.0,
    late_us=[0.0, 200.0],
  )
  traced = xspace_text.Process(devices=run.steps(3), module=fsdp_scan)
  profile = profile_lib.of_trace(
    xspace.of_bytes({"host": xspace_text.serialized(traced)})
  )
  processes = list(trace_lib.measured(3, profile))
  steps = trace_lib.median_step(profile)
  assert len(processes) == 2
  for process, step in zip(processes, steps, strict=True):
    threads = _threads(process.events)
    assert len(threads["compute"]) == len(step.kernels)
    assert len(threads["communication"]) == len(step.collectives)
    busy_us = sum(event["dur"] for event in threads["compute"])
    assert busy_us == pytest.approx(sum(e.time_us for e in step.kernels))

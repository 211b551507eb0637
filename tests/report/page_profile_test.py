# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Pages and traces of steps that were profiled."""

from __future__ import annotations

import json
import pathlib

import pytest

from commands import CLUSTER
from commands import run
from lagom_xla.passes import hlo
from lagom_xla.profiling import profile as profile_lib
from pages import Page
import simulated_run
import xspace_text


@pytest.fixture(scope="module")
def profiled(
  fsdp_scan: hlo.Module, tmp_path_factory: pytest.TempPathFactory
) -> pathlib.Path:
  """A folder with a module and, in `trace`, a profile of two ranks."""
  folder = tmp_path_factory.mktemp("profiled")
  (folder / "step.hlo.pb").write_bytes(fsdp_scan.proto.SerializeToString())
  ran = simulated_run.Run(
    module=fsdp_scan, lone_us=lambda _: 20.0, own_us=lambda _: 50.0
  )
  process = xspace_text.Process(devices=ran.steps(3), module=fsdp_scan)
  xspace_text.write(folder / "trace", process)
  return folder


def _processes(trace: pathlib.Path) -> list[str]:
  events = json.loads(trace.read_text())["traceEvents"]
  return [e["args"]["name"] for e in events if e["name"] == "process_name"]


def test_an_inspection_with_a_profile_shows_what_was_measured(
  profiled: pathlib.Path,
) -> None:
  pytest.importorskip("plotly")
  outcome = run(
    *("inspect", str(profiled / "step.hlo.pb"), CLUSTER),
    f"--profile={profiled / 'trace'}",
    *(f"--report={profiled}/r.html", f"--trace={profiled}/t.json"),
  )
  assert outcome.status == 0, outcome.err
  assert outcome.out.endswith(
    f"\nWrote {profiled}/r.html\nWrote {profiled}/t.json\n"
  )
  page = Page((profiled / "r.html").read_text())
  measured = profile_lib.read(profiled / "trace").step_time_us
  assert "(predicted from measured costs)" in page.text["verdict"]
  assert f"measured {measured / 1e3:.2f} ms" in page.text["verdict"]
  predicted, *gpus = _processes(profiled / "t.json")
  assert predicted == "step (predicted from measured costs)"
  assert [name.split(",")[0] for name in gpus] == [
    "measured: host GPU:0",
    "measured: host GPU:1",
  ]


def test_a_profile_alone_makes_a_trace(profiled: pathlib.Path) -> None:
  trace = profiled / "alone.json"
  outcome = run("profile", str(profiled / "trace"), f"--trace={trace}")
  assert (outcome.status, outcome.err) == (0, "")
  assert outcome.out.endswith(f"\nWrote {trace}\n")
  assert len(_processes(trace)) == 2

# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The report page: what it says and draws, and that it needs no network."""

from __future__ import annotations

import dataclasses
import gzip
import json
import pathlib
import sys
from unittest import mock

import jax
import jsonschema
import pytest

from commands import CLUSTER
from commands import ROOT
from commands import run
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import recorder
from lagom_xla.passes import hlo
from lagom_xla.profiling import profile as profile_lib
from lagom_xla.report.page import contents
from lagom_xla.report.page import rendering
from lagom_xla.report.page import report
from pages import NUM_KERNELS
from pages import Page
from pages import Tuned
from pages import draw_long_step
import simulated_run
import xspace_text


@pytest.fixture(scope="module")
def tuned(tuned_page: Tuned) -> Tuned:
  return tuned_page


def test_the_verdict_comes_first_and_has_the_times_of_the_timelines(
  tuned: Tuned,
) -> None:
  page = tuned.parsed
  assert next(iter(page.text)) == "" and list(page.text)[1] == "verdict"
  predicted = tuned.report["predicted"]
  before_us, after_us, gain_us, bound_us = page.times_us
  assert before_us == predicted["before"]["step_time_us"]
  assert after_us == predicted["after"]["step_time_us"]
  assert gain_us == pytest.approx(before_us - after_us)
  assert bound_us == predicted["lower_bound_us"]
  assert "(predicted;" in page.text["verdict"]
  assert f"{before_us / 1e3:.2f} ms" in page.text["verdict"]


def test_the_sections_tell_the_whole_plan(tuned: Tuned) -> None:
  text = tuned.parsed.text
  plan = tuned.report["plan"]
  for name, value in plan["xla"]["options"].items():
    assert name in text["settings"] and str(value).lower() in text["settings"]
  assert plan["xla"]["options"]
  default_ms = plan["prediction"]["default_us"] / 1e3
  assert f"together The step: {default_ms:.2f} -> " in text["settings"]
  assert text["settings"].count("nstead of") >= len(plan["nccl_settings"])
  assert f"source {tuned.folder}/env.sh" in text["apply"]
  assert text["tried"].count("kept") == 1
  assert "not faster" in text["tried"]
  for collective in tuned.report["predicted"]["before"][
    "exposed_us_by_collective"
  ]:
    assert collective in text["overlaps"]
  assert "steps.py:" in text["overlaps"]


def test_pictures_are_as_long_as_their_timelines(tuned: Tuned) -> None:
  pictures = json.loads(tuned.parsed.scripts["pictures"])
  assert [picture["name"] for picture in pictures] == ["before", "after"]
  for picture in pictures:
    replayed = tuned.report["predicted"][picture["name"]]
    compute = picture["streams"][0]
    drawn_us = sum(
      end - begin
      for begin, end in zip(compute["begin_us"], compute["end_us"], strict=True)
    )
    num = len(compute["begin_us"])
    assert drawn_us == pytest.approx(replayed["step_time_us"], abs=num * 1e-3)
    waits_us = sum(compute["wait_us"])
    assert waits_us == pytest.approx(replayed["exposed_us"], abs=num * 1e-3)
    lost_us = sum(us for pairs in compute["beside"] for _, us in pairs)
    assert lost_us == pytest.approx(replayed["slowdown_us"], abs=num * 1e-3)


def test_the_figure_of_parts_adds_up_to_the_steps(tuned: Tuned) -> None:
  figure = json.loads(tuned.parsed.scripts["parts-data"])
  sums_ms = [0.0, 0.0]
  for trace in figure["data"]:
    assert trace["y"] == ["before", "after"]
    sums_ms = [total + x for total, x in zip(sums_ms, trace["x"], strict=True)]
  assert [1e3 * ms for ms in sums_ms] == pytest.approx(
    [tuned.report["predicted"][n]["step_time_us"] for n in ("before", "after")]
  )


def test_a_page_names_no_address_of_the_network(tuned: Tuned) -> None:
  assert tuned.parsed.addresses == ["data:,"]
  assert "default-src 'none'" in tuned.page.read_text()


def test_a_plans_page_is_made_again_without_compiling(
  tuned: Tuned, tmp_path: pathlib.Path
) -> None:
  again = tmp_path / "again.html"
  with mock.patch.object(jax, "jit", side_effect=AssertionError):
    outcome = run("report", str(tuned.folder), f"--out={again}")
  assert (outcome.status, outcome.err) == (0, "")
  assert outcome.out == f"Wrote {again}\n"
  assert again.read_text() == tuned.page.read_text()


def test_a_report_as_json_is_its_page_and_follows_its_published_schema(
  tuned: Tuned,
) -> None:
  printed = json.loads(run("report", str(tuned.folder), "--format=json").out)
  assert printed["pictures"] == json.loads(tuned.parsed.scripts["pictures"])
  schema = json.loads(run("schema", "report").out)
  jsonschema.Draft202012Validator(schema).validate(printed)
  printed["verdict"] = ""
  with pytest.raises(jsonschema.ValidationError):
    jsonschema.Draft202012Validator(schema).validate(printed)


def test_the_docs_have_the_tables_of_a_report() -> None:
  command = "lagom-xla schema report --format=markdown"
  text = (ROOT / "docs/report.md").read_text(encoding="utf-8")
  _, _, rest = text.partition(f"<!-- {command} -->\n\n")
  tables, _, _ = rest.partition(f"\n<!-- end of {command} -->\n")
  assert tables == run("schema", "report", "--format=markdown").out


def test_a_plan_with_a_report_can_be_replaced(tuned: Tuned) -> None:
  from lagom_xla.apply import files

  assert (tuned.folder / report.NAME).is_file()
  files.check(tuned.folder)


def test_a_traces_processes_are_before_and_after(tuned: Tuned) -> None:
  events = json.loads(gzip.decompress(tuned.trace.read_bytes()))["traceEvents"]
  names = [e["args"]["name"] for e in events if e["name"] == "process_name"]
  assert names == ["before (predicted)", "after (predicted)"]


@pytest.mark.parametrize(
  ("data", "message"),
  [
    pytest.param(None, "No such file", id="absent"),
    pytest.param(b"nothing", "is damaged", id="damaged"),
    pytest.param(
      gzip.compress(b"{}"), "is not a report of format version", id="empty"
    ),
    pytest.param(
      gzip.compress(b'{"format_version": 1}'),
      "is not a usable report",
      id="incomplete",
    ),
  ],
)
def test_a_folder_without_a_report_is_refused_in_a_sentence(
  data: bytes | None, message: str, tmp_path: pathlib.Path
) -> None:
  if data is not None:
    (tmp_path / report.NAME).write_bytes(data)
  outcome = run("report", str(tmp_path))
  assert outcome.status == 2
  assert message in outcome.err and "Make the plan again" in outcome.err


def test_what_draws_pages_is_named_before_any_work_where_it_is_missing(
  tmp_path: pathlib.Path,
) -> None:
  with mock.patch.dict(sys.modules, {"plotly": None}):
    outcome = run("inspect", "missing.hlo", CLUSTER, f"--report={tmp_path}/r")
  assert outcome.status == 2
  assert "pip install 'lagom_xla[report]'" in outcome.err


@pytest.mark.parametrize(
  ("name", "reason"),
  [
    (".", "it is a folder"),
    ("/proc/page", "No such file or directory"),
    ("/proc/no/page", "there is no folder /proc/no"),
  ],
)
@pytest.mark.parametrize("option", ["--report", "--trace"])
def test_a_page_that_cannot_be_written_is_refused_before_any_work(
  option: str, name: str, reason: str
) -> None:
  outcome = run("inspect", "missing.hlo", CLUSTER, f"{option}={name}")
  assert outcome.status == 2
  assert outcome.err == f"lagom-xla: {name} cannot be written: {reason}.\n"


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


@pytest.fixture(scope="module")
def inspected(fsdp_scan: hlo.Module) -> step_lib.Step:
  return step_lib.of_module(fsdp_scan, cluster_lib.parse("2x8xh100"))


def test_a_step_of_very_many_slices_is_drawn_small_and_loses_nothing() -> None:
  long_step = draw_long_step()
  (compute,) = long_step.streams
  assert len(compute.begin_us) < 20_000
  lost_us = sum(us for pairs in compute.beside for _, us in pairs)
  assert lost_us == pytest.approx(NUM_KERNELS, rel=1e-6)
  alone_us = long_step.step_us - NUM_KERNELS
  assert sum(compute.lone_us) == pytest.approx(alone_us, rel=1e-6)
  spans = zip(compute.begin_us, compute.end_us, strict=True)
  drawn_us = sum(end - begin for begin, end in spans)
  assert drawn_us == pytest.approx(long_step.step_us)


def test_text_of_a_module_cannot_end_the_page(
  inspected: step_lib.Step,
) -> None:
  pytest.importorskip("plotly")
  data = dataclasses.replace(
    contents.of_inspection(inspected), module_name="</script><b>step</b>"
  )
  picture = data.pictures[0]
  label = dataclasses.replace(picture.labels[0], name="</script><i>")
  picture = dataclasses.replace(picture, labels=(label, *picture.labels[1:]))
  data = dataclasses.replace(data, pictures=(picture,))
  page = Page(rendering.render(data))
  (drawn,) = json.loads(page.scripts["pictures"])
  assert drawn["labels"][0]["name"] == "</script><i>"
  assert "</script><b>step</b> on" in page.text["verdict"]


def test_a_loop_is_drawn_trip_by_trip_until_trips_are_alike(
  inspected: step_lib.Step,
) -> None:
  recorded = recorder.record(
    inspected.program, inspected.costs(inspected.default)
  )
  replayed = inspected.timeline(inspected.default)
  drawn = contents.picture("before", recorded, replayed, {})
  compute = drawn.streams[0]
  assert "folded" in compute.kind
  assert drawn.detail_us is not None
  begin_us, end_us = drawn.detail_us
  folds = [i for i, kind in enumerate(compute.kind) if kind == "folded"]
  (fold,) = [i for i in folds if compute.begin_us[i] == round(end_us, 3)]
  trip_us = (compute.end_us[fold] - compute.begin_us[fold]) / compute.num[fold]
  assert end_us - begin_us == pytest.approx(trip_us, abs=1e-3)

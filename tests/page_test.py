# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The report page: what it says and draws, and that it needs no network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import gzip
from html import parser
import json
import pathlib
import sys
from typing import Any
from unittest import mock

import jax
import jsonschema
import pytest

import browser
from commands import CLUSTER
from commands import ROOT
from commands import run
from commands import write_steps
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.costs.replay import recorder
from lagom_xla.costs.replay import recording
from lagom_xla.costs.replay import timeline
from lagom_xla.passes import hlo
from lagom_xla.profiling import profile as profile_lib
from lagom_xla.report.page import drawing
from lagom_xla.report.page import kept
from lagom_xla.report.page import rendering
from lagom_xla.report.page import story as story_lib
from lagom_xla.report.page import telling
import simulated_run
import xspace_text

_NUM_KERNELS = 60_000


class _Page(parser.HTMLParser):
  """Text by the id of the section around it, scripts, and addresses."""

  def __init__(self, html: str):
    super().__init__()
    self.text: dict[str, str] = {}
    self.scripts: dict[str, str] = {}
    self.addresses: list[str] = []
    self.times_us: list[float] = []
    self._section = self._script = ""
    self.feed(html)

  def handle_starttag(
    self, tag: str, attrs: list[tuple[str, str | None]]
  ) -> None:
    given = dict(attrs)
    self.addresses += [v for n, v in attrs if n in ("src", "href") and v]
    if tag in ("header", "section"):
      self._section = given.get("id") or ""
    if tag == "script":
      self._script = given.get("id") or "code"
    if "data-us" in given:
      self.times_us.append(float(given["data-us"] or "nan"))

  def handle_endtag(self, tag: str) -> None:
    if tag == "script":
      self._script = ""

  def handle_data(self, data: str) -> None:
    if self._script:
      self.scripts[self._script] = self.scripts.get(self._script, "") + data
    else:
      words = self.text.get(self._section, "") + data
      self.text[self._section] = " ".join(words.split()) + " "


@dataclasses.dataclass(frozen=True)
class _Tuned:
  report: Mapping[str, Any]
  folder: pathlib.Path
  page: pathlib.Path
  trace: pathlib.Path

  @property
  def parsed(self) -> _Page:
    return _Page(self.page.read_text())


@pytest.fixture(scope="module")
def tuned(
  h100s: Sequence[jax.Device], tmp_path_factory: pytest.TempPathFactory
) -> _Tuned:
  """With the cost model taken to be right, so that a small step has a plan."""
  pytest.importorskip("plotly")
  place = tmp_path_factory.mktemp("page")
  step = write_steps(place)
  folder, page, trace = (place / n for n in ("plan", "r.html", "t.json.gz"))
  with mock.patch.object(uncertainty, "scenarios", return_value=()):
    outcome = run(
      *("tune", step, CLUSTER, "--format=json", f"--out={folder}"),
      *(f"--report={page}", f"--trace={trace}"),
    )
  assert outcome.status == 0, outcome.err
  return _Tuned(json.loads(outcome.out), folder, page, trace)


@pytest.fixture(scope="module")
def inspected(fsdp_scan: hlo.Module) -> step_lib.Step:
  return step_lib.of_module(fsdp_scan, cluster_lib.parse("2x8xh100"))


def test_the_verdict_comes_first_and_has_the_times_of_the_timelines(
  tuned: _Tuned,
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


def test_the_sections_tell_the_whole_plan(tuned: _Tuned) -> None:
  text = tuned.parsed.text
  plan = tuned.report["plan"]
  for name, value in plan["xla"]["options"].items():
    assert name in text["settings"] and str(value).lower() in text["settings"]
  assert plan["xla"]["options"]
  default_ms = plan["prediction"]["default_us"] / 1e3
  assert f"with them and {default_ms:.2f} ms without" in text["settings"]
  assert text["settings"].count("nstead of") >= len(plan["nccl_settings"])
  assert f"source {tuned.folder}/env.sh" in text["apply"]
  assert text["tried"].count("kept") == 1
  assert "not faster" in text["tried"]
  for collective in tuned.report["predicted"]["before"][
    "exposed_us_by_collective"
  ]:
    assert collective in text["overlaps"]
  assert "steps.py:" in text["overlaps"]


def test_pictures_are_as_long_as_their_timelines(tuned: _Tuned) -> None:
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


def test_the_figure_of_parts_adds_up_to_the_steps(tuned: _Tuned) -> None:
  figure = json.loads(tuned.parsed.scripts["parts-data"])
  sums_ms = [0.0, 0.0]
  for trace in figure["data"]:
    assert trace["y"] == ["before", "after"]
    sums_ms = [total + x for total, x in zip(sums_ms, trace["x"], strict=True)]
  assert [1e3 * ms for ms in sums_ms] == pytest.approx(
    [tuned.report["predicted"][n]["step_time_us"] for n in ("before", "after")]
  )


def test_a_page_names_no_address_of_the_network(tuned: _Tuned) -> None:
  assert tuned.parsed.addresses == ["data:,"]
  assert "default-src 'none'" in tuned.page.read_text()


def test_a_plans_page_is_made_again_without_compiling(
  tuned: _Tuned, tmp_path: pathlib.Path
) -> None:
  again = tmp_path / "again.html"
  with mock.patch.object(jax, "jit", side_effect=AssertionError):
    outcome = run("report", str(tuned.folder), f"--out={again}")
  assert (outcome.status, outcome.err) == (0, "")
  assert outcome.out == f"Wrote {again}\n"
  assert again.read_text() == tuned.page.read_text()


def test_a_report_as_json_is_what_its_page_is_made_of(tuned: _Tuned) -> None:
  outcome = run("report", str(tuned.folder), "--format=json")
  story = json.loads(outcome.out)
  assert story["pictures"] == json.loads(tuned.parsed.scripts["pictures"])


def test_a_report_as_json_follows_its_published_schema(tuned: _Tuned) -> None:
  schema = json.loads(run("schema", "report").out)
  story = json.loads(run("report", str(tuned.folder), "--format=json").out)
  jsonschema.Draft202012Validator(schema).validate(story)
  story["verdict"] = ""
  with pytest.raises(jsonschema.ValidationError):
    jsonschema.Draft202012Validator(schema).validate(story)


def test_the_docs_have_the_tables_of_a_report() -> None:
  command = "lagom-xla schema report --format=markdown"
  text = (ROOT / "docs/report.md").read_text(encoding="utf-8")
  _, _, rest = text.partition(f"<!-- {command} -->\n\n")
  tables, _, _ = rest.partition(f"\n<!-- end of {command} -->\n")
  assert tables == run("schema", "report", "--format=markdown").out


def test_a_plan_with_a_report_can_be_replaced(tuned: _Tuned) -> None:
  from lagom_xla.apply import files

  assert (tuned.folder / kept.NAME).is_file()
  files.check(tuned.folder)


def test_a_traces_processes_are_before_and_after(tuned: _Tuned) -> None:
  events = json.loads(gzip.decompress(tuned.trace.read_bytes()))["traceEvents"]
  names = [e["args"]["name"] for e in events if e["name"] == "process_name"]
  assert names == ["before (predicted)", "after (predicted)"]


@pytest.mark.parametrize(
  ("data", "message"),
  [
    (None, "No such file"),
    (b"nothing", "is damaged"),
    (gzip.compress(b"{}"), "is not a report of format version"),
    (gzip.compress(b'{"format_version": 1}'), "is not a usable report"),
  ],
)
def test_a_folder_without_a_report_is_refused_in_a_sentence(
  data: bytes | None, message: str, tmp_path: pathlib.Path
) -> None:
  if data is not None:
    (tmp_path / kept.NAME).write_bytes(data)
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


def test_a_page_in_a_folder_that_is_not_there_is_refused_before_any_work(
  tmp_path: pathlib.Path,
) -> None:
  outcome = run("inspect", "missing.hlo", CLUSTER, f"--trace={tmp_path}/a/t")
  assert outcome.status == 2
  assert "there is no folder" in outcome.err


def _long_step() -> story_lib.Picture:
  """A step of 60,000 kernels, as a module of 170,000 instructions has them."""
  slices, now_us = [], 0.0
  for index in range(_NUM_KERNELS):
    time_us = 5.0 if index % 7 else 300.0
    slices.append(
      recording.Slice(
        stream=recording.COMPUTE,
        kind="kernel",
        name=f"loop_multiply_convert_fusion.{index}",
        begin_us=now_us,
        end_us=now_us + time_us,
        lone_us=time_us - 1.0,
        lost_us=(("all-gather-start.1", 1.0),),
      )
    )
    now_us += time_us
  recorded = recording.Recording(step_time_us=now_us, slices=tuple(slices))
  replayed = timeline.Timeline(
    step_time_us=now_us,
    kernel_us=now_us - _NUM_KERNELS,
    collective_us=0.0,
    exposed_us={},
    slowdown_us={},
  )
  return drawing.picture("before", recorded, replayed, {})


@pytest.fixture(scope="module")
def long_step() -> story_lib.Picture:
  return _long_step()


def test_a_step_of_very_many_slices_is_drawn_small_and_loses_nothing(
  long_step: story_lib.Picture,
) -> None:
  (compute,) = long_step.streams
  assert len(compute.begin_us) < 20_000
  lost_us = sum(us for pairs in compute.beside for _, us in pairs)
  assert lost_us == pytest.approx(_NUM_KERNELS, rel=1e-6)
  alone_us = long_step.step_us - _NUM_KERNELS
  assert sum(compute.lone_us) == pytest.approx(alone_us, rel=1e-6)
  spans = zip(compute.begin_us, compute.end_us, strict=True)
  drawn_us = sum(end - begin for begin, end in spans)
  assert drawn_us == pytest.approx(long_step.step_us)


def test_text_of_a_module_cannot_end_the_page(
  inspected: step_lib.Step,
) -> None:
  pytest.importorskip("plotly")
  story = dataclasses.replace(
    telling.of_inspection(inspected), module_name="</script><b>step</b>"
  )
  picture = story.pictures[0]
  label = dataclasses.replace(picture.labels[0], name="</script><i>")
  picture = dataclasses.replace(picture, labels=(label, *picture.labels[1:]))
  story = dataclasses.replace(story, pictures=(picture,))
  page = _Page(rendering.render(story))
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
  drawn = drawing.picture("before", recorded, replayed, {})
  compute = drawn.streams[0]
  assert "folded" in compute.kind
  assert drawn.detail_us is not None
  begin_us, end_us = drawn.detail_us
  folds = [i for i, kind in enumerate(compute.kind) if kind == "folded"]
  (fold,) = [i for i in folds if compute.begin_us[i] == round(end_us, 3)]
  trip_us = (compute.end_us[fold] - compute.begin_us[fold]) / compute.num[fold]
  assert end_us - begin_us == pytest.approx(trip_us, abs=1e-3)


@pytest.fixture(scope="module")
def chromium(
  tuned: _Tuned, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[browser.Browser]:
  if browser.PROGRAM is None:
    pytest.skip("Chromium is not installed: no page is opened")
  profile = tmp_path_factory.mktemp("chromium")
  with browser.Browser(profile) as opened:
    opened.open(tuned.page)
    yield opened


def test_a_browser_opens_the_page_without_errors_or_requests(
  chromium: browser.Browser, tuned: _Tuned
) -> None:
  assert chromium.errors == []
  assert chromium.requests == [tuned.page.resolve().as_uri()]
  assert chromium.evaluate("document.querySelectorAll('.bars path').length") > 9


def test_hovering_tells_what_a_slice_is(
  chromium: browser.Browser, tuned: _Tuned
) -> None:
  longest = """(() => {
    const bars = [...document.querySelectorAll('#whole .bars path')];
    const area = e => e.getBoundingClientRect().width;
    const bar = bars.reduce((a, b) => area(a) >= area(b) ? a : b);
    bar.scrollIntoView({block: 'center'});
    const place = bar.getBoundingClientRect();
    return [place.x + place.width / 2, place.y + place.height / 2];
  })()"""
  x, y = chromium.evaluate(longest)
  chromium.hover(x, y)
  hovered = "document.querySelector('#whole .hoverlayer .hovertext')"
  assert chromium.until(f"{hovered} !== null")
  text = chromium.evaluate(f"{hovered}.textContent")
  names = [
    label["name"]
    for picture in json.loads(tuned.parsed.scripts["pictures"])
    for label in picture["labels"]
  ]
  assert any(name in text for name in names), text
  assert " ms" in text


def test_zooming_in_draws_apart_what_was_drawn_together(
  chromium: browser.Browser,
) -> None:
  def of_range() -> float:
    begin, end = chromium.evaluate(
      "document.getElementById('whole').layout.xaxis.range"
    )
    return end - begin

  whole = of_range()
  button = "document.querySelector('[data-for=whole] button:nth-child({}))')"
  button = "document.querySelector('[data-for=whole] button:nth-child(%d)')"
  chromium.evaluate(f"({button % 1}.click(), 1)")
  assert of_range() == pytest.approx(whole / 3)
  chromium.evaluate(f"({button % 5}.click(), 1)")
  assert of_range() == pytest.approx(whole)


@pytest.mark.parametrize("is_dark", [False, True])
def test_a_phone_shows_the_page_without_scrolling_sideways(
  chromium: browser.Browser, is_dark: bool
) -> None:
  chromium.emulate(width=390, is_dark=is_dark)
  try:
    width = "document.documentElement.scrollWidth"
    assert chromium.until(f"{width} === 390"), chromium.evaluate(width)
    color = "getComputedStyle(document.body).{}"
    ground = chromium.evaluate(color.format("backgroundColor"))
    text = chromium.evaluate(color.format("color"))
    assert (_brightness(ground) < _brightness(text)) == is_dark
    label = "document.querySelector('#whole .xtick text')"
    ink = chromium.evaluate(f"getComputedStyle({label}).fill")
    assert (_brightness(ground) < _brightness(ink)) == is_dark
    assert chromium.errors == []
  finally:
    chromium.emulate(width=1200)


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
  (folder / "trace").mkdir()
  file = folder / "trace/host.xplane.pb"
  file.write_bytes(xspace_text.serialized(process))
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
  page = _Page((profiled / "r.html").read_text())
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


def test_a_long_steps_page_is_small_and_opens_quickly(
  chromium: browser.Browser,
  tuned: _Tuned,
  long_step: story_lib.Picture,
  tmp_path: pathlib.Path,
) -> None:
  after = dataclasses.replace(long_step, name="after")
  story = kept.read(tuned.folder)
  story = dataclasses.replace(story, pictures=(long_step, after))
  page = tmp_path / "long.html"
  rendering.write(story, page)
  assert page.stat().st_size < 10e6
  # Of the processor, which is what a busy machine does not change much.
  chromium.send("Performance.enable", timeDomain="threadTicks")
  chromium.open(page)
  assert (
    chromium.evaluate("document.querySelectorAll('.bars path').length") > 99
  )
  (task_s,) = (
    metric["value"]
    for metric in chromium.send("Performance.getMetrics")["metrics"]
    if metric["name"] == "TaskDuration"
  )
  assert chromium.errors == []
  assert task_s < 3


def _brightness(color: str) -> int:
  """Of "rgb(1, 2, 3)"."""
  return sum(int(part) for part in color[4:-1].split(","))

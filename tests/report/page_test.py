# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The report page: its text and drawings, and that it needs no network."""

from __future__ import annotations

import dataclasses
import gzip
import html
import json
import pathlib
import re
import shlex
import sys
from typing import Any
from unittest import mock

import jax
import jsonschema
import pytest

import browser
from commands import CLUSTER
from commands import bash
from commands import run
from commands import write_hlo
from lagom_xla import cluster as cluster_lib
from lagom_xla.apply import files
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import recorder
from lagom_xla.costs.replay import timeline
from lagom_xla.passes import hlo
from lagom_xla.profiling import profile as profile_lib
from lagom_xla.report.page import contents
from lagom_xla.report.page import report
from pages import Page
from pages import Tuned
import simulated_run
import xspace_text

# As many as in a module of 170,000 instructions.
_NUM_KERNELS = 60_000


def _processes(trace: pathlib.Path) -> list[str]:
  """The names of a trace's processes."""
  data = trace.read_bytes()
  if trace.suffix == ".gz":
    data = gzip.decompress(data)
  events = json.loads(data)["traceEvents"]
  return [e["args"]["name"] for e in events if e["name"] == "process_name"]


def test_the_page_begins_with_the_verdict_and_its_predicted_times(
  tuned_page: Tuned,
) -> None:
  page = tuned_page.parsed
  assert list(page.text)[:2] == ["", "verdict"]
  # The page needs no network.
  assert page.addresses == ["data:,"]
  assert "default-src 'none'" in tuned_page.page.read_text()
  predicted = tuned_page.report["predicted"]
  before_us, after_us, gain_us, bound_us = page.times_us
  assert before_us == predicted["before"]["step_time_us"]
  assert after_us == predicted["after"]["step_time_us"]
  assert gain_us == pytest.approx(before_us - after_us)
  assert bound_us == predicted["lower_bound_us"]
  assert "(predicted): the plan makes the step" in page.text["verdict"]
  assert f"{before_us / 1e3:.2f} ms" in page.text["verdict"]


def test_the_page_has_all_settings_candidates_and_overlaps(
  tuned_page: Tuned,
) -> None:
  text, tuning = tuned_page.parsed.text, tuned_page.report
  plan = tuning["plan"]
  assert plan["xla"]["options"]
  for name, value in plan["xla"]["options"].items():
    assert name in text["settings"] and str(value).lower() in text["settings"]
  default_ms = plan["prediction"]["default_us"] / 1e3
  assert f"together The step: {default_ms:.2f} -> " in text["settings"]
  assert text["settings"].count("nstead of") >= len(plan["nccl_settings"])
  assert f"source {tuned_page.folder}/env.sh" in text["verdict"]
  assert text["tried"].count("kept") == 1
  assert "not faster" in text["tried"]
  # A recipe of XLA options has its name.
  names = [arm["name"] for arm in tuning["arms"][1:]]
  assert names and all(name in text["tried"] for name in names)
  exposed = tuning["predicted"]["before"]["exposed_us_by_collective"]
  assert all(name in text["overlaps"] for name in exposed)
  assert "steps.py:" in text["overlaps"]


def test_drawn_slices_add_up_to_the_predicted_timelines(
  tuned_page: Tuned,
) -> None:
  pictures = json.loads(tuned_page.parsed.scripts["drawn"])
  assert [picture["name"] for picture in pictures] == ["before", "after"]
  parts = ("kernel_us", "slowdown_us", "wait_us")
  for picture in pictures:
    replayed = tuned_page.report["predicted"][picture["name"]]
    compute = picture["streams"][0]
    spans = zip(compute["begin_us"], compute["end_us"], strict=True)
    lost = (us for pairs in compute["beside"] for _, us in pairs)
    for drawn_us, us in (
      (sum(end - begin for begin, end in spans), replayed["step_time_us"]),
      (sum(compute["wait_us"]), replayed["exposed_us"]),
      (sum(lost), replayed["slowdown_us"]),
      (sum(picture[part] for part in parts), replayed["step_time_us"]),
    ):
      rounding_us = len(compute["begin_us"]) * 1e-3
      assert drawn_us == pytest.approx(us, abs=rounding_us)


def test_the_page_of_a_plan_is_recreated_without_compiling(
  tuned_page: Tuned, tmp_path: pathlib.Path
) -> None:
  again = tmp_path / "again.html"
  with mock.patch.object(jax, "jit", side_effect=AssertionError):
    outcome = run("report", str(tuned_page.folder), f"--out={again}")
  assert (outcome.status, outcome.err) == (0, "")
  assert outcome.out == f"Wrote {again}\n"
  assert again.read_text() == tuned_page.page.read_text()
  names = ["before (predicted)", "after (predicted)"]
  assert _processes(tuned_page.trace) == names
  # The plan's folder can still be replaced.
  assert (tuned_page.folder / report.NAME).is_file()
  files.check(tuned_page.folder)


def test_json_of_a_report_equals_its_page_and_follows_the_schema(
  tuned_page: Tuned,
) -> None:
  out = run("report", str(tuned_page.folder), "--format=json").out
  printed = json.loads(out)
  pictures = tuned_page.parsed.scripts["drawn"]
  assert printed["pictures"] == json.loads(pictures)
  schema = json.loads(run("schema", "report").out)
  jsonschema.Draft202012Validator(schema).validate(printed)
  printed["verdict"] = ""
  with pytest.raises(jsonschema.ValidationError):
    jsonschema.Draft202012Validator(schema).validate(printed)


def test_missing_plotly_is_reported_before_any_work(
  tmp_path: pathlib.Path,
) -> None:
  with mock.patch.dict(sys.modules, {"plotly": None}):
    outcome = run("inspect", "missing.hlo", CLUSTER, f"--report={tmp_path}/r")
  assert outcome.status == 2
  assert "pip install '.[report]' in a checkout" in outcome.err


@pytest.mark.parametrize(
  ("name", "reason"),
  [
    (".", "it is a folder"),
    ("/proc/page", "No such file or directory"),
    ("/proc/no/page", "the folder /proc/no does not exist"),
  ],
)
@pytest.mark.parametrize("option", ["--report", "--trace"])
def test_an_unwritable_page_or_trace_is_refused_before_any_work(
  option: str, name: str, reason: str
) -> None:
  outcome = run("inspect", "missing.hlo", CLUSTER, f"{option}={name}")
  assert outcome.status == 2
  assert outcome.err == f"lagom-xla: Cannot write {name}: {reason}.\n"


def test_a_page_that_does_not_fit_on_disk_keeps_the_earlier_page(
  tmp_path: pathlib.Path,
) -> None:
  pytest.importorskip("plotly")
  write_hlo(tmp_path)
  (tmp_path / "page.html").write_text("before")
  files = sorted(tmp_path.iterdir())
  said = bash(
    tmp_path,
    f"ulimit -f 2000; $LAGOM inspect step.hlo {CLUSTER} --quiet"
    " --report=page.html 2>&1 >/dev/null; echo $?",
  )
  assert re.fullmatch(r"lagom-xla: .*page\.html.*: File too large\.\n2\n", said)
  assert (tmp_path / "page.html").read_text() == "before"
  assert sorted(tmp_path.iterdir()) == files


def test_measured_steps_of_a_profile_are_on_the_page_and_in_the_trace(
  fsdp_scan: hlo.Module, tmp_path: pathlib.Path
) -> None:
  pytest.importorskip("plotly")
  module, profile = tmp_path / "step.hlo.pb", tmp_path / "profile"
  page, trace = tmp_path / "r.html", tmp_path / "t.json"
  module.write_bytes(fsdp_scan.proto.SerializeToString())
  ran = simulated_run.Run(
    module=fsdp_scan, lone_us=lambda _: 20.0, own_us=lambda _: 50.0
  )
  process = xspace_text.Process(devices=ran.steps(3), module=fsdp_scan)
  xspace_text.write(profile, process)
  outcome = run(
    *("inspect", str(module), CLUSTER, f"--profile={profile}"),
    *(f"--report={page}", f"--trace={trace}"),
  )
  assert outcome.status == 0, outcome.err
  assert outcome.out.endswith(f"\nWrote {page}\nWrote {trace}\n")
  verdict = Page(page.read_text()).text["verdict"]
  measured_ms = profile_lib.read(profile).step_time_us / 1e3
  assert "(predicted from measured costs)" in verdict
  assert f"measured {measured_ms:.2f} ms" in verdict
  predicted, *gpus = _processes(trace)
  assert predicted == "step (predicted from measured costs)"
  devices = ["measured: host GPU:0", "measured: host GPU:1"]
  assert [name.split(",")[0] for name in gpus] == devices
  # The profile command writes the same.
  outcome = run("profile", str(profile), f"--trace={trace}")
  assert (outcome.status, outcome.err) == (0, "")
  assert outcome.out.endswith(f"\nWrote {trace}\n")
  assert _processes(trace) == gpus


def test_many_slices_are_merged_when_drawn_without_losing_time() -> None:
  slices, now_us = [], 0.0
  for index in range(_NUM_KERNELS):
    end_us = now_us + (300.0 if index % 7 == 0 else 5.0)
    slices.append(
      recorder.Slice(
        stream=recorder.COMPUTE,
        kind="kernel",
        name=f"loop_multiply_convert_fusion.{index}",
        begin_us=now_us,
        end_us=end_us,
        lone_us=end_us - now_us - 1.0,
        lost_us=(("all-gather-start.1", 1.0),),
      )
    )
    now_us = end_us
  recorded = recorder.Recording(step_time_us=now_us, slices=tuple(slices))
  replayed = timeline.Timeline(
    step_time_us=now_us,
    kernel_us=now_us - _NUM_KERNELS,
    collective_us=0.0,
    exposed_us={},
    slowdown_us={},
  )
  long_step = contents.picture("before", recorded, replayed, {})
  (compute,) = long_step.streams
  assert len(compute.begin_us) < 20_000
  lost_us = sum(us for pairs in compute.beside for _, us in pairs)
  assert lost_us == pytest.approx(_NUM_KERNELS, rel=1e-6)
  alone_us = long_step.step_us - _NUM_KERNELS
  assert sum(compute.lone_us) == pytest.approx(alone_us, rel=1e-6)
  spans = zip(compute.begin_us, compute.end_us, strict=True)
  drawn_us = sum(end - begin for begin, end in spans)
  assert drawn_us == pytest.approx(long_step.step_us)


def test_a_single_folded_trip_is_drawn_like_the_trip_before_it() -> None:
  def slices(
    kind: str, begin_us: float, end_us: float, stream: str = recorder.COMPUTE
  ) -> recorder.Slice:
    num_trips = kind == "folded"
    return recorder.Slice(
      stream=stream,
      kind=kind,
      name="" if num_trips else kind,
      begin_us=begin_us,
      end_us=end_us,
      num_trips=num_trips,
    )

  # A trip of 10 us; a collective from before extends into it.
  recorded = recorder.Recording(
    step_time_us=25.0,
    slices=(
      slices("collective", 3.0, 8.0, recorder.COMMUNICATION),
      slices("kernel", 0.0, 5.0),
      slices("wait", 5.0, 8.0),
      slices("kernel", 8.0, 15.0),
      slices("folded", 15.0, 25.0, recorder.COMMUNICATION),
      slices("folded", 15.0, 25.0),
    ),
  )
  replayed = timeline.Timeline(
    step_time_us=25.0,
    kernel_us=22.0,
    collective_us=5.0,
    exposed_us={},
    slowdown_us={},
  )
  drawn = contents.picture("before", recorded, replayed, {})
  compute, communication = drawn.streams
  assert compute.kind == ("kernel", "wait", "kernel", "wait", "kernel")
  assert compute.begin_us == (0.0, 5.0, 8.0, 15.0, 18.0)
  assert communication.begin_us == (3.0, 15.0)
  assert communication.end_us == (8.0, 18.0)
  assert drawn.detail_us is None


@pytest.fixture(scope="module")
def inspected(fsdp_scan: hlo.Module) -> report.Report:
  step = step_lib.of_module(fsdp_scan, cluster_lib.parse("2x8xh100"))
  return contents.of_inspection(step)


def _page(data: report.Report, **changes: Any) -> Page:
  pytest.importorskip("plotly")
  return Page(report.html(dataclasses.replace(data, **changes)))


def test_all_commands_of_a_plan_precede_the_notes(
  inspected: report.Report,
) -> None:
  setting = report.Setting(name="program", value="strands", sentence="Alone.")
  texts = ("source plan/env.sh", "step = lagom_xla.tune(plan='plan')(step)")
  page = _page(
    inspected,
    after=inspected.before,
    gain=inspected.before,
    settings=(setting,),
    commands=tuple(report.Command(words="Run:", text=text) for text in texts),
    notes=("A note.",),
  )
  told = page.text["verdict"]
  places = [told.index(text) for text in ("Next:", *texts, "A note.")]
  assert places == sorted(places)


@pytest.mark.parametrize(
  ("note", "html"),
  [
    (
      "It is `a < b`, with --flag=X,Y.",
      "It is <code>a &lt; b</code>, with <code>--flag=X,Y</code>.",
    ),
    (
      "It runs --a=1 --b=, c=2.",
      'It runs <span class="line"><code>--a=1</code></span>'
      '<span class="line"><code>--b=</code>,</span> c=2.',
    ),
    ("1 -- or 2 -> <3>", "1 -- or 2 -&gt; &lt;3&gt;"),
  ],
)
def test_flags_in_notes_are_code_and_several_are_listed(
  inspected: report.Report, note: str, html: str
) -> None:
  pytest.importorskip("plotly")
  noted = dataclasses.replace(inspected, notes=(note,))
  assert f'<p class="faint">{html}</p>' in report.html(noted)


def test_the_page_of_a_plan_that_sets_nothing_shows_only_today(
  tmp_path: pathlib.Path,
) -> None:
  pytest.importorskip("plotly")
  write_hlo(tmp_path)
  made = tmp_path / "page.html"
  options = (f"--report={made}", f"--out={tmp_path}/plan")
  outcome = run("tune", str(tmp_path / "step.hlo"), CLUSTER, *options)
  assert outcome.status == 0, outcome.err
  page = Page(made.read_text())
  assert "nothing to set" in page.text["verdict"]
  assert len(page.times_us) == 2
  assert len(json.loads(page.scripts["drawn"])) == 1
  assert "settings" not in page.text
  assert "tried" in page.text


def test_the_next_commands_of_a_page_name_its_target_or_plan(
  tmp_path: pathlib.Path,
) -> None:
  pytest.importorskip("plotly")
  write_hlo(tmp_path)
  made, target = tmp_path / "page.html", str(tmp_path / "step.hlo")
  plan = str(tmp_path / "a plan")
  for words in (("inspect",), ("tune", f"--out={plan}")):
    outcome = run(words[0], target, CLUSTER, *words[1:], f"--report={made}")
    assert outcome.status == 0, outcome.err
    commands = re.findall("<pre>(.*?)</pre>", made.read_text())
    found = [shlex.split(html.unescape(text))[1:] for text in commands]
    assert found == (
      [["explain", plan]]
      if words[0] == "tune"
      else [["explain", target, CLUSTER], ["tune", target, CLUSTER]]
    )
  assert run(*found[0]).status == 0


@pytest.mark.parametrize("tuned_us", [9.0, 8.0])
def test_times_with_nccl_settings_are_shown_where_they_differ(
  inspected: report.Report, tuned_us: float
) -> None:
  tried = tuple(
    report.Tried(name="a", us=9.0, tuned_us=us, verdict="kept")
    for us in (tuned_us, None)
  )
  told = _page(inspected, tried=tried).text["tried"]
  differ = tuned_us != 9.0
  assert ("with NCCL settings" in told) == differ
  assert ("were not searched (-)" in told) == differ


def test_slowdowns_have_the_same_words_in_the_terminal_and_on_the_page(
  fsdp_scan: hlo.Module, inspected: report.Report, tmp_path: pathlib.Path
) -> None:
  module = tmp_path / "step.hlo.pb"
  module.write_bytes(fsdp_scan.proto.SerializeToString())
  outcome = run("inspect", str(module), CLUSTER)
  assert outcome.status == 0, outcome.err
  said = " ".join(outcome.out.split())
  slowed = r"are slowed by [\d.]+ ms beside them"
  assert re.search(slowed, said)
  assert " wait slowed ms per step" in said
  text = _page(inspected).text
  assert re.search(slowed, text["verdict"])
  assert "slowed by" in text["overlaps"]


def test_markup_in_names_of_a_module_is_escaped_on_the_page(
  inspected: report.Report,
) -> None:
  pytest.importorskip("plotly")
  (picture,) = inspected.pictures
  label = dataclasses.replace(picture.labels[0], name="</script><i>")
  picture = dataclasses.replace(picture, labels=(label, *picture.labels[1:]))
  named = dataclasses.replace(
    inspected, module_name="</script><b>step</b>", pictures=(picture,)
  )
  page = Page(report.html(named))
  (drawn,) = json.loads(page.scripts["drawn"])
  assert drawn["labels"][0]["name"] == "</script><i>"
  assert "</script><b>step</b> on" in page.text["verdict"]


def test_the_detailed_trip_of_a_loop_is_as_long_as_folded_trips(
  inspected: report.Report,
) -> None:
  (picture,) = inspected.pictures
  compute = picture.streams[0]
  assert picture.detail_us is not None
  begin_us, end_us = picture.detail_us
  (fold,) = (
    i
    for i, kind in enumerate(compute.kind)
    if kind == "folded" and compute.begin_us[i] == round(end_us, 3)
  )
  trip_us = (compute.end_us[fold] - compute.begin_us[fold]) / compute.num[fold]
  assert end_us - begin_us == pytest.approx(trip_us, abs=1e-3)


@pytest.fixture(scope="module")
def chromium(chromium: browser.Browser, tuned_page: Tuned) -> browser.Browser:
  chromium.open(tuned_page.page)
  return chromium


def test_a_browser_opens_the_page_without_errors_or_requests(
  chromium: browser.Browser, tuned_page: Tuned
) -> None:
  assert chromium.errors == []
  assert chromium.requests == [tuned_page.page.resolve().as_uri()]
  assert chromium.evaluate("document.querySelectorAll('.bars path').length") > 9


def test_hovering_over_a_slice_shows_its_name_and_time(
  chromium: browser.Browser, tuned_page: Tuned
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
    for picture in json.loads(tuned_page.parsed.scripts["drawn"])
    for label in picture["labels"]
  ]
  assert any(name in text for name in names), text
  assert " ms" in text


def test_zoom_buttons_narrow_and_reset_the_drawn_range(
  chromium: browser.Browser,
) -> None:
  def of_range() -> float:
    begin, end = chromium.evaluate(
      "document.getElementById('whole').layout.xaxis.range"
    )
    return end - begin

  whole = of_range()
  button = "document.querySelector('[data-for=whole] button:nth-child(%d)')"
  chromium.evaluate(f"({button % 1}.click(), 1)")
  assert of_range() == pytest.approx(whole / 3)
  chromium.evaluate(f"({button % 5}.click(), 1)")
  assert of_range() == pytest.approx(whole)


@pytest.mark.parametrize("is_dark", [False, True])
def test_a_phone_shows_the_page_without_scrolling_sideways(
  chromium: browser.Browser, is_dark: bool
) -> None:
  with chromium.phone("#whole .xtick text", is_dark=is_dark):
    assert chromium.errors == []


def test_row_labels_are_complete_and_the_detail_is_exactly_one_trip(
  chromium: browser.Browser, inspected: report.Report, tmp_path: pathlib.Path
) -> None:
  (picture,) = inspected.pictures
  streams = (
    *picture.streams[:-1],
    dataclasses.replace(
      picture.streams[-1], name="communication, scale-up and synchronous"
    ),
  )
  picture = dataclasses.replace(picture, streams=streams)
  pictures = [dataclasses.replace(picture, name=n) for n in ("before", "after")]
  page = tmp_path / "page.html"
  report.draw(dataclasses.replace(inspected, pictures=tuple(pictures)), page)
  chromium.open(page)
  assert chromium.errors == []
  lefts = """Array.from(document.querySelectorAll('#whole .ytick text'),
    text => text.getBoundingClientRect().left)"""
  assert min(chromium.evaluate(lefts)) >= 0
  assert picture.detail_us is not None
  begin_us, end_us = picture.detail_us
  ends = """document.getElementById('detail').data.flatMap(
    bars => bars.base.map((from, i) => [from, from + bars.x[i]]))"""
  found = chromium.evaluate(ends)
  assert min(begin for begin, _ in found) == 0
  assert max(end for _, end in found) == pytest.approx(
    (end_us - begin_us) / 1e3
  )

# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A report begins with its verdict, fits 40 lines, and truncates no name."""

from __future__ import annotations

import dataclasses
import io
import pathlib
import re
from typing import Any

import hypothesis
from hypothesis import strategies as st
import jax
import pytest
import rich.console

import arm_steps
from commands import CLUSTER
from commands import HLO
from commands import STEPS
from commands import Outcome
from commands import check_schema
from commands import run
from commands import write_steps
import fake_target
import formed_target
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla import validation
from lagom_xla.cli import output
from lagom_xla.compile import config as config_lib
from lagom_xla.passes.program import form as form_lib
from lagom_xla.report import layout
from lagom_xla.report import notes
from lagom_xla.report import results
from lagom_xla.report import tables
from lagom_xla.report import terminal
from lagom_xla.report.page import contents
from lagom_xla.search.xla import arms as arms_lib
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import joint
from lagom_xla.tuner import tuner
from lagom_xla.tuner import tuning as tuning_lib
from lagom_xla.verify import verification


@st.composite
def _section(draw: st.DrawFn) -> layout.Section:
  items = draw(st.lists(st.lists(st.just("  item"), min_size=1, max_size=4)))
  return layout.Section(
    head=tuple(draw(st.lists(st.just("Head"), max_size=3))),
    items=tuple(map(tuple, items)),
  )


@hypothesis.settings(max_examples=50)
@hypothesis.given(st.lists(_section(), min_size=1, max_size=6))
def test_all_heads_are_shown_and_omitted_items_are_counted(
  sections: list[layout.Section],
) -> None:
  shown = layout.fitted(sections)
  heads = sum(len(section.head) for section in sections)
  assert shown.count("Head") == heads
  least = heads + sum(bool(section.items) for section in sections)
  assert len(shown) <= max(least, layout.NUM_LINES)
  whole = layout.fitted(sections, 10**6)
  assert len(whole) == heads + sum(
    len(item) for section in sections for item in section.items
  )
  if len(whole) <= layout.NUM_LINES:
    assert shown == whole
  else:
    assert any(
      re.fullmatch(r"  and \d+ more \(-v shows them\)", x) for x in shown
    )


@hypothesis.given(st.text(alphabet="ab- ", max_size=400), st.integers(0, 21))
def test_wrapping_loses_no_word_and_keeps_to_80_columns(
  text: str, indent: int
) -> None:
  found = layout.wrapped(text, indent=indent)
  assert all(len(line) <= layout.NUM_COLUMNS for line in found)
  assert "".join("".join(found).split()) == "".join(text.split())


def test_a_command_stays_on_one_line() -> None:
  command = f"`lagom-xla tune 'a b.py:f' --cluster=1x8xh100 --arg={'x' * 40}`"
  found = layout.wrapped(f"{'word ' * 20}{command} tries that.", indent=4)
  assert sum(command in line for line in found) == 1
  others = [line for line in found if command not in line]
  assert all(len(line) <= layout.NUM_COLUMNS for line in others)


def _fits(outcome: Outcome) -> bool:
  lines = outcome.out.splitlines()
  assert outcome.status == 0
  assert "\x1b" not in outcome.out and "…" not in outcome.out
  # Commands are not broken, so that they can be pasted.
  texts = [line for line in lines if not line.startswith("  lagom-xla ")]
  assert max(map(len, texts)) <= layout.NUM_COLUMNS
  return len(lines) <= layout.NUM_LINES


def test_an_inspection_begins_with_the_cost_of_collectives(
  h100s: list[jax.Device], tmp_path: pathlib.Path
) -> None:
  step = write_steps(tmp_path)
  outcome = run("inspect", step, CLUSTER)
  assert _fits(outcome)
  first, *others = outcome.out.splitlines()
  for command in ("explain", "tune"):
    assert any(f"lagom-xla {command} {step} {CLUSTER}" in o for o in others)
  assert re.match(
    r"jit_step on 1x8xh100: collectives( and copies)? cost [\d.]+ ms", first
  )
  assert re.search(r"from steps\.py:\d+", " ".join(outcome.out.split()))
  assert "What runs beside each collective" not in outcome.out
  whole = run("inspect", step, CLUSTER, "-v")
  assert max(map(len, whole.out.splitlines())) <= layout.NUM_COLUMNS
  assert whole.out.startswith(first)
  assert "What runs beside each collective" in whole.out
  assert re.search(r"(?m)^  steps\.py:\d+ *$", whole.out)


def test_a_collective_without_a_source_line_is_named_by_its_array(
  h100s: list[jax.Device], tmp_path: pathlib.Path
) -> None:
  steps: dict[str, Any] = {}
  exec(STEPS, steps)
  lowered = steps["step"].lower(*steps["step_args"](h100s))
  text = re.sub(r", metadata=\{.*?\}", "", lowered.as_text(dialect="hlo"))
  (tmp_path / "step.hlo").write_text(text)
  outcome = run("inspect", str(tmp_path / "step.hlo"), CLUSTER)
  said = " ".join(outcome.out.split())
  assert re.search(r"all-gather-start: parameter w\S* f32\[[\d,]+\]\. \d", said)


def test_a_tuning_without_gains_begins_with_nothing_to_set(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  monkeypatch.chdir(tmp_path)
  pathlib.Path("step.hlo").write_text(HLO)
  outcome = run("tune", "step.hlo", CLUSTER)
  assert _fits(outcome)
  first, *_ = outcome.out.splitlines()
  assert first.startswith(
    "step on 1x8xh100: nothing to set: no other configuration was tried"
  )
  assert "env.sh  on every" not in outcome.out


_H100 = cluster_lib.parse("1x8xh100")
_GATHERED_BYTES = 16 * 2**20
_COLLECTIVE = "all-gather-start.of-the-layers-that-have-experts.12"
_OPTIONS = {
  "xla_gpu_experimental_collective_start_as_early_as_possible": True,
  "xla_gpu_experimental_parallel_collective_overlap_limit": 4,
}


@pytest.fixture(scope="module")
def tuning() -> tuning_lib.Tuning:
  """A tuning that tried two options with long names."""
  start, done = hlo_text.all_gather(_COLLECTIVE, _GATHERED_BYTES)
  kernel = hlo_text.kernel("kernel", 1000.0)
  end = "ROOT result = f32[256,256] copy(kernel)"
  first = "p = f32[256,256] parameter(0)"
  module = hlo_text.load("\n".join([first, start, kernel, done, end]))
  target = fake_target.FakeTarget(
    name="step", cluster=_H100, scheduled=lambda _: module
  )
  tuning = tuner.tune(target)
  config = config_lib.XlaConfig(options=_OPTIONS)
  tried = dataclasses.replace(tuning.search.default, config=config)
  search = tuning.search.with_candidate(tried)
  return dataclasses.replace(tuning, search=search)


@pytest.mark.parametrize("width", [80, 110])
def test_names_of_options_and_collectives_are_not_truncated(
  tuning: tuning_lib.Tuning, width: int
) -> None:
  stream = io.StringIO()
  console = rich.console.Console(file=stream, width=width, markup=False)
  terminal.show_tuning(console, tuning, [], is_verbose=True)
  lines = stream.getvalue().splitlines()
  assert "…" not in stream.getvalue()
  assert max(map(len, lines)) <= width
  # The first column of each table, with folded names put together.
  joined = "".join(line.partition("  ")[0] for line in lines)
  assert _COLLECTIVE in joined
  assert all(name.removeprefix("xla_gpu_") in joined for name in _OPTIONS)


def test_the_columns_variable_sets_the_width_of_redirected_output(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  monkeypatch.delenv("COLUMNS", raising=False)
  wide = output.console().width
  monkeypatch.setenv("COLUMNS", "77")
  assert output.console().width == 77 < wide


def _text(table: object, width: int = 200) -> str:
  stream = io.StringIO()
  rich.console.Console(file=stream, width=width).print(table)
  return stream.getvalue()


def _shown(tuning: tuning_lib.Tuning, *, is_verbose: bool = False) -> str:
  """The terminal's text for a tuning, regardless of line breaks."""
  stream = io.StringIO()
  console = rich.console.Console(file=stream, width=200)
  terminal.show_tuning(console, tuning, [], is_verbose=is_verbose)
  return " ".join(stream.getvalue().split())


@pytest.mark.parametrize(
  ("xla_flags", "shown"),
  [
    ("", "today: XLA's defaults"),
    (f"--{arm_steps.DOUBLED}=true", "without XLA_FLAGS"),
  ],
)
def test_every_arm_has_one_complete_row_in_80_columns(
  monkeypatch, xla_flags, shown
):
  monkeypatch.setenv("XLA_FLAGS", xla_flags)
  arms = arms_lib.known(arm_steps.H100).arms
  search = joint.search(arm_steps.target(arm_steps.DOUBLED), arms=arms)
  table = _text(tables.arms(search), width=80)
  lines = [line.rstrip() for line in table.splitlines()]
  # A title, a head, the meaning of "-", and one line for each row.
  assert len(lines) == 3 + 1 + len(arms) + 1
  assert any(shown in line for line in lines)
  for arm in arms:
    found = search.found(arm.config)
    assert isinstance(found, candidates.Candidate)
    (line,) = [x for x in lines if x.startswith(arm.name + " ")]
    assert f" {arm_steps.us(found) / 1e3:,.2f} " in line
    share = arm_steps.us(found) / arm_steps.us(search.default) - 1
    assert f"{share:+.1%}" in line
    assert ("fastest" in line) == (found is search.fastest_arm)


def test_a_tuning_lists_its_arms_and_their_omitted_options():
  tuning = tuner.tune(arm_steps.target("xla_a"))
  said = "xla_gpu_enable_triton_gemm is left out"
  assert said in _shown(tuning, is_verbose=True)
  _, *printed = validation.write(results.tuning(tuning))["arms"]
  assert [a["name"] for a in printed] == [a.name for a in tuning.search.arms]
  assert all(arm["step_time_us"] > 0 for arm in printed)


def test_candidates_are_named_by_their_differences_from_an_arm():
  arms = (arm_steps.arm("recipe", xla_a=1, xla_b=1, xla_c=1),)
  search = joint.search(arm_steps.target("xla_a"), arms=arms)
  default = search.default
  for options in ({**arms[0].config.options, "xla_c": 2}, {"xla_b": 1}):
    config = config_lib.XlaConfig(options=options)
    search = search.with_candidate(dataclasses.replace(default, config=config))
  tuning = dataclasses.replace(
    tuner.tune(arm_steps.target("xla_a")), search=search
  )
  table = _text(tables.candidates(tuning))
  rows = [line.partition("  ")[0] for line in table.splitlines()]
  assert {"recipe", "recipe, xla_c=2", "xla_b=1"} <= set(rows)


@pytest.fixture(scope="module")
def formed() -> tuning_lib.Tuning:
  return tuner.tune(formed_target.target(lambda config: 2**30), in_process=True)


def test_the_effect_of_a_form_has_its_rewrite_and_exposed_time(formed):
  (effect,) = (e for e in formed.effects if e.knob == "program")
  assert effect.value == "strands rotated"
  assert effect.evidence.startswith("Two loops became one; ")
  assert "for collectives instead of" in effect.evidence
  settings = contents.of_tuning(formed, folder="plan").settings
  assert any("Two loops became one; " in s.sentence for s in settings)
  assert "Two loops became one" in _shown(formed)
  verified = verification.verify(formed.plan, formed_target.target())
  assert all(e.acted for e in (*formed.effects, *verified.effects))
  assert verified.planned_us < verified.default_us


def test_each_form_is_listed_with_its_time_or_why_it_was_refused(formed):
  table = _text(tables.candidates(formed))
  best_ms = f"{formed.kept.tuned.step_time_us / 1e3:,.2f}"
  for form, said, is_best in (
    ("as it runs today", "", False),
    ("strands rotated", "kept", True),
    ("strands merged", "", False),
    ("strands staggered", "it has no loop", False),
  ):
    lines = [x for x in table.splitlines() if form in x and said in x]
    assert lines
    assert any(best_ms in line for line in lines) == is_best


def test_a_note_explains_why_strands_were_not_kept(formed):
  assert not notes.strands(formed)
  as_written = dataclasses.replace(formed.plan, xla=config_lib.DEFAULT)
  without = dataclasses.replace(
    formed,
    plan=as_written,
    search=dataclasses.replace(formed.search, others=()),
  )
  assert not notes.strands(without)
  stopped = errors.Stopped("Ctrl-C", 130)
  cut_short = dataclasses.replace(without, stopped=stopped)
  assert "stopped before it tried them" in notes.strands(cut_short)

  config = config_lib.XlaConfig(program=form_lib.Form(strands="merged"))
  slower = dataclasses.replace(formed.search.default, config=config)
  no_loop = candidates.Refused(config=config, reason="It has no loop.\nLog")
  too_large = dataclasses.replace(
    no_loop, reason="Too large.", is_too_large=True
  )
  for others, why in (
    ((no_loop,), r": It has no loop\. Strands need .*micro_batches splits\."),
    ((no_loop, too_large), r": Too large\."),
    (
      (no_loop, slower),
      r": with strands merged the step takes [\d.]+ ms instead of [\d.]+"
      r" \(not faster\)\.",
    ),
  ):
    search = dataclasses.replace(formed.search, others=others)
    tuning = dataclasses.replace(without, search=search)
    assert re.search(why + "$", notes.strands(tuning))


def test_json_has_the_form_of_each_candidate_and_its_outcome(formed):
  printed = validation.write(results.tuning(formed))
  check_schema("tune", printed)
  entries = printed["candidates"]
  rotated = [e for e in entries if e["program"]["strands"] == "rotated"]
  assert rotated[0]["rewrites"] == ["Two loops became one."]
  (refused,) = [e for e in entries if e["program"]["strands"] == "staggered"]
  assert "it has no loop" in refused["failure"]
  assert refused["rewrites"] == []

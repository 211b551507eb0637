# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A step tuned while it trains gives jit's bits, and gets faster."""

from __future__ import annotations

import dataclasses
import gc
import json
import pathlib
import re
from typing import Any
import weakref

import jax
import jsonschema
import pytest

from lagom_xla import dispatch
from lagom_xla.live import loop
from lagom_xla.live import proposals
from lagom_xla.live import trial_line
import live_step
import python_calls

_SLOW_S = 0.012
_AS_IT_IS_S = 0.004

_LONG_S = 1.0
_NO_SEARCH = loop.Limits(overhead_steps=1e-6)


@dataclasses.dataclass(frozen=True)
class _Trained:
  """A step trained with a slower, a failing and a faster proposal."""

  step: Any
  states: list[str]
  proposer: live_step.Proposer
  log: pathlib.Path
  alive: list[Any]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> _Trained:
  log = tmp_path_factory.mktemp("log") / "trials.jsonl"
  alive: list[Any] = []

  def noted(make: Any) -> Any:
    def compile_(lowered: jax.stages.Lowered) -> jax.stages.Compiled:
      compiled = make(lowered)
      alive.append(weakref.ref(compiled))
      return compiled

    return compile_

  proposer = live_step.Proposer(
    {
      "slower": noted(live_step.sleeping(_SLOW_S)),
      "broken": live_step.failing("no such option"),
      "faster": noted(live_step.sleeping(0.0)),
    }
  )
  with live_step.proposed_by(proposer):
    step = live_step.tuned_step(_AS_IT_IS_S, log=log)
    states = live_step.train(step, "now: watch")
  return _Trained(step, states, proposer, log, alive)


def test_all_tuning_states_give_jits_bits_and_donate_arguments(trained):
  states = """baseline profiling searching compiling measuring rejected
    compiling rejected compiling measuring adopted watching"""
  assert trained.states == states.split()


def test_the_search_receives_the_measured_step_time_and_trace(trained):
  (measured,) = trained.proposer.measured
  assert measured.step_s > _AS_IT_IS_S
  assert measured.trace_dir is not None
  assert not measured.trace_dir.exists()  # Once the search is over.


def test_the_report_begins_with_the_verdict(trained):
  step = trained.step
  first, *others = step.report().splitlines()
  assert first.startswith("step: ")
  assert "ms per step before" in first and "ms now" in first
  assert first.endswith("with faster")
  tried = [line.strip() for line in others if "tried: " in line]
  assert len(tried) == 3
  assert tried[0].startswith("tried: slower: ")
  assert tried[0].endswith(", rejected")
  assert "not measured: process 0: no such option" in tried[1]
  assert tried[2].endswith(", adopted")
  assert "  on: 8 cpu" in others
  assert "overhead: " in others[-1]
  assert repr(step) == step.report()
  assert step._repr_html_().startswith("<pre>step: ")


def test_each_trial_is_logged_as_a_line_of_json(trained):
  lines = [json.loads(line) for line in trained.log.read_text().splitlines()]
  assert [line["proposal"] for line in lines] == ["slower", "broken", "faster"]
  assert {line["devices"] for line in lines} == {"8 cpu"}
  assert [line["adopted"] for line in lines] == [False, False, True]
  slower, broken, faster = lines
  assert slower["ratio"] > 1 and slower["num_pairs"] >= 2
  assert broken["ratio"] is None and "no such option" in broken["words"]
  assert faster["low"] < faster["ratio"] < faster["high"] < 1
  schema = jsonschema.Draft202012Validator(trial_line.schema())
  for line in lines:
    schema.validate(line)


def test_a_rejected_executable_is_freed(trained):
  slower, faster = trained.alive
  gc.collect()
  assert slower() is None
  assert faster() is not None


def test_a_call_of_a_watched_step_is_one_python_call(trained):
  step = trained.step
  state, x = live_step.state(), live_step.batch(0)
  state, _ = step(state, x)
  assert python_calls.of(step, state, x) == ["LiveStep.__call__"]


@pytest.mark.parametrize("log", ["trials.jsonl", "none/trials.jsonl"])
def test_a_relative_log_path_is_fixed_at_tune_and_may_be_unwritable(
  log, tmp_path, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  proposer = live_step.Proposer({"broken": live_step.failing("no such option")})
  with live_step.proposed_by(proposer):
    step = live_step.tuned_step(log=log)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert "rejected" in live_step.train(step, "now: watch")
  assert (tmp_path / log).is_file() == (log == "trials.jsonl")


def test_the_first_calls_extra_work_is_reported_as_overhead(monkeypatch):
  def slowly(function: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
      live_step.clock.sleep(_LONG_S)
      return function(*args, **kwargs)

    return call

  # jit lowers once; lowering a variant and the check are extra.
  for where, name in (
    (dispatch.Jitted, "lowered"),
    (proposals, "check_no_refs"),
  ):
    monkeypatch.setattr(where, name, slowly(getattr(where, name)))
  with live_step.proposed_by(live_step.Proposer({}), _NO_SEARCH):
    step = live_step.tuned_step(cache=False)
    state = live_step.state()
    while "now: wait" not in step.report():
      state, _ = step(state, live_step.batch(0))
  step_ms = float(re.findall(r"([\d.]+) ms per step", step.report())[0])
  steps = float(re.findall(r"overhead: ([\d.]+) steps", step.report())[0])
  # The figures are rounded.
  assert steps * step_ms / 1e3 == pytest.approx(2 * _LONG_S, rel=0.02)


def test_a_call_within_a_baseline_block_is_one_python_call():
  with live_step.proposed_by(live_step.Proposer({})):
    step = live_step.tuned_step(0.0, cache=False)
    state, x = live_step.state(), live_step.batch(0)
    for _ in range(14):  # Warm-up, and the first call of a block.
      state, _ = step(state, x)
    assert "now: baseline" in step.report()
    assert python_calls.of(step, state, x) == ["LiveStep.__call__"]

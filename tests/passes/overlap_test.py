# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Which kernels run beside which collectives, and their overlaps."""

from __future__ import annotations

import hypothesis
from hypothesis import strategies as st
import pytest

import hlo_text
from lagom_xla.costs.replay import program as program_lib
from lagom_xla.passes import overlap

_LOOP = hlo_text.trips(5)


def _analyze(body: str, *, computations: str = "") -> overlap.Analysis:
  body = f"x = f32[128] parameter(0)\n{body}"
  return overlap.analyze(hlo_text.load(body, computations=computations))


def _start(name: str) -> str:
  return f"{name} = f32[128] all-reduce-start(x), {hlo_text.ALL}, to_apply=add"


def _done(name: str) -> str:
  return f"{name}.done = f32[128] all-reduce-done({name})"


def _kernel(name: str) -> str:
  return f"{name} = f32[128] negate(x)"


def _summary(
  analysis: overlap.Analysis,
) -> list[tuple[list[str], list[str], int]]:
  return [
    (
      [c.name for c in o.collectives],
      [k.name for k in o.kernels],
      o.executions,
    )
    for o in analysis.overlaps
  ]


def _beside(analysis: overlap.Analysis) -> dict[str, list[str]]:
  return {
    c.name: [k.name for k in analysis.kernels_beside[c.start_id]]
    for c in analysis.collectives
  }


def _schedule(steps: str) -> str:
  """A body from words: "+a" starts a, "-a" awaits it, "k" is a kernel."""
  lines = []
  for step in steps.split():
    make = {"+": _start, "-": _done}.get(step[0])
    lines.append(make(step[1:]) if make else _kernel(step))
  return "\n".join(lines)


def test_kernels_in_loops_and_calls_within_a_window_count_as_overlap():
  analysis = _analyze(
    f"""
      which = s32[] parameter(1)
      {_start("a")}
      loop = f32[128] while(x), condition=go_on, body=body, {_LOOP}
      called = f32[128] call(loop), to_apply=left
      {_done("a")}
      ROOT out = f32[128] conditional(which, called, x),
        branch_computations={{left, right}}
    """,
    computations="""
      go_on {
        x = f32[128] parameter(0)
        one = pred[] constant(true)
        ROOT in_condition = pred[] not(one) }
    """
    + "".join(
      f"{name} {{\n x = f32[128] parameter(0)\n"
      f" ROOT in_{name} = f32[128] {opcode}(x) }}\n"
      for name, opcode in (
        ("body", "sine"),
        ("left", "cosine"),
        ("right", "tanh"),
      )
    ),
  )
  # XLA counted the trips and runs no condition.
  kernels = ["in_body", "in_left"]
  assert _summary(analysis) == [(["a"], kernels, 1)]
  executions = {k.name: k.executions for k in analysis.kernels.values()}
  assert executions == {
    "in_body": 5,
    "in_condition": 0,
    "in_left": 2,
    "in_right": 1,
  }


def test_a_start_awaited_in_the_next_iteration_overlaps_the_loops_rest():
  analysis = _analyze(
    f"""
      {_start("first")}
      ROOT loop = f32[128] while(first), condition=go_on, body=body, {_LOOP}
    """,
    computations=f"""
      body {{
        carried = f32[128] parameter(0)
        x = f32[128] all-reduce-done(carried)
        k1 = f32[128] negate(x)
        ROOT next = f32[128] all-reduce-start(x), {hlo_text.ALL}, to_apply=add
        k2 = f32[128] negate(x)
      }}

      go_on {{
        x = f32[128] parameter(0)
        ROOT yes = pred[] constant(true)
      }}
    """,
  )
  assert _beside(analysis) == {"first": ["k1", "k2"], "next": ["k2"]}
  found = [(c.form, c.done_id, c.executions) for c in analysis.collectives]
  assert found == [("async", None, 1), ("async", None, 5)]


@st.composite
def _schedules(draw: st.DrawFn) -> str:
  """Starts, dones and kernels in any order, each start before its done."""
  num_collectives = draw(st.integers(0, 5))
  events = [f"c{i}" for i in range(num_collectives) for _ in range(2)]
  events += [f"k{i}" for i in range(draw(st.integers(1, 8)))]
  steps: list[str] = []
  started: set[str] = set()
  for event in draw(st.permutations(events)):
    if event[0] == "k":
      steps.append(event)
    else:
      steps.append(("-" if event in started else "+") + event)
      started.add(event)
  return " ".join(steps)


@hypothesis.given(_schedules())
def test_overlaps_of_any_schedule_match_their_definition(steps):
  analysis = _analyze(_schedule(steps))
  words = steps.split()
  windows = {
    word[1:]: (place, words.index("-" + word[1:]))
    for place, word in enumerate(words)
    if word[0] == "+"
  }
  busy = {
    name: [w for w in words[begin:end] if w[0] == "k"]
    for name, (begin, end) in windows.items()
  }
  found = _beside(analysis)
  async_names = {c.name for c in analysis.collectives if c.form == "async"}
  assert set(found) == set(windows)
  for name, kernels in found.items():
    # A pair with nothing in between is sync, and has no kernels to overlap.
    assert kernels == busy[name]
    assert name in async_names or not kernels
  grouped = [c for o in analysis.overlaps for c in o.collectives]
  assert sorted(c.name for c in grouped) == sorted(async_names)
  home = {
    c.name: i for i, o in enumerate(analysis.overlaps) for c in o.collectives
  }
  for one in async_names:
    for other in async_names:
      (b0, e0), (b1, e1) = windows[one], windows[other]
      if max(b0, b1) < min(e0, e1):
        assert home[one] == home[other]
  for o in analysis.overlaps:
    beside = [k for c in o.collectives for k in found[c.name]]
    assert [k.name for k in o.kernels] == sorted(set(beside), key=words.index)


@pytest.mark.parametrize(
  "options",
  [
    {},
    {"xla_gpu_enable_while_loop_double_buffering": True},
    {"xla_gpu_experimental_enable_heuristic_collective_combining": True},
  ],
)
def test_each_async_collective_of_a_step_is_in_exactly_one_overlap(
  scheduled, fsdp_step, options
):
  module = scheduled(fsdp_step(), **options)
  analysis = overlap.analyze(module)
  grouped: list[int] = []
  for o in analysis.overlaps:
    assert o.executions == module.executions[o.computation_id]
    computation = module.computations[o.computation_id]
    inside = {i.id for i in computation.instructions[o.begin : o.end]}
    for collective in o.collectives:
      grouped.append(collective.start_id)
      assert collective.start_id in inside
      assert collective.done_id is None or collective.done_id in inside
      beside = analysis.kernels_beside[collective.start_id]
      assert {k.name for k in beside} <= {k.name for k in o.kernels}
  is_async = {c.start_id: c.form == "async" for c in analysis.collectives}
  assert sorted(grouped) == sorted(id_ for id_ in is_async if is_async[id_])
  for start_id, kernels in analysis.kernels_beside.items():
    assert is_async[start_id] or not kernels


def test_kernels_on_a_user_named_stream_run_where_they_are_started():
  # XLA's HLO for JAX's compute_on with "gpu_stream:1".
  square = "f32[256,256]{1,0}"
  product = f"{square} dot(a, a), {hlo_text.DOT}"
  module = hlo_text.load(
    f"""
    p = {square} parameter(0)
    named = (({square}), {square}, u32[]) call-start(p), to_apply=elsewhere
    ROOT done = {square} call-done(named)
    """,
    computations=f"""
    elsewhere {{
      a = {square} parameter(0)
      first = {product}
      ROOT second = {product}
    }}
    """,
  )
  analysis = overlap.analyze(module)
  assert [k.name for k in analysis.kernels.values()] == ["first", "second"]
  assert program_lib.of_module(analysis) == tuple(
    map(program_lib.Launch, analysis.kernels.values())
  )

# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The program that is replayed is the schedule of its module."""

from __future__ import annotations

import hlo_text
from lagom_xla.costs.replay import program as program_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import overlap as overlap_lib

Launch, Start, Wait = program_lib.Launch, program_lib.Start, program_lib.Wait
Loop, Branch = program_lib.Loop, program_lib.Branch


# One all-gather beside a product, a plain all-reduce after it; then a loop of
# four trips with an all-gather of its own.
_TEXT = hlo_text.text(
  f"""
  p = f32[64,64] parameter(0)
  outer-start = (f32[64,64], f32[512,64]) all-gather-start(p), {hlo_text.GATHER}
  outer-dot = f32[64,64] dot(p, p), {hlo_text.DOT}
  outer-done = f32[512,64] all-gather-done(outer-start)
  plain = f32[64,64] all-reduce(outer-dot), {hlo_text.ALL}, to_apply=add
  zero = s32[] constant(0)
  start = (s32[], f32[64,64]) tuple(zero, plain)
  ROOT loop = (s32[], f32[64,64]) while(start), condition=condition, body=body,
    {hlo_text.trips(4)}
""",
  computations=f"""
body {{
  carry = (s32[], f32[64,64]) parameter(0)
  i = s32[] get-tuple-element(carry), index=0
  a = f32[64,64] get-tuple-element(carry), index=1
  inner-start = (f32[64,64], f32[512,64]) all-gather-start(a), {hlo_text.GATHER}
  inner-dot = f32[64,64] dot(a, a), {hlo_text.DOT}
  inner-done = f32[512,64] all-gather-done(inner-start)
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT out = (s32[], f32[64,64]) tuple(next, inner-dot)
}}

condition {{
  carry = (s32[], f32[64,64]) parameter(0)
  i = s32[] get-tuple-element(carry), index=0
  n = s32[] constant(4)
  ROOT less = pred[] compare(i, n), direction=LT
}}
""",
)
_MODULE = hlo.load(_TEXT)


def _spelled(program: program_lib.Program) -> list:
  spelled: list = []
  for part in program:
    match part:
      case Launch(kernel):
        spelled.append(kernel.name)
      case Start(collective):
        spelled.append(f"start {collective.name}")
      case Wait(collective):
        spelled.append(f"wait {collective.name}")
      case Loop(body, num_trips):
        spelled.append((num_trips, _spelled(body)))
  return spelled


def test_a_program_is_the_schedule_of_its_module():
  analysis = overlap_lib.analyze(_MODULE)
  assert _spelled(program_lib.of_module(analysis)) == [
    "start outer-start",
    "outer-dot",
    "wait outer-start",
    "start plain",
    "wait plain",
    (4, ["start inner-start", "inner-dot", "wait inner-start", "next"]),
  ]


def test_a_loop_that_xla_did_not_count_asks_its_condition_each_time():
  uncounted = _TEXT.replace(hlo_text.trips(4), "metadata={}")
  analysis = overlap_lib.analyze(hlo.load(uncounted))
  *_, loop, last = _spelled(program_lib.of_module(analysis))
  assert (loop[0], loop[1][0], last) == (4, "less", "less")


def test_the_program_of_an_overlap_runs_from_its_start_to_its_done():
  analysis = overlap_lib.analyze(_MODULE)
  programs_ = [
    _spelled(program_lib.of_overlap(analysis, overlap))
    for overlap in analysis.overlaps
  ]
  assert programs_ == [
    ["start outer-start", "outer-dot", "wait outer-start"],
    ["start inner-start", "inner-dot", "wait inner-start"],
  ]

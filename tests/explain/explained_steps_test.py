# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Explanations of whole steps, which the page and the terminal give, too."""

from __future__ import annotations

from collections.abc import Callable

import hypothesis
from hypothesis import strategies as st
import jax
import pytest
import rich.console

import explained_step
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.explain import explaining
from lagom_xla.passes import hlo
from lagom_xla.passes.schedule import orders as orders_lib
from lagom_xla.report import terminal
from lagom_xla.report.page import contents
import random_orders


def test_a_loop_that_gathers_what_it_got_could_gather_a_trip_earlier(
  fsdp_scan: hlo.Module,
) -> None:
  step = step_lib.of_module(fsdp_scan, cluster_lib.parse("1x8xh100"))
  collectives = explaining.of_step(step).before.collectives
  assert any(c.executions > 1 and c.exposed_us > 0 for c in collectives)
  for one in collectives:
    said = [a for a in one.advice if a.startswith("Pipelining")]
    is_in_loop = one.executions > 1
    assert bool(said) == (is_in_loop and one.exposed_us > 0)
    if said:
      # XLA made the reduce-scatters of all-reduces, and pipelines them as such.
      kind = "all_gather" if one.kind == "all-gather" else "all_reduce"
      assert f"xla_gpu_enable_pipelined_{kind}" in said[0]


def test_a_plan_is_told_by_the_lines_that_collectives_come_from(
  scheduled: Callable[..., hlo.Module],
  fsdp_step: Callable[..., jax.stages.Lowered],
) -> None:
  lowered = fsdp_step(unroll=True)
  cluster = cluster_lib.parse(explained_step.CLUSTER)
  apart, together = (
    step_lib.of_module(
      scheduled(lowered, xla_gpu_all_gather_combine_threshold_bytes=size),
      cluster,
    )
    for size in (0, 2**30)
  )
  explained = explaining.of_plan(apart, together, together.default)
  assert explained.after is not None
  gathers = [c for c in explained.before.collectives if c.kind == "all-gather"]
  planned = {c.name for c in explained.after.collectives}
  assert len(gathers) > len([n for n in planned if n.startswith("all-gather")])
  for gather in gathers:
    told = gather.with_plan
    assert told is not None
    assert 0 < len(told.names) < told.num_before
    assert set(told.names) <= planned
    assert "become" in told.sentence
  # The same module, as another checkout has compiled it.
  module = apart.analysis.module
  proto = type(module.proto).FromString(module.proto.SerializeToString())
  names = proto.stack_frame_index.file_names
  names[:] = [f"/elsewhere{name}" for name in names]
  moved = step_lib.of_module(hlo.Module(proto, module.num_partitions), cluster)
  same = explaining.of_plan(apart, moved, apart.default).before
  for one in same.collectives:
    assert one.with_plan is not None
    assert one.with_plan.exposed_after_us == one.with_plan.exposed_before_us
    assert "stay" in one.with_plan.sentence


def test_what_stands_in_a_branch_that_is_not_the_slowest_is_not_exposed() -> (
  None
):
  branch = """
    {name} {{
      x = f32[1048576] parameter(0)
      {name}.in = f32[{size}] slice(x), slice={{[0:{size}]}}
      {name}.all = f32[{size}] all-reduce({name}.in), {ALL}, to_apply=add
      ROOT {name}.out = f32[] constant(0)
    }}
  """
  branches = [
    branch.format(name=name, size=size, ALL=hlo_text.ALL)
    for name, size in (("long", 2**20), ("short", 2**10))
  ]
  body = """
    which = s32[] parameter(0)
    x = f32[1048576] parameter(1)
    ROOT out = f32[] conditional(which, x, x),
      branch_computations={long, short}
  """
  module = hlo_text.load(body, computations="".join(branches))
  cluster = cluster_lib.parse(explained_step.CLUSTER)
  long, short = explaining.of_step(
    step_lib.of_module(module, cluster)
  ).before.collectives
  assert (long.name, long.exposed_us) == ("long.all", long.lone_us)
  assert [part.reason for part in long.parts] == ["no_slack"]
  assert (short.name, short.exposed_us, short.parts) == ("short.all", 0, ())


def test_a_kernel_that_runs_asynchronously_hides_what_it_runs_beside() -> None:
  size = "f32[16777216]"
  module = hlo_text.load(
    f"""
    p = {size} parameter(0)
    q = {size} parameter(1)
    sum = {size} all-reduce-start(p), {hlo_text.ALL}, to_apply=add
    begin = (({size}), {size}) fusion-start(q), kind=kLoop, calls=f
    end = {size} fusion-done(begin)
    summed = {size} all-reduce-done(sum)
    ROOT out = ({size}, {size}) tuple(end, summed)
    """,
    computations=f"""
    f {{
      q = {size} parameter(0)
      ROOT negated = {size} negate(q)
    }}
    """,
  )
  step = step_lib.of_module(module, cluster_lib.parse(explained_step.CLUSTER))
  explained = explaining.of_step(step).before
  replayed = step.timeline(step.default)
  assert replayed.total_exposed_us < replayed.collective_us
  assert explained.exposed_us == pytest.approx(replayed.total_exposed_us)


@hypothesis.settings(max_examples=12, derandomize=True)
@hypothesis.given(seed=st.integers(0, 2**32 - 1))
def test_parts_add_up_to_what_is_exposed_and_that_to_the_timelines(
  train_step_module: hlo.Module, seed: int
) -> None:
  cluster = cluster_lib.parse(explained_step.CLUSTER)
  orders = random_orders.of(train_step_module, seed)
  step = step_lib.of_module(
    orders_lib.apply(train_step_module, orders), cluster
  )
  explained = explaining.of_step(step).before
  replayed = step.timeline(step.default)
  assert explained.step_us == replayed.step_time_us
  assert explained.exposed_us == pytest.approx(replayed.total_exposed_us)
  assert explained.unexplained_us == pytest.approx(0)
  assert sum(explained.reasons_us.values()) == pytest.approx(
    explained.exposed_us
  )
  for one in explained.collectives:
    assert all(part.us > 0 for part in one.parts)
    assert sum(part.us for part in one.parts) == pytest.approx(one.exposed_us)
    slowed = [
      us for (_, name), us in replayed.slowdown_us.items() if name == one.name
    ]
    assert one.slowed_us == pytest.approx(sum(slowed))
    if one.exposed_us > 0:
      assert one.unhideable_us is not None
      assert one.unhideable_us <= one.exposed_us * (1 + 1e-9)


def test_rows_of_the_page_and_the_terminal_have_the_waits_and_their_reasons(
  scheduled: Callable[..., hlo.Module],
  fsdp_step: Callable[..., jax.stages.Lowered],
) -> None:
  # With a gather and a reduction of each layer, which XLA combines not.
  apart = {
    f"xla_gpu_{kind}_combine_threshold_bytes": 0
    for kind in ("all_gather", "reduce_scatter")
  }
  module = scheduled(fsdp_step(unroll=True), **apart)
  step = step_lib.of_module(module, cluster_lib.parse("2x4xh100"))
  explained = explaining.of_step(step).before
  rows = contents.of_inspection(step).collectives_before
  # Alike ones leave none out, and name the one that they tell of.
  num = sum(1 + row.num_others for row in rows)
  assert num == len(explained.collectives)
  waits_us = sum(row.wait_us for row in rows)
  assert waits_us == pytest.approx(explained.exposed_us)
  alike = [row for row in rows if row.num_others and row.why_waits]
  assert alike
  assert all(f"as in {row.label.name}, " in row.why_waits for row in alike)
  alone = [row for row in rows if not row.num_others and row.why_waits]
  assert alone
  by_name = {one.name: one for one in explained.collectives}
  for row in alone:
    one = by_name[row.label.name]
    assert (row.wait_us, row.why_waits) == (one.exposed_us, one.why)
  console = rich.console.Console(width=80)
  with console.capture() as captured:
    terminal.show_inspection(console, step, is_verbose=True)
  told = " ".join(captured.get().split())
  assert all(" ".join(row.why_waits.split()) in told for row in rows)

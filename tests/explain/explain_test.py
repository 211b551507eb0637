# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Why collectives are exposed, in steps with one reason each.

In their orders, A makes the operand of the gather "+g", and C needs its result
after "-g"; all others are independent of the gather.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import dataclasses
import functools
import html
import re
from typing import Any

import hypothesis
from hypothesis import strategies as st
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np
import pytest
import rich.console

import explained_step
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import in_words
from lagom_xla.costs import step as step_lib
from lagom_xla.explain import explaining
from lagom_xla.explain import explanation as explanation_lib
from lagom_xla.flags import check
from lagom_xla.flags import options as xla_options
from lagom_xla.passes import hlo
from lagom_xla.passes.schedule import orders as orders_lib
from lagom_xla.report import terminal
from lagom_xla.report.page import contents
from lagom_xla.report.page import report
import random_orders

_SQUARE = (explained_step.SIZE, explained_step.SIZE)
_THIN = (explained_step.THIN, explained_step.SIZE)
# Two gathers of these are below XLA's threshold for combining them.
_SMALL = (104, explained_step.SIZE)
_product, _gather = explained_step.product, explained_step.gather
# Compiles one of the programs, once, and puts it in an order.
Ordered = Callable[[str, str], step_lib.Step]


# The programs, by name. B is long; S takes about half as long as a gather.


def _beside(x, thin, other, a, b, c, s):
  gathered = _gather("g", _product("A", thin, a))
  return (
    _product("C", gathered, c),
    _product("B", x, b),
    _product("S", other, s),
  )


def _short(thin, other, a, c, s):
  gathered = _gather("g", _product("A", thin, a))
  return _product("C", gathered, c), _product("S", other, s)


def _chain(thin, a, c):
  return _product("C", _gather("g", _product("A", thin, a)), c)


def _two(p, q, x, b, c):
  """A gather of p, and a longer one of q, for the same consumer."""
  gathered, longer = _gather("g", p), _gather("h", q)
  with jax.named_scope("C"):
    folded = longer.reshape(-1, *gathered.shape).sum(0)
    result = (gathered + folded) @ c
  return result, _product("B", x, b)


def _combined(p, q, thin, c, d, k):
  """Two gathers that XLA combines; C needs one, and D the other."""
  first, second = _gather("g", p), _gather("g", q)
  return (
    _product("C", first, c),
    _product("D", second, d),
    _product("K", thin, k),
  )


_PROGRAMS = {
  "beside": (_beside, (_SQUARE, _THIN, _THIN, *[_SQUARE] * 4)),
  "short": (_short, (_THIN, _THIN, *[_SQUARE] * 3)),
  "chain": (_chain, (_THIN, *[_SQUARE] * 2)),
  "two": (_two, (_THIN, (4 * _THIN[0], _THIN[1]), *[_SQUARE] * 3)),
  "combined": (_combined, (_SMALL, _SMALL, _THIN, *[_SQUARE] * 3)),
}


@pytest.fixture(scope="module")
def ordered(
  h100s: Sequence[jax.Device], scheduled: Callable[..., hlo.Module]
) -> Ordered:
  @functools.cache
  def compiled(name: str) -> hlo.Module:
    body, shapes = _PROGRAMS[name]
    return scheduled(explained_step.lower(h100s, body, shapes))

  return lambda name, order: explained_step.ordered(compiled(name), order)


def _explained(
  step: step_lib.Step, letter: str = "g"
) -> explanation_lib.Collective:
  name = explained_step.collective(step, letter)
  collectives = explaining.of_step(step).before.collectives
  return next(c for c in collectives if c.name == name)


@pytest.mark.parametrize(
  ("program", "order", "reason", "words", "advice"),
  [
    (
      *("beside", "A B +g S -g C", "started_late"),
      *("XLA starts it later", {"Order"}),
    ),
    (
      *("beside", "A +g S -g B C", "awaited_early"),
      *("XLA waits for it before", None),
    ),
    ("beside", "A +g -g B S C", "sync", "runs synchronously, as XLA's", None),
    (
      *("beside", "B A +g S -g C", "operand_late"),
      *("after the independent kernel that could hide it", None),
    ),
    (
      *("beside", "A +g S -g C B", "consumer_early"),
      *("before the next independent kernel, which could hide it", None),
    ),
    ("short", "A +g S -g C", "too_long", "all independent kernels", None),
    (
      *("chain", "A +g -g C", "no_slack"),
      *("either feeds it or needs its result", {"Slices", "Strands"}),
    ),
    ("two", "+h +g B -g -h C", "queue", "it queued behind", None),
    (
      *("two", "+h B -h +g -g C", "stream_busy"),
      *("hide others, such as", {"Strands"}),
    ),
    (
      *("combined", "+g K -g C D", "combined"),
      *("XLA combined 2 arrays", {"Combining"}),
    ),
  ],
)
def test_a_step_built_to_have_one_reason_is_explained_by_it(
  ordered: Ordered,
  program: str,
  order: str,
  reason: str,
  words: str,
  advice: set[str] | None,
) -> None:
  step = ordered(program, order)
  found = _explained(step)
  assert found.exposed_us > 5
  # Some kernels also slow the collective down.
  first, *others = found.parts
  assert (first.reason, [p.reason for p in others]) in (
    (reason, []),
    (reason, ["slowed"]),
  )
  assert words in first.sentence
  assert first.sentence in found.why
  said = {text.partition(":")[0] for text in found.advice}
  assert advice is None or said == advice
  assert found in explaining.of_run(step, step.default).collectives


def test_parts_are_as_long_as_the_time_that_kernels_could_hide(
  ordered: Ordered,
) -> None:
  hidden = _explained(ordered("beside", "A +g B S -g C"))
  assert (hidden.exposed_us, hidden.parts, hidden.why) == (0, (), "")
  assert hidden.slowed_us > 0
  step = ordered("beside", "B A +g -g C S")
  gather_us = explained_step.gather_us(step, "g")
  assert explained_step.kernel_us(step, "B") > gather_us
  found = _explained(step)
  assert found.exposed_us == pytest.approx(gather_us)
  assert [p.us for p in found.parts] == [pytest.approx(gather_us)]
  # S is too short for all of it, so without B it would be less.
  short = ordered("short", "A +g -g C S")
  small_us = explained_step.kernel_us(short, "S")
  found = _explained(short)
  assert {p.reason: p.us for p in found.parts} == {
    "consumer_early": pytest.approx(small_us),
    "too_long": pytest.approx(gather_us - small_us),
  }
  assert found.hideable_us == pytest.approx(small_us)
  assert found.unhideable_us == pytest.approx(found.lone_us - small_us)
  chain = _explained(ordered("chain", "A +g -g C"))
  assert (chain.hideable_us, chain.unhideable_us) == (0, chain.exposed_us)


def test_a_reason_names_its_instructions_and_source_lines(
  ordered: Ordered,
) -> None:
  two = ordered("two", "+h +g B -g -h C")
  assert explained_step.collective(two, "h") in _explained(two).why
  late = _explained(ordered("beside", "B A +g S -g C"))
  # The line that calls a helper comes before the name that XLA gave.
  assert re.search(r"because explain_test\.py:\d+, A \(\w", late.why)
  assert late.file.endswith("explained_step.py")
  both = ordered("combined", "+g K -g C D")
  (part,) = (p for p in _explained(both).parts if p.reason == "combined")
  entry = both.analysis.module.entry
  name = explained_step.collective(both, "g")
  (start,) = (i for i in entry.instructions if i.name == name)
  assert all(i.name in part.sentence for i in entry.operands(start))


def test_a_synchronous_collective_is_explained(ordered: Ordered) -> None:
  between = ordered("two", "+h +g -g B -h C")
  name = explained_step.collective(between, "h")
  assert _explained(between).sync_because.startswith(f"{name} is in flight")
  chain = ordered("chain", "A +g -g C")
  assert "no kernel in its computation" in _explained(chain).sync_because
  for computation in chain.analysis.module.proto.computations:
    for instruction in computation.instructions:
      instruction.metadata.scheduling_name = ""
  assert "latency-hiding scheduler did not" in _explained(chain).sync_because


def test_another_mesh_is_advised_only_for_collectives_between_nodes(
  ordered: Ordered,
) -> None:
  within = ordered("chain", "A +g -g C")
  module = within.analysis.module
  between = step_lib.of_module(module, cluster_lib.parse("2x4xh100"))
  first, *_ = _explained(between).advice
  assert first.startswith("Mesh: it spans 2 nodes over infiniband.")
  assert "4 GPUs" in first and first.endswith(" instead of 0.20 ms.")
  alone = step_lib.of_module(module, cluster_lib.parse("8x1xh100"))
  assert not any(a.startswith("Mesh") for a in _explained(alone).advice)
  assert not any(a.startswith("Mesh") for a in _explained(within).advice)


@pytest.mark.parametrize(
  ("num_rows", "words"), [(128, r"2\.5 times the"), (512, r"\d\d % more")]
)
def test_a_larger_batch_is_advised_to_hide_weights(
  h100s: Sequence[jax.Device],
  scheduled: Callable[..., hlo.Module],
  num_rows: int,
  words: str,
) -> None:
  def body(weight, x, other):
    gathered = _gather("g", weight)
    return _product("C", _product("S", x, other), gathered), weight + 1

  shapes = (_THIN, (num_rows, explained_step.SIZE), _SQUARE)
  module = scheduled(explained_step.lower(h100s, body, shapes))
  found = _explained(explained_step.ordered(module, "+g S -g C"))
  too_long_us = next(p.us for p in found.parts if p.reason == "too_long")
  assert found.hideable_us
  factor = 1 + too_long_us / found.hideable_us
  (batch,) = (text for text in found.advice if text.startswith("Batch"))
  assert "it moves the parameter weight, " in batch
  assert re.search(f"With {words} rows per GPU", batch), (batch, factor)


def test_waits_of_a_merged_matmul_are_attributed_to_the_merge(
  h100s: Sequence[jax.Device], scheduled: Callable[..., hlo.Module]
) -> None:
  def body(left, right, weight):
    left, right = _gather("g", left), _gather("h", right)
    with jax.named_scope("A"):
      return left @ weight + right @ weight

  shapes = (_THIN, _THIN, (explained_step.SIZE, 512))
  lowered = explained_step.lower(h100s, body, shapes)
  step = explained_step.ordered(scheduled(lowered), "+g -g +h -h A")
  found = [_explained(step, letter) for letter in "gh"]
  merged = [p for one in found for p in one.parts if p.reason == "merged"]
  assert all("merged matmuls that share" in part.sentence for part in merged)
  assert all("for all 2 of their arrays" in part.sentence for part in merged)
  # Apart, one product hides the gather of the other.
  (product,) = (
    kernel
    for kernel in step.analysis.kernels.values()
    if kernel.category == "gemm"
  )
  half_us = step.kernel_cost(product).time_us / 2
  assert sum(part.us for part in merged) == pytest.approx(half_us)
  # 32 MiB of rows, and 4 of weights and of results.
  (advice,) = (a for a in found[1].advice if a.startswith("Merging"))
  assert "xla_gpu_dot_merger_threshold_mb=32 keeps" in advice


@pytest.mark.parametrize("sums", ["carried", "stacked", "none"])
def test_a_single_reduction_is_advised_only_where_a_loop_adds_up(
  h100s: Sequence[jax.Device],
  scheduled: Callable[..., hlo.Module],
  sums: str,
) -> None:
  def body(x, total):
    def trip(total, piece) -> tuple[Any, Any]:
      with jax.named_scope("g"):
        reduced = jax.lax.psum_scatter(piece @ piece, "x", tiled=True)
      return (total + reduced, 0) if sums == "carried" else (total, reduced)

    total, reduced = jax.lax.scan(trip, total, x.reshape(4, *square))
    if sums == "carried":
      return total
    if sums == "stacked":
      return total + reduced.sum(0)
    return total, reduced.reshape(-1, square[1])

  square = (_THIN[0], _THIN[0])
  shapes = ((4 * square[0], square[1]), (square[0] // 8, square[1]))
  module = scheduled(explained_step.lower(h100s, body, shapes))
  step = step_lib.of_module(module, cluster_lib.parse(explained_step.CLUSTER))
  # XLA may pipeline stacked results over the trips.
  collectives = explaining.of_step(step).before.collectives
  assert {c.kind for c in collectives} == {"reduce-scatter"}
  assert sum(c.executions for c in collectives) == 4
  advice = [text for c in collectives for text in c.advice]
  said = any(text.startswith("Accumulation") for text in advice)
  assert said == (sums != "none")


@pytest.mark.parametrize("form", ["whole", "mapped", "gathered", "library"])
def test_shard_map_is_advised_for_a_kernel_that_xla_gathers_for(
  h100s: Sequence[jax.Device],
  scheduled: Callable[..., hlo.Module],
  form: str,
) -> None:
  mesh = Mesh(np.array(h100s), ("x",))
  spec = PartitionSpec("x", None)
  argument = jax.ShapeDtypeStruct(
    (4096, 4096), jnp.bfloat16, sharding=NamedSharding(mesh, spec)
  )
  target = "__cub$sorts" if form == "library" else "my_kernel"

  def kernel(x: jax.Array) -> jax.Array:
    if form == "gathered":
      x = jax.lax.all_gather(x, "x", tiled=True)
    return jax.ffi.ffi_call(target, jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

  if form in ("mapped", "gathered"):
    kernel = jax.shard_map(
      kernel, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False
    )
  lowered = jax.jit(lambda x: jnp.sin(kernel(jnp.tanh(x)))).lower(argument)
  step = step_lib.of_module(
    scheduled(lowered), cluster_lib.parse(explained_step.CLUSTER)
  )
  gathers = explaining.of_step(step).before.collectives
  assert [c.kind for c in gathers] == ["all-gather"] * (form != "mapped")
  advice = [text for c in gathers for text in c.advice]
  said = [text for text in advice if text.startswith("Kernel: XLA cannot")]
  assert len(said) == (form == "whole")
  assert all("ffi_call" in text and "jax.shard_map" in text for text in said)


def test_pipelining_is_advised_for_exposed_collectives_of_loops(
  fsdp_scan: hlo.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
  step = step_lib.of_module(fsdp_scan, cluster_lib.parse("1x8xh100"))
  collectives = explaining.of_step(step).before.collectives
  assert any(c.executions > 1 and c.exposed_us > 0 for c in collectives)
  monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_enable_pipelined_all_gather=true")
  with_flag = {
    one.name: one.advice for one in explaining.of_step(step).before.collectives
  }
  for one in collectives:
    said = [a for a in one.advice if a.startswith("Pipelining")]
    is_in_loop = one.executions > 1
    assert bool(said) == (is_in_loop and one.exposed_us > 0)
    if said:
      # XLA made the reduce-scatters of all-reduces, and pipelines them as such.
      kind = "all_gather" if one.kind == "all-gather" else "all_reduce"
      flag = xla_options.xla_flags({f"xla_gpu_enable_pipelined_{kind}": True})
      assert f"; {flag} does that." in said[0]
      assert not check.check(flag).findings
      # A flag that is set already is not advised.
      assert (said[0] in with_flag[one.name]) == (kind == "all_reduce")


def test_collectives_of_a_plan_are_matched_by_their_source_lines(
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
    assert "not change. " in one.with_plan.sentence


def test_collectives_of_faster_branches_are_not_exposed() -> None:
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


def test_an_asynchronous_kernel_hides_concurrent_collectives() -> None:
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
def test_parts_add_up_to_the_exposed_time_of_the_timeline(
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


def test_rows_on_page_and_terminal_have_waits_and_their_reasons(
  scheduled: Callable[..., hlo.Module],
  fsdp_step: Callable[..., jax.stages.Lowered],
) -> None:
  # Each layer has a gather and a reduction, which XLA does not combine.
  apart = {
    f"xla_gpu_{kind}_combine_threshold_bytes": 0
    for kind in ("all_gather", "reduce_scatter")
  }
  module = scheduled(fsdp_step(unroll=True), **apart)
  step = step_lib.of_module(module, cluster_lib.parse("2x4xh100"))
  explained = explaining.of_step(step).before
  page = contents.of_inspection(step)
  rows = page.collectives_before
  # A row of similar collectives counts all of them and names one.
  num = sum(1 + row.num_others for row in rows)
  assert num == len(explained.collectives)
  waits_us = sum(row.wait_us for row in rows)
  assert waits_us == pytest.approx(explained.exposed_us)
  alike = [row for row in rows if row.num_others and row.why_waits]
  assert alike
  assert all(f"For {row.label.name}, " in row.why_waits for row in alike)
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
  # The page begins with the costliest, and says how many it is about.
  costly = dataclasses.replace(page, collectives_before=(alike[0],))
  first = html.unescape(report.html(costly))
  waits = in_words.milliseconds(alike[0].wait_us)
  the = f"the {1 + alike[0].num_others}"
  assert f"cost most. Kernels wait {waits} for {the}. For " in first

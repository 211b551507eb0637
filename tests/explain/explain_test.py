# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Why collectives are exposed, in steps that are made to have one reason each.

In their orders A makes what "+g" gathers and C needs it after "-g"; all others
are independent of that gather.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import functools

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np
import pytest

import explained_step
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.explain import explaining
from lagom_xla.explain import explanation as explanation_lib
from lagom_xla.passes import hlo

_SQUARE = (explained_step.SIZE, explained_step.SIZE)
_THIN = (explained_step.THIN, explained_step.SIZE)
# Two gathers of these are below XLA's threshold for combining them.
_SMALL = (104, explained_step.SIZE)
_product, _gather = explained_step.product, explained_step.gather
# Compiles one of the programs, once, and puts it in an order.
Ordered = Callable[[str, str], step_lib.Step]


# The programs, by name. B is long, S takes about half of what a gather does.


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
  """Two gathers that XLA combines, of which C needs one and D the other."""
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
    ("beside", "A +g S -g B C", "awaited_early", "XLA waits for it earl", None),
    ("beside", "A +g -g B S C", "sync", "it is sync: XLA's sched", None),
    ("beside", "B A +g S -g C", "operand_late", "operand comes late", None),
    ("beside", "A +g S -g C B", "consumer_early", "needed early, by", None),
    ("short", "A +g S -g C", "too_long", "that are independent of it", None),
    (
      *("chain", "A +g -g C", "no_slack"),
      *("either come before it or wait for it", {"Slices", "Strands"}),
    ),
    ("two", "+h +g B -g -h C", "queue", "was ahead of it on the", None),
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
def test_a_step_made_to_have_one_reason_has_that_one(
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
  # Beside some kernels it also is somewhat slower than alone.
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


def test_parts_are_as_long_as_what_a_free_place_would_hide(
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


def test_a_reason_names_the_instructions_and_lines_that_it_is_about(
  ordered: Ordered,
) -> None:
  two = ordered("two", "+h +g B -g -h C")
  assert explained_step.collective(two, "h") in _explained(two).why
  late = _explained(ordered("beside", "B A +g S -g C"))
  assert "(explained_step.py:" in late.why
  assert late.file.endswith("explained_step.py")
  both = ordered("combined", "+g K -g C D")
  (part,) = (p for p in _explained(both).parts if p.reason == "combined")
  entry = both.analysis.module.entry
  name = explained_step.collective(both, "g")
  (start,) = (i for i in entry.instructions if i.name == name)
  assert all(i.name in part.sentence for i in entry.operands(start))


def test_a_sync_collective_says_why_it_is(ordered: Ordered) -> None:
  between = ordered("two", "+h +g -g B -h C")
  name = explained_step.collective(between, "h")
  assert _explained(between).sync_because.startswith(f"{name} is in flight")
  chain = ordered("chain", "A +g -g C")
  assert "could run beside it" in _explained(chain).sync_because
  for computation in chain.analysis.module.proto.computations:
    for instruction in computation.instructions:
      instruction.metadata.scheduling_name = ""
  assert "latency-hiding scheduler did not" in _explained(chain).sync_because


def test_between_nodes_the_mesh_is_a_way_out(ordered: Ordered) -> None:
  within = ordered("chain", "A +g -g C")
  module = within.analysis.module
  between = step_lib.of_module(module, cluster_lib.parse("2x4xh100"))
  first, *_ = _explained(between).advice
  assert first.startswith("Mesh: it spans 2 nodes over infiniband.")
  assert "4 GPUs" in first
  assert not any(a.startswith("Mesh") for a in _explained(within).advice)


def test_weights_can_be_hidden_by_a_larger_batch(
  h100s: Sequence[jax.Device], scheduled: Callable[..., hlo.Module]
) -> None:
  def body(weight, x, other):
    gathered = _gather("g", weight)
    return _product("C", _product("S", x, other), gathered)

  shapes = (_THIN, (128, explained_step.SIZE), _SQUARE)
  module = scheduled(explained_step.lower(h100s, body, shapes))
  found = _explained(explained_step.ordered(module, "+g S -g C"))
  too_long_us = next(p.us for p in found.parts if p.reason == "too_long")
  assert found.hideable_us
  factor = 1 + too_long_us / found.hideable_us
  (batch,) = (text for text in found.advice if text.startswith("Batch"))
  assert f"With {factor:.1f} times the rows per GPU" in batch


@pytest.mark.parametrize("accumulates", [True, False])
def test_only_what_a_loop_adds_up_could_be_reduced_once(
  h100s: Sequence[jax.Device],
  scheduled: Callable[..., hlo.Module],
  accumulates: bool,
) -> None:
  def body(x, total):
    def trip(total, piece):
      with jax.named_scope("g"):
        reduced = jax.lax.psum_scatter(piece @ piece, "x", tiled=True)
      return (total + reduced, reduced) if accumulates else (total, reduced)

    total, reduced = jax.lax.scan(trip, total, x.reshape(4, *square))
    return total if accumulates else (total, reduced.reshape(-1, square[1]))

  square = (_THIN[0], _THIN[0])
  shapes = ((4 * square[0], square[1]), (square[0] // 8, square[1]))
  module = scheduled(explained_step.lower(h100s, body, shapes))
  step = step_lib.of_module(module, cluster_lib.parse(explained_step.CLUSTER))
  # What is stacked and not added up, XLA may pipeline over the trips.
  collectives = explaining.of_step(step).before.collectives
  assert {c.kind for c in collectives} == {"reduce-scatter"}
  assert sum(c.executions for c in collectives) == 4
  advice = [text for c in collectives for text in c.advice]
  said = any(text.startswith("Accumulation") for text in advice)
  assert said == accumulates


@pytest.mark.parametrize("form", ["whole", "mapped", "gathered", "library"])
def test_a_kernel_that_xla_gathers_for_is_to_be_mapped_over_shards(
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

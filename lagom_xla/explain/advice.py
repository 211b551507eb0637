# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Advice on what a user could change where no flag helps: model, mesh, strands.

Each piece is given only where the module shows that it applies, with what it
could hide at most, or what the collective would then take, as predicted.
"""

from __future__ import annotations

from collections.abc import Iterator
import dataclasses

from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import in_words
from lagom_xla.explain import parts as parts_lib
from lagom_xla.explain import sentences
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import hlo
from lagom_xla.search.xla import knobs

_ms = in_words.milliseconds
# Pieces that a product and its collective are thought to be cut into.
_NUM_PIECES = 4
# Of what is exposed, the least that is worth a sentence.
_LEAST_SHARE = 0.05
# Kernels that weights go into and gradients come out of.
_PRODUCTS = ("gemm", "convolution", "attention")

# The target of kernels that Pallas makes with Triton.
_PALLAS = "__gpu$xla.gpu.triton"

# Parts that another order of the same program would hide.
_BY_ORDER: tuple[parts_lib.Reason, ...] = (
  *("sync", "started_late", "awaited_early"),
  *("operand_late", "consumer_early"),
)
# Those for which other kernels, or less to send, are needed.
_BY_PROGRAM: tuple[parts_lib.Reason, ...] = (
  *("stream_busy", "too_long", "no_slack"),
)


def of(subject: sentences.Subject) -> tuple[str, ...]:
  """What could be changed for a collective, the plainest first."""
  us = subject.parts.us
  least_us = _LEAST_SHARE * subject.parts.exposed_us
  found = [*_kernel(subject)]
  if (combined_us := us.get("combined", 0.0)) > least_us:
    found.append(
      "Combining: array by array, each sent as soon as it is there, it would be"
      f" exposed {_ms(combined_us)} less. `lagom-xla tune` tries thresholds,"
      " and with --in-process groups."
    )
  found += _pipelining(subject)
  if (ordered_us := sum(us.get(r, 0.0) for r in _BY_ORDER)) > least_us:
    said = f"Order: another one could hide up to {_ms(ordered_us)} of it"
    way = "; `lagom-xla tune --in-process` looks for one."
    if not subject.is_latency_hidden:
      way = (
        ". XLA's latency-hiding scheduler did not run;"
        " xla_gpu_enable_latency_hiding_scheduler turns it on."
      )
    found.append(said + way)
  left_us = sum(us.get(r, 0.0) for r in _BY_PROGRAM)
  if left_us > least_us:
    found += _mesh(subject)
    found += _accumulation(subject)
    found += _batch(subject)
    found += _slices(subject, left_us)
    found += _strands(subject, left_us)
  return tuple(found)


def _kernel(subject: sentences.Subject) -> Iterator[str]:
  """Kernel: a custom call that XLA gathers for, as it cannot partition it."""
  user, kernel = subject.user, subject.kernel(subject.user)
  if subject.collective.kind != "all-gather" or user is None or kernel is None:
    return
  target = user.custom_call_target
  # What begins so is a library's, which has other ways to be divided.
  is_own = target.startswith(_PALLAS) or not target.startswith("__")
  if not target or kernel.category != "other" or not is_own:
    return
  start = subject.place.computation.by_id[subject.collective.start_id]
  if start.metadata.op_name.endswith("all_gather"):
    return  # The program has it so.
  yield (
    f"Kernel: XLA cannot partition {subject.named(user)}, a custom call, so it"
    " gathers the operand, and each GPU computes the whole. Where parts are"
    " independent, jax.shard_map around the call has each GPU compute its own,"
    " and nothing to gather."
  )


def _pipelining(subject: sentences.Subject) -> Iterator[str]:
  """Pipelining: what a loop could start a trip earlier, or await one later."""
  collective, place = subject.collective, subject.place
  # XLA would have pipelined a reduce-scatter that it did not make itself.
  made_of, *_ = knobs.PIPELINED_AS.get(collective.kind, (collective.kind,))
  option = knobs.PIPELINED.get(made_of)
  if option is None or collective.is_pipelined or collective.executions < 2:
    return
  trip, bound = (
    "awaited a trip later, beside the products of the next one",
    place.needing,
  )
  if collective.kind == "all-gather":
    trip, bound = (
      "started a trip earlier, beside the products of the one before",
      place.needed,
    )
  products = _products(subject)
  if products and not bound[products].any():
    yield (
      f"Pipelining: in its loop it could be {trip}; {option} does that, and"
      " `lagom-xla tune` tries it."
    )


def _mesh(subject: sentences.Subject) -> Iterator[str]:
  """Mesh: as many bytes over the GPUs of one node, if it spans several."""
  key, cluster = subject.key, subject.step.cluster
  if key.num_nodes < 2:
    return
  num_ranks = min(key.num_ranks, cluster.gpus_per_node)
  within = dataclasses.replace(key, num_nodes=1, num_ranks=num_ranks)
  setting = collective_lib.default_setting(within, cluster)
  runs = subject.collective.executions
  yield (
    f"Mesh: it spans {key.num_nodes} nodes over {cluster.node.fabric}. On an"
    f" axis within a node, {num_ranks} GPUs, as many bytes take"
    f" {_ms(runs * subject.step.predict(within, setting).time_us)} alone"
    f" instead of {_ms(runs * subject.lone_us)}."
  )


def _accumulation(subject: sentences.Subject) -> Iterator[str]:
  """Accumulation: what a loop reduces in each trip only to add it up."""
  collective = subject.collective
  if collective.executions < 2 or not _adds_up(subject):
    return
  yield (
    f"Accumulation: a loop reduces in each of its {collective.executions:,}"
    " trips what it then adds up. Summed on each GPU first and reduced once,"
    f" that takes {_ms(subject.lone_us)} alone instead of"
    f" {_ms(collective.executions * subject.lone_us)}, and memory for the sum."
  )


def _batch(subject: sentences.Subject) -> Iterator[str]:
  """Batch: of weights and gradients the bytes stay, and kernels grow."""
  hideable_us = subject.parts.hideable_us
  too_long_us = subject.parts.us.get("too_long", 0.0)
  if not too_long_us or not hideable_us:
    return
  products, place = _products(subject), subject.place
  # Weights are gathered before all products, and gradients come after all.
  if place.needed[products].any() == place.needing[products].any():
    return
  factor = 1 + too_long_us / hideable_us
  yield (
    "Batch: it moves weights or gradients, whose bytes do not grow with the"
    f" batch. With {factor:.1f} times the rows per GPU the kernels beside it"
    " would be long enough, if they grow as much."
  )


def _products(subject: sentences.Subject) -> list[int]:
  """Positions of the products of its computation."""
  kernels = subject.step.analysis.kernels
  return [
    at
    for at, i in enumerate(subject.place.computation.instructions)
    if i.id in kernels and kernels[i.id].category in _PRODUCTS
  ]


def _slices(subject: sentences.Subject, left_us: float) -> Iterator[str]:
  """Slices: a product next to it, cut in pieces together with it."""
  for instruction in (subject.user, subject.maker):
    kernel = subject.kernel(instruction)
    if instruction is None or kernel is None or kernel.category != "gemm":
      continue
    product_us = subject.step.kernel_cost(kernel).time_us
    runs = subject.collective.executions
    hidden_us = min(left_us, runs * product_us) * (1 - 1 / _NUM_PIECES)
    yield (
      f"Slices: {subject.named(instruction)} is a product right beside it. In"
      f" {_NUM_PIECES} pieces, each sent while another is computed, up to"
      f" {_ms(hidden_us)} of it could hide; `--in-process` tries that."
    )
    return


def _strands(subject: sentences.Subject, left_us: float) -> Iterator[str]:
  """Strands: kernels of another micro-batch, which are independent of it."""
  bound_us = subject.parts.bound_kernels_us
  hidden_us = min(left_us, bound_us / 2)
  if hidden_us <= _LEAST_SHARE * left_us:
    return
  yield (
    "Strands: of two micro-batches that share a loop, each half of these"
    f" {_ms(bound_us)} of kernels, one computes while the other communicates:"
    f" up to {_ms(hidden_us)} could hide. lagom_xla.micro_batches"
    " splits a batch, and `--in-process` tries to merge the loops"
    " (docs/strands.md)."
  )


_REDUCTIONS = frozenset(["all-reduce", "reduce-scatter"])
# What a kernel may do beside adding, so that sums can be taken first.
_ALLOWED = frozenset(
  [*("add", "convert", "fusion", "reshape", "copy"), *collectives_lib.NOPS]
)


def _adds_up(subject: sentences.Subject) -> bool:
  """Whether a loop's trips reduce values only to add them up.

  The instruction that takes the result then adds, reads a value that the loop
  carries, and is what the loop carries on in its place.
  """
  if subject.collective.kind not in _REDUCTIONS or subject.user is None:
    return False
  computation, user = subject.place.computation, subject.user
  computations = subject.step.analysis.module.computations
  opcodes = {user.opcode}.union(
    *(computations[id_].opcodes for id_ in user.called_computation_ids)
  )
  if "add" not in opcodes or not opcodes <= _ALLOWED:
    return False
  carried = {_carried(computation, i) for i in computation.operands(user)}
  root = computation.root
  returned = {
    at
    for at, made in enumerate(computation.operands(root))
    if computation.behind(made, collectives_lib.NOPS).id == user.id
  }
  return root.opcode == "tuple" and not carried.isdisjoint(returned)


def _carried(computation: hlo.Computation, operand: hlo.Instruction) -> int:
  """Index of the value of the loop that an operand is; -1 if it is none."""
  taken = computation.behind(operand, ("bitcast",))
  if taken.opcode != "get-tuple-element":
    return -1
  (of,) = computation.operands(taken)
  return taken.tuple_index if of.opcode == "parameter" else -1

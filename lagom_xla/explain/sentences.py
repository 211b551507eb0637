# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sentences on an exposed collective: the reasons, and advice.

Most advice is for cases without a helpful flag: model, mesh, strands. It is
given only if the module shows that it applies. It includes the most that it
could hide, or the predicted time of the collective after the change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import math

from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import in_words
from lagom_xla.costs import step as step_lib
from lagom_xla.explain import explanation as explanation_lib
from lagom_xla.explain import parts as parts_lib
from lagom_xla.flags import collective_routes
from lagom_xla.flags import options as xla_options
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo
from lagom_xla.passes import kernels as kernels_lib
from lagom_xla.passes import provenance
from lagom_xla.passes import source_lines
from lagom_xla.search.xla import knobs

# Number of innermost scopes to show.
_NUM_SCOPES = 2

# Reasons as they appear in tables.
REASONS: Mapping[parts_lib.Reason, str] = {
  "slowed": "slowed by kernels beside it",
  "queue": "queued behind another collective",
  "sync": "runs synchronously",
  "started_late": "started later than possible",
  "awaited_early": "awaited before its first use",
  "combined": "combined with others",
  "operand_late": "operand ready late",
  "consumer_early": "result needed early",
  "stream_busy": "kernels already hide others",
  "merged": "matmuls merged",
  "too_long": "longer than independent kernels",
  "no_slack": "no independent kernels",
}


def what(collective: collectives_lib.Collective, platform: str = "GPU") -> str:
  """A description of a collective."""
  kind, num_bytes = collective.kind, collective.nccl_bytes
  if not collective.group_size:
    return f"{kind} of {in_words.megabytes(num_bytes)}"
  return in_words.tuning_key(kind, num_bytes, collective.group_size, platform)


def moved(arrays: Sequence[provenance.Array], *, is_told: bool = False) -> str:
  """The arrays that a collective moves; "" if unknown.

  Names only the first of several arrays.

  Args:
    arrays: the arrays that it moves.
    is_told: whether the text is part of a sentence; else of a table.
  """
  known = [array for array in arrays if array.kind != "unknown"]
  if not known or len(known) < len(arrays):
    return ""
  first, num_others = known[0], len(known) - 1
  more = f" and {in_words.count(num_others, 'more array')}" * bool(num_others)
  return f"{first.in_words if is_told else first}{more}"


def place(line: source_lines.SourceLine) -> str:
  """A source line with the innermost scopes around it."""
  at = str(line.frames[0]) if line.frames else ""
  layer = "/".join(line.layer.split("/")[-_NUM_SCOPES:])
  return ", ".join(filter(None, (at, layer)))


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Commands:
  """The commands that try what advice says; "" for what was already tried.

  Attributes:
    options: the command that tries options.
    in_process: the command that also tries rewrites of the program.
  """

  options: str = "lagom-xla tune"
  in_process: str = "lagom-xla tune --in-process"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
  """An exposed collective of a step.

  `is_latency_hidden`: whether XLA's latency-hiding scheduler scheduled the
  step. `commands`: the commands that advice names.
  """

  step: step_lib.Step
  place: parts_lib.Place
  parts: parts_lib.Parts
  lines: source_lines.SourceLines
  setting: collective_lib.Setting
  is_latency_hidden: bool
  commands: Commands

  @property
  def collective(self) -> collectives_lib.Collective:
    """The collective."""
    return self.place.collective

  @property
  def arrays(self) -> provenance.Arrays:
    """The provenance of its module's arrays."""
    return provenance.of(self.step.analysis.module)

  @property
  def key(self) -> collective_lib.TuningKey:
    """Its tuning key."""
    return self.step.key_of[self.collective.name]

  @property
  def lone_us(self) -> float:
    """The time of one run alone."""
    return self.step.cost_of(self.collective, self.setting).time_us

  @property
  def maker(self) -> hlo.Instruction | None:
    """The instruction that makes its last operand; None if not made here."""
    return self._at(self.place.span.ready)

  @property
  def user(self) -> hlo.Instruction | None:
    """The instruction that needs its result first; None if not needed here."""
    return self._at(self.place.span.used)

  def kernel(
    self, instruction: hlo.Instruction | None
  ) -> kernels_lib.Kernel | None:
    """The kernel that an instruction launches, if any."""
    kernels = self.step.analysis.kernels
    return None if instruction is None else kernels.get(instruction.id)

  def named(self, instruction: hlo.Instruction) -> str:
    """An instruction's source line, if it has one, with its name."""
    at = place(self.lines.of_own(instruction))
    return f"{at} ({instruction.name})" if at else instruction.name

  def _at(self, position: int) -> hlo.Instruction | None:
    instructions = self.place.computation.instructions
    is_here = 0 <= position < len(instructions)
    return instructions[position] if is_here else None


def lines(
  module_lines: source_lines.SourceLines,
  graph: dependencies.Graph,
  collective: collectives_lib.Collective,
) -> Sequence[source_lines.SourceLine]:
  """The source line of each array.

  It is the line of the first instruction that has one: the instruction that
  extracts the array from the collective's result, its maker, or its users.
  """
  computation = graph.computation
  start = computation.by_id[collective.start_id]
  num = collective.num_operands
  if num < 2 or len(start.operand_ids) != num:
    return [module_lines.of(computation, start)]
  done_id = collective.done_id
  parts = parts_lib.part_ids(
    graph, collective.start_id if done_id is None else done_id, num
  )
  found = []
  for operand_id, ids in zip(start.operand_ids, parts, strict=True):
    users = [user for id_ in ids for user in graph.users[id_]]
    near = (*ids, operand_id, *users)
    own = (module_lines.of_own(computation.by_id[id_]) for id_ in near)
    found.append(next(filter(None, own), source_lines.SourceLine()))
  return found


def _combined(subject: Subject) -> str:
  """How many arrays XLA combined, the last one ready, the first one needed."""
  computation = subject.place.computation
  start = computation.by_id[subject.collective.start_id]
  spans = subject.place.arrays
  found = lines(subject.lines, subject.place.graph, subject.collective)

  def named(number: int) -> str:
    span, line = spans[number], found[number]
    name = (
      computation.instructions[span.ready].name
      if span.ready >= 0
      else computation.by_id[start.operand_ids[number]].name
    )
    return f"{place(line)} ({name})" if line else name

  first = min(range(len(spans)), key=lambda i: spans[i].used)
  last = max(range(len(spans)), key=lambda i: (spans[i].ready, i != first))
  ends = "that one is needed first"
  if first != last:
    ends = f"must be done when the first, {named(first)}, is needed"
  return (
    f"XLA combined {in_words.count(spans, 'array')}, so it cannot start before"
    f" the last, {named(last)}, is ready, and {ends}"
  )


def why(subject: Subject) -> str:
  """Why a sync collective is sync, as far as its schedule shows."""
  if not subject.is_latency_hidden:
    return "XLA's latency-hiding scheduler did not run"
  if subject.parts.hideable_us <= 0:
    return "no kernel in its computation is independent of it"
  computation = subject.place.computation
  others = [
    other.name
    for other in subject.step.analysis.collectives
    if other.form == "async"
    and other.computation == computation.name
    and computation.position[other.start_id]
    < subject.place.start
    < parts_lib.done_at(computation, other)
  ]
  if others:
    return (
      f"{in_words.some(others)} {'is' if len(others) == 1 else 'are'} in flight"
      " then, and XLA's scheduler keeps one collective in flight by default"
    )
  if "sync" not in subject.parts.us:
    return (
      "in this order no independent kernel runs between the last of its"
      " operands and the first use of its result"
    )
  return (
    "XLA's scheduler, by its own cost estimates, put no kernel between its"
    " start and its done"
  )


_ms = in_words.milliseconds
# Most parts in a sentence, and the least share of each.
_MOST_PARTS = 2
_LEAST_SHARE = 0.1
# Least share of a wait that a sentence attributes to "other reasons".
_LEAST_REST = 0.02


def of_parts(exposed_us: float, parts: tuple[explanation_lib.Part, ...]) -> str:
  """A sentence on the largest parts; "" if nothing is exposed."""
  if exposed_us <= 0 or not parts:
    return ""
  shown = [
    part for part in parts[:_MOST_PARTS] if part.us >= _LEAST_SHARE * exposed_us
  ] or list(parts[:1])
  said = "; ".join(f"{_ms(p.us)} because {p.sentence}" for p in shown)
  rest_us = exposed_us - sum(part.us for part in shown)
  is_told = rest_us > max(0.5, _LEAST_REST * exposed_us)
  more = f"; {_ms(rest_us)} for other reasons" if is_told else ""
  return f"{said}{more}."


def of_part(subject: Subject, reason: parts_lib.Reason) -> str:
  """Why a part of a collective's time is exposed: a clause after "because"."""
  maker, user = subject.maker, subject.user
  home = subject.collective.computation
  made, used = (subject.named(i) if i else "" for i in (maker, user))
  match reason:
    case "slowed":
      return "kernels beside it take memory bandwidth from it"
    case "queue":
      started_by = subject.step.analysis.started_by
      together = {c.name for c in started_by[subject.collective.start_id]}
      if together.issuperset(subject.parts.ahead_us):
        most = _most(subject.parts.ahead_us)
        return f"it starts together with {most}, which is counted first"
      return (
        f"it queued behind {_most(subject.parts.ahead_us)} on the communication"
        " stream"
      )
    case "sync":
      return f"it runs synchronously, as {why(subject)}"
    case "started_late":
      ready = f"after {made}" if made else f"when {home} begins"
      return f"its operands are ready {ready}, but XLA starts it later"
    case "awaited_early":
      needs = f"{used} needs it" if used else f"the end of {home}"
      return f"XLA waits for it before {needs}"
    case "combined":
      return _combined(subject)
    case "operand_late":
      return (
        f"{made} makes its operand, in XLA's order after the"
        f" {_independent(subject, reason)} that could hide it"
      )
    case "consumer_early":
      return (
        f"{used} needs it, in XLA's order before the next"
        f" {_independent(subject, reason)}, which could hide it"
      )
    case "stream_busy":
      return (
        "the kernels that could hide it already hide others, such as"
        f" {_most(subject.parts.beside_us)}"
      )
    case "merged":
      product, merged = _merged(subject)
      return (
        f"XLA merged matmuls that share an operand into {product}, which waits"
        f" for all {len(merged.elements)} of their arrays"
      )
    case "too_long":
      lone_us = subject.lone_us * subject.collective.executions
      return (
        f"it takes {_ms(lone_us)}, and all independent kernels together take"
        f" {_ms(subject.parts.hideable_us)}"
      )
    case "no_slack":
      return (
        "every kernel in its computation either feeds it or needs its result"
      )


def _independent(subject: Subject, reason: parts_lib.Reason) -> str:
  """The number of independent kernels that would hide a part, in words."""
  number = subject.parts.num_kernels.get(reason, 1)
  kernel = "independent kernel"
  return kernel if number == 1 else in_words.count(number, kernel)


def _merged(subject: Subject) -> tuple[str, kernels_lib.MergedProduct]:
  """The name of the merged product with the largest part, and the product."""
  us, analysis = subject.parts.merged_us, subject.step.analysis
  at = subject.place.computation.instructions[max(us, key=lambda p: us[p])]
  found = kernels_lib.merged_products(analysis.module, analysis.kernels)
  merged = next(m for m in found if m.kernel.instruction_id == at.id)
  return subject.named(at), merged


def _most(others_us: Mapping[str, float]) -> str:
  """The other collective with the largest share."""
  if not others_us:
    return "another"
  name = max(others_us, key=lambda other: others_us[other])
  more = len(others_us) - 1
  return f"{name} (and {more:,} more)" if more else name


# Assumed number of pieces of a sliced product and its collective.
_NUM_PIECES = 4
# Least share of the exposed time for a sentence.
_LEAST_ADVISED = 0.05
# Kernels that use weights and make gradients.
_PRODUCTS = ("gemm", "convolution", "attention")

# The custom call target of Pallas kernels with Triton.
_PALLAS = "__gpu$xla.gpu.triton"

# Parts that another order of the same program would hide.
_BY_ORDER: tuple[parts_lib.Reason, ...] = (
  *("sync", "started_late", "awaited_early"),
  *("operand_late", "consumer_early"),
)
# Parts that need other kernels, or less data to send.
_BY_PROGRAM: tuple[parts_lib.Reason, ...] = (
  *("stream_busy", "too_long", "no_slack"),
)


def advice(subject: Subject) -> tuple[str, ...]:
  """Advice on a collective, the simplest first, without what was tried."""
  us = subject.parts.us
  least_us = _LEAST_ADVISED * subject.parts.exposed_us
  found = [*_kernel(subject), *_accumulation(subject)]
  if (combined_us := us.get("combined", 0.0)) > least_us and (
    ways := [*_ways_to_combine(subject.commands)]
  ):
    found.append(
      "Combining: sent one by one, each array as soon as it is ready, kernels"
      f" would wait {_ms(combined_us)} less. {'; '.join(ways)}."
    )
  if subject.commands.options:
    found += _by_options(subject, least_us)
  left_us = between_products_us(subject)
  if left_us > least_us:
    found += _mesh(subject)
    found += _batch(subject)
    found += _slices(subject, left_us)
    found += _strands(subject, left_us)
  return tuple(found)


def _ways_to_combine(commands: Commands) -> Iterator[str]:
  if commands.options:
    yield f"`{commands.options}` tries combiner thresholds"
  if commands.in_process:
    yield f"`{commands.in_process}` tries groups of collectives"


def _by_options(subject: Subject, least_us: float) -> Iterator[str]:
  """What options may change: `tune` tries all of it."""
  us, tune = subject.parts.us, subject.commands.options
  if (merged_us := us.get("merged", 0.0)) > least_us:
    product, merged = _merged(subject)
    yield (
      f"Merging: XLA merged matmuls into {product}. Kept separate, the"
      " matmuls that do not need this collective could hide"
      f" {_ms(merged_us)} of it."
      f" {knobs.MERGER}={knobs.merger_limit_mib(merged)} keeps them separate;"
      f" `{tune}` tries that."
    )
  yield from _communicator(subject)
  yield from _fabrics(subject)
  yield from _pipelining(subject)
  if (ordered_us := sum(us.get(r, 0.0) for r in _BY_ORDER)) > least_us:
    way = f"`{tune}` tries flags that may make XLA choose one."
    if not subject.is_latency_hidden:
      way = (
        "XLA's latency-hiding scheduler did not run, and"
        " xla_gpu_enable_latency_hiding_scheduler=true turns it on."
      )
    yield (
      f"Order: another order could hide up to {_ms(ordered_us)} of it; {way}"
    )


def _kernel(subject: Subject) -> Iterator[str]:
  """Kernel: a custom call that XLA cannot partition, and so gathers for."""
  user, kernel = subject.user, subject.kernel(subject.user)
  if subject.collective.kind != "all-gather" or user is None or kernel is None:
    return
  target = user.custom_call_target
  # "__" marks library calls, which are partitioned in other ways.
  is_own = target.startswith(_PALLAS) or not target.startswith("__")
  if not target or kernel.category != "other" or not is_own:
    return
  start = subject.place.computation.by_id[subject.collective.start_id]
  if start.metadata.op_name.endswith("all_gather"):
    return  # The program gathers explicitly.
  yield (
    f"Kernel: XLA cannot partition {subject.named(user)}, a custom call, so it"
    " gathers the operand and each GPU computes everything. If the parts are"
    " independent, wrap the call in jax.shard_map: each GPU then computes its"
    " own part and nothing is gathered."
  )


def _communicator(subject: Subject) -> Iterator[str]:
  """Communicator: a permute with few channels in a communicator of all GPUs."""
  apart, key = subject.step.permuting_apart, subject.key
  if apart is None or key not in subject.step.permuting:
    return
  runs = subject.collective.executions
  apart_us = runs * apart.predict(key, apart.default[key]).time_us
  yield (
    "Communicator: XLA runs it in a communicator of all GPUs, where NCCL gives"
    f" each pair {in_words.count(subject.setting.num_channels, 'channel')}. In"
    f" a communicator of the {key.num_ranks} GPUs that exchange data it takes"
    f" {_ms(apart_us)} instead of {_ms(runs * subject.lone_us)}:"
    f" {collective_routes.CONNECTED} does that;"
    f" `{subject.commands.options}` tries it."
  )


def _fabrics(subject: Subject) -> Iterator[str]:
  """Fabrics: a collective that waits for others on another network."""
  step, num_nodes = subject.step, subject.key.num_nodes
  ahead_us = sum(
    us
    for name, us in subject.parts.ahead_us.items()
    if (step.key_of[name].num_nodes > 1) != (num_nodes > 1)
  )
  if ahead_us <= _LEAST_ADVISED * subject.parts.exposed_us:
    return
  here, there = "within nodes", "between nodes"
  if num_nodes > 1:
    here, there = there, here
  yield (
    f"Fabrics: it runs {here} and waits {_ms(ahead_us)} for collectives"
    f" {there} on the same stream. {knobs.FABRICS}=scale_up_fabric (JAX 0.12"
    " and newer) runs the two side by side;"
    f" `{subject.commands.options}` tries it."
  )


def _pipelining(subject: Subject) -> Iterator[str]:
  """Pipelining: a collective that could start or be awaited in another trip."""
  collective, place = subject.collective, subject.place
  # XLA pipelines the program's own reduce-scatters by default, so this one was
  # made from an all-reduce.
  made_of, *_ = knobs.PIPELINED_AS.get(collective.kind, (collective.kind,))
  option = knobs.PIPELINED.get(made_of)
  if option is None or collective.is_pipelined or collective.executions < 2:
    return
  if not knobs.offered([knobs.Value(label="", options={option: True})]):
    return  # It is on, and XLA did not pipeline this one.
  trip, bound = (
    "awaited one trip later, beside the next trip's matmuls",
    place.needing,
  )
  if collective.kind == "all-gather":
    trip, bound = (
      "started one trip earlier, beside the previous trip's matmuls",
      place.needed,
    )
  products = _products(subject)
  if products and not bound[products].any():
    flag = xla_options.xla_flags({option: True})
    yield (
      f"Pipelining: in its loop it could be {trip}; {flag} does that."
      f" `{subject.commands.options}` tries it."
    )


def _mesh(subject: Subject) -> Iterator[str]:
  """Mesh: the same bytes within one node, for a collective across nodes."""
  key, cluster = subject.key, subject.step.cluster
  num_ranks = min(key.num_ranks, cluster.gpus_per_node)
  if key.num_nodes < 2 or num_ranks < 2:
    return
  within = dataclasses.replace(key, num_nodes=1, num_ranks=num_ranks)
  setting = collective_lib.default_setting(within, cluster)
  runs = subject.collective.executions
  within_us = subject.step.predict(within, setting).time_us
  least_us = _LEAST_ADVISED * subject.parts.exposed_us
  if runs * (subject.lone_us - within_us) < least_us:
    return
  kinds = {array.kind for array in subject.arrays.moved(subject.collective)}
  price = ""
  if num_ranks == key.num_ranks:
    price = " Other traffic that is now within nodes would then cross nodes."
  elif kinds & provenance.OF_ANY_BATCH:
    if key.kind == "all-reduce":
      return  # Data parallelism needs all GPUs.
    price = (
      f" Each GPU would hold {key.num_ranks / num_ranks:,.2g} times as much of"
      " the arrays sharded over that axis."
    )
  yield (
    f"Mesh: it spans {key.num_nodes} nodes over {cluster.node.fabric}. On a"
    f" mesh axis within a node ({num_ranks} GPUs), the same bytes would take"
    f" {_ms(runs * within_us)} alone instead of"
    f" {_ms(runs * subject.lone_us)}.{price}"
  )


def _accumulation(subject: Subject) -> Iterator[str]:
  """Accumulation: a reduction in each trip of a loop that sums the results."""
  collective, lone_us = subject.collective, subject.lone_us
  runs, trips = collective.executions, subject.arrays.trips_added_up(collective)
  if trips < 2 or runs < trips:
    yield from _written_sums(subject)
    return
  once = runs // trips
  yield (
    f"Accumulation: a loop reduces in each of its {trips:,} trips, and then"
    f" adds up the results, in {in_words.count(runs, 'run')}. If each GPU sums"
    f" first and you reduce after the loop, in {in_words.count(once, 'run')},"
    f" that takes {_ms(once * lone_us)} alone instead of"
    f" {_ms(runs * lone_us)}{_more_memory(subject)}: put jax.shard_map around"
    f" the loop and {_SUMS_OF[collective.kind]} after it."
  )


def _more_memory(subject: Subject) -> str:
  num_bytes = subject.arrays.bytes_if_summed_first(subject.collective)
  if not num_bytes:
    return ""
  return f", and {in_words.gigabytes(num_bytes)} more for unreduced sums"


def _written_sums(subject: Subject) -> Iterator[str]:
  """Like `_accumulation`, for unrolled micro-batches."""
  collective = subject.collective
  number, runs = subject.arrays.num_added_up(collective), collective.executions
  if number < 2:
    yield from _stacked_sums(subject)
    return
  lone_us = runs * subject.lone_us
  yield (
    f"Accumulation: the results of this one and {number - 1} more are only"
    " added up. If each GPU sums first and you reduce once, that takes"
    f" {_ms(lone_us)} alone instead of {_ms(number * lone_us)}"
    f"{_more_memory(subject)}: use jax.shard_map with one"
    f" {_SUMS_OF[collective.kind]} after the sum."
  )


def _stacked_sums(subject: Subject) -> Iterator[str]:
  """Like `_accumulation`, for stacked micro-batches."""
  collective, key = subject.collective, subject.key
  number, runs = (
    subject.arrays.parts_added_up(collective),
    collective.executions,
  )
  if number < 2:
    return
  once_us = runs * subject.lone_us / number  # If each trip reduces one part.
  if runs % number:
    sums = dataclasses.replace(key, num_bytes=key.num_bytes // number)
    once_us = runs * subject.step.predict(sums, subject.setting).time_us
  yield (
    f"Accumulation: it reduces the {number:,} parts of a stack, which are only"
    " added up afterwards. Added up on each GPU first, that takes"
    f" {_ms(once_us)} alone instead of {_ms(runs * subject.lone_us)}:"
    f" jax.shard_map, with one {_SUMS_OF[collective.kind]} after the sum."
  )


# JAX's names of reductions.
_SUMS_OF = {"all-reduce": "psum", "reduce-scatter": "psum_scatter"}


# Largest advised factor. Below _MANY_TIMES, it is shown as a percentage.
_MOST_ROWS = 10
_MANY_TIMES = 2


def _batch(subject: Subject) -> Iterator[str]:
  """Batch: more rows lengthen kernels, but not parameters and gradients."""
  hideable_us = subject.parts.hideable_us
  too_long_us = subject.parts.us.get("too_long", 0.0)
  arrays = subject.arrays.moved(subject.collective)
  if not too_long_us or not hideable_us or not arrays:
    return
  if not provenance.OF_ANY_BATCH.issuperset(array.kind for array in arrays):
    return
  factor = 1 + too_long_us / hideable_us
  if too_long_us < _LEAST_ADVISED * subject.parts.exposed_us:
    return
  if factor > _MOST_ROWS:
    return
  rows = f"{factor:,.1f} times the rows"
  if factor < _MANY_TIMES:
    rows = f"{math.ceil(100 * (factor - 1))} % more rows"
  yield (
    f"Batch: it moves {moved(arrays, is_told=True)}, whose size does not depend"
    f" on the batch. With {rows} per GPU the kernels beside it would be long"
    " enough to hide it, if they grow with the rows."
  )


def _products(subject: Subject) -> list[int]:
  """Positions of matrix products in the collective's computation."""
  kernels = subject.step.analysis.kernels
  return [
    at
    for at, i in enumerate(subject.place.computation.instructions)
    if i.id in kernels and kernels[i.id].category in _PRODUCTS
  ]


def _slices(subject: Subject, left_us: float) -> Iterator[str]:
  """Slices: the collective and an adjacent product, cut in pieces."""
  if not subject.commands.in_process:
    return
  for instruction, hidden_us in _sliced(subject, left_us):
    yield (
      f"Slices: {subject.named(instruction)} is an adjacent matmul."
      f" Cut in {_NUM_PIECES} pieces, each sent while another is computed, they"
      f" could hide up to {_ms(hidden_us)} of it;"
      f" `{subject.commands.in_process}` tries that."
    )


def _sliced(
  subject: Subject, left_us: float
) -> Iterator[tuple[hlo.Instruction, float]]:
  """A product next to the collective, and the most that slicing could hide."""
  for instruction in (subject.user, subject.maker):
    kernel = subject.kernel(instruction)
    if instruction is None or kernel is None or kernel.category != "gemm":
      continue
    product_us = subject.step.kernel_cost(kernel).time_us
    runs = subject.collective.executions
    yield (
      instruction,
      min(left_us, runs * product_us) * (1 - 1 / _NUM_PIECES),
    )
    return


def between_products_us(subject: Subject) -> float:
  """Exposed time that another order of this program cannot hide."""
  return sum(subject.parts.us.get(reason, 0.0) for reason in _BY_PROGRAM)


def in_process_us(subject: Subject) -> float:
  """The most of `between_products_us` that strands or slices could hide."""
  left_us = between_products_us(subject)
  stranded_us = min(left_us, subject.parts.bound_kernels_us / 2)
  return max(stranded_us, *(us for _, us in _sliced(subject, left_us)), 0.0)


def _strands(subject: Subject, left_us: float) -> Iterator[str]:
  """Strands: kernels of another micro-batch, which are independent."""
  bound_us = subject.parts.bound_kernels_us
  hidden_us = min(left_us, bound_us / 2)
  if hidden_us <= _LEAST_ADVISED * left_us or not subject.commands.in_process:
    return
  yield (
    "Strands: split the batch in two with lagom_xla.micro_batches, and one half"
    " can compute while the other communicates. Of the"
    f" {_ms(bound_us)} of kernels around it, that could hide up to"
    f" {_ms(hidden_us)}; `{subject.commands.in_process}` tries it"
    " (docs/strands.md)."
  )

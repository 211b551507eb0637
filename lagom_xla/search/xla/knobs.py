# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA's knobs: the options that a search chooses, once per module.

Each value of a knob sets a few XLA options. A search tries only values that can
affect the module's collectives and loops on its GPUs. jaxlib versions differ in
the options that they accept, in spellings and in defaults. `lagom-xla knobs`
lists the knobs.

*The latency-hiding scheduler* is on or off as XLA decides while its option is
unset: on if its speed-of-light model supports the GPU and every collective of
the module (SolLatencyEstimator's IsSupportedForModule), that is on Hopper and
Blackwell, without ragged-all-to-alls, broadcasts or host work. This differs
between versions, so `is_latency_hiding` reads the schedule: the scheduler
records its name for each instruction in the metadata.
"""

from __future__ import annotations

import collections
from collections.abc import (
  Callable,
  Collection,
  Iterable,
  Iterator,
  Mapping,
  Sequence,
)
import dataclasses
import math

import jax

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.costs import in_words
from lagom_xla.costs import step as step_lib
from lagom_xla.flags import collective_routes
from lagom_xla.flags import debug_options
from lagom_xla.flags import environment
from lagom_xla.flags import options as xla_options
from lagom_xla.flags import xla_kernels
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import kernels as kernels_lib
from lagom_xla.passes.combine import table
from lagom_xla.search.xla import memory_limit

SCHEDULER = "xla_gpu_enable_latency_hiding_scheduler"
# Speed-of-light estimates. They also turn the scheduler on if it is unset.
ESTIMATES = "xla_gpu_enable_analytical_sol_latency_estimator"


def is_latency_hiding(module: hlo.Module) -> bool:
  """Whether the latency-hiding scheduler scheduled a module."""
  return any(
    instruction.metadata.scheduling_name for instruction in module.instructions
  )


XlaOptions = Mapping[str, bool | int | str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Value:
  """One value of a knob.

  Attributes:
    label: a short description.
    options: the options that it sets, as the installed jaxlib spells them.
    beside: an option that it needs to have an effect; "" for none.
    is_first: whether to compile it before all others.
    is_last: whether to compile it after all others.
  """

  label: str
  options: XlaOptions
  beside: str = ""
  is_first: bool = False
  is_last: bool = False


def offered(values: Iterable[Value]) -> tuple[Value, ...]:
  """The values that the installed jaxlib has and that change something.

  Leaves out values that are set already and options that XLA_FLAGS cannot
  change.
  """
  values = tuple(values)
  try:
    debug_options.options()
  except errors.OptionsError:
    return values  # XLA refuses unknown options, and the refusal is recorded.
  found = []
  for value in values:
    options = _changing(_as_installed(value.options))
    if options and options.keys() - environment.already(options):
      found.append(dataclasses.replace(value, options=options))
  return tuple(found)


def _as_installed(options: XlaOptions) -> XlaOptions | None:
  """Options as the installed jaxlib spells them; None if it lacks one."""
  translated: dict[str, bool | int | str] = {}
  for name, value in options.items():
    match xla_options.translate(name, value):
      case str():
        return None
      case known, converted:
        assert not isinstance(converted, float)  # No knob or plan has floats.
        translated[known] = converted
  return translated


def _changing(options: XlaOptions | None) -> XlaOptions | None:
  """The options that can change; None if a fixed one has another value."""
  fixed = environment.unchangeable()
  if options is None or any(
    fixed.get(name, value) != value for name, value in options.items()
  ):
    return None
  return {n: v for n, v in options.items() if n not in fixed}


# XLA's options by kind of collective, for kinds with replica groups.
OPTIONS = {
  kind: option
  for kind, option in table.COMBINERS.items()
  if kind != "collective-permute"
}

_MIB = 2**20
# Thresholds to try: 0, which combines nothing, and values around those of
# published recipes (128 MiB to 8 GiB; no recipe explains its choice).
CHOICES_BYTES = (
  0,
  8 * _MIB,
  128 * _MIB,
  512 * _MIB,
  1024 * _MIB,
  2048 * _MIB,
)


def thresholds_worth_trying(
  collectives: Sequence[collectives_lib.Collective], kind: str
) -> Iterator[int]:
  """Thresholds that can change how this kind is combined.

  Args:
    collectives: the module's collectives as XLA combined them.
    kind: a key of OPTIONS.
  """
  alike = [c for c in collectives if c.kind == kind]
  by_traits: dict[table.Traits, list[int]] = {}
  for c in alike:
    traits = table.traits_of_collective(c)
    by_traits.setdefault(traits, []).append(table.combined_bytes(c))
  # Sizes of separate collectives that XLA may combine.
  several = [sorted(sizes) for sizes in by_traits.values() if len(sizes) > 1]
  default_bytes = table.DEFAULT_BYTES
  combined = [c for c in alike if c.num_operands > 1]
  pairs_bytes = [_least_pair_bytes(c) for c in combined]
  largest_bytes = max(map(table.combined_bytes, combined), default=0)
  for threshold in CHOICES_BYTES:
    if threshold < default_bytes:
      # If no two arrays of a combined collective fit, it acts like zero.
      if pairs_bytes and (not threshold or min(pairs_bytes) <= threshold):
        yield threshold
      continue
    # It acts if two separate collectives fit, or if a combined one does not.
    two_fit = any(sum(sizes[:2]) <= threshold for sizes in several)
    if two_fit or largest_bytes > threshold:
      yield threshold
    most_bytes = max(map(sum, several), default=0)
    if max(most_bytes, largest_bytes) <= threshold:
      return


def _least_pair_bytes(combined: collectives_lib.Collective) -> int:
  """Bytes of a collective's two smallest arrays, as XLA's combiners count."""
  smallest = sum(sorted(combined.array_bytes)[:2])
  total = sum(combined.array_bytes)
  return table.combined_bytes(combined) * smallest // total if total else 0


MERGER = "xla_gpu_dot_merger_threshold_mb"
# The least share of a step's FLOPs in merged products that is worth a compile,
# and the most limits to compile.
_LEAST_MERGED_SHARE = 0.01
_MOST_LIMITS = 3


def merger_limit_mib(merged: kernels_lib.MergedProduct) -> int:
  """A limit under which XLA leaves these products unmerged, in MiB.

  XLA merges two products if one of them moves no more bytes than the limit. So
  this is the largest power of two below the bytes of the smallest product, or 0
  if that has at most 1 MiB. XLA of JAX 0.12 leaves out the shared operand.
  Twice XLA's default is not tried: of the 14 steps of benchmarks/search up to
  70B, it makes three 0.5 to 4.2 % slower and one 0.04 % faster, and does not
  affect the rest.
  """
  own_bytes, all_bytes = merged.least_bytes
  least_bytes = all_bytes if jax.__version_info__ < (0, 11) else own_bytes
  most_mib = math.ceil(least_bytes / _MIB) - 1
  return 2 ** (most_mib.bit_length() - 1) if most_mib else 0


def _merged_products(step: step_lib.Step) -> Iterator[Value]:
  """Lower limits, if XLA merged products of the step."""
  module, kernels = step.analysis.module, step.analysis.kernels
  flops: collections.Counter[int] = collections.Counter()
  for merged in kernels_lib.merged_products(module, kernels):
    kernel = merged.kernel
    flops[merger_limit_mib(merged)] += kernel.flops * kernel.executions
  least_flops = _LEAST_MERGED_SHARE * sum(
    kernel.flops * kernel.executions for kernel in kernels.values()
  )
  for limit_mib, merged_flops in flops.most_common(_MOST_LIMITS):
    if merged_flops >= least_flops:
      yield Value(
        label=f"matmuls merged up to {limit_mib} MiB",
        options={MERGER: limit_mib},
      )


_OVERLAP_LIMIT = "xla_gpu_experimental_parallel_collective_overlap_limit"
_AS_EARLY = "xla_gpu_experimental_collective_start_as_early_as_possible"
# Major compute capabilities that XLA's speed-of-light estimates support: Hopper
# and Blackwell.
_ESTIMATED = (9, 10)
# Collectives that they do not cover.
_UNESTIMATED = ("collective-broadcast", "ragged-all-to-all")


def is_on_if_unset(module: hlo.Module, gpu: cluster_lib.Gpu) -> bool:
  """Whether XLA turns the latency-hiding scheduler on while it is unset.

  As SolLatencyEstimator::IsSupportedForModule, for XLA's own estimates.
  """
  return gpu.compute_capability[0] in _ESTIMATED and not any(
    instruction.opcode in _UNESTIMATED
    or b"DEVICE_TYPE_HOST" in instruction.backend_config
    for instruction in module.instructions
  )


def scheduler_values(step: step_lib.Step) -> Iterator[Value]:
  """The latency-hiding scheduler, if another made the schedule."""
  if not is_latency_hiding(step.analysis.module):
    yield Value(
      label="latency-hiding scheduler",
      options={SCHEDULER: True},
    )


def overlap_limit(step: step_lib.Step) -> Iterator[Value]:
  """Limits on the number of collectives in flight at once."""
  if not is_latency_hiding(step.analysis.module):
    return  # No other scheduler reads it.
  yield from map(in_flight, (2, 4))
  # This needs a limit above 1, whichever the search kept.
  yield Value(
    label="collectives started as early as possible",
    options={_AS_EARLY: True},
    beside=_OVERLAP_LIMIT,
  )


def in_flight(limit: int) -> Value:
  """`limit` collectives in flight at once."""
  return Value(
    label=f"{limit} collectives in flight",
    options={_OVERLAP_LIMIT: limit},
  )


FABRICS = "xla_gpu_collective_domain_assignment"
_WITHIN_LIMIT = (
  "xla_gpu_experimental_parallel_scale_up_collective_overlap_limit"
)


_STREAMS = "xla_gpu_experimental_enable_collective_multi_streaming"
# kDefaultNumCommunicationStreams in XLA's
# xla/backends/gpu/runtime/execution_stream_id.h.
_NUM_STREAMS = 2


def num_streams(options: Mapping[str, object]) -> int:
  """Communication streams per domain, with options on top of XLA_FLAGS."""
  value = options.get(_STREAMS, environment.value(_STREAMS))
  return _NUM_STREAMS if str(value).lower() == "true" else 1


def spans_two_fabrics(step: step_lib.Step) -> bool:
  """Whether a step has collectives both within nodes and between them."""
  return len({key.num_nodes > 1 for key in step.keys}) == 2


def two_fabrics(step: step_lib.Step) -> Iterator[Value]:
  """Streams on which collectives run concurrently.

  XLA never overlaps two collectives that share more than one device
  (GpuScheduleCrossesOverlapLimit), so this needs several mesh axes.
  """
  if not is_latency_hiding(step.analysis.module):
    return  # No other scheduler keeps two in flight.
  collectives = step.analysis.collectives
  if len({c.groups for c in collectives}) > 1:
    yield Value(
      label="2 streams of collectives, 2 in flight",
      options={_STREAMS: True, _OVERLAP_LIMIT: 2},
    )
  if not spans_two_fabrics(step):
    return
  fabrics = {FABRICS: "scale_up_fabric"}
  label = "collectives within nodes beside those between nodes"
  yield Value(label=label, options=fabrics)
  within = {c.groups for c in collectives if step.key_of[c.name].num_nodes == 1}
  if len(within) > 1:
    # The limit has no effect without FABRICS.
    yield Value(
      label=f"{label}, 2 of them in flight",
      options={**fabrics, _WITHIN_LIMIT: 2},
    )


def fixed_costs(step: step_lib.Step) -> Iterator[Value]:
  """Fixed costs in place of estimates: five kernels hide any collective.

  XLA uses them where its estimates do not apply (SolLatencyEstimator in
  xla/service/gpu/model/sol_latency_estimator.cc).
  """
  is_estimated = step.cluster.gpu.compute_capability[0] in _ESTIMATED
  if is_estimated and is_latency_hiding(step.analysis.module):
    yield Value(
      label="scheduled by fixed costs",
      options={
        ESTIMATES: False,
        # Without estimates XLA leaves the scheduler off by default.
        SCHEDULER: True,
      },
      is_last=True,
    )


def memory_slop(step: step_lib.Step) -> Iterator[Value]:
  """Limits on the memory that the scheduler may use."""
  memory = memory_limit.of(step.analysis.module, step.cluster)
  # A limit far above a schedule's memory has no effect. A higher limit changes
  # only schedules that the default or the limit of XLA_FLAGS may have affected.
  is_short = memory.is_short or memory.may_heed(memory_limit.slop_percent({}))
  for percent, can_act in ((80, memory.may_heed(80)), (120, is_short)):
    if can_act:
      most_gb = memory.limit_bytes(percent) / 1e9
      yield Value(
        label=f"schedule within {percent} % of the memory, {most_gb:,.1f} GB",
        options={memory_limit.MEMORY_SLOP: percent},
        is_first=percent > 100,
      )


_FENCING = "xla_gpu_experimental_scheduler_memory_fencing_threshold_bytes"


def memory_fencing(step: step_lib.Step) -> Iterator[Value]:
  """Buffer sizes from which XLA runs the users before later collectives.

  Deferred weight gradients keep activations alive (openxla/xla#45929). At 0 XLA
  chooses the size; 1 MiB includes all but the smallest buffers.
  """
  module = step.analysis.module
  if (
    is_latency_hiding(module) and memory_limit.of(module, step.cluster).is_short
  ):
    yield Value(
      label="users of large buffers before later collectives",
      options={_FENCING: 0},
    )
    yield Value(
      label="users of buffers from 1 MiB before later collectives",
      options={_FENCING: _MIB},
    )


def _by_nccl(step: step_lib.Step) -> Iterator[Value]:
  """NCCL instead of XLA's own kernel for ragged-all-to-alls, if one gains.

  XLA's own kernels for all-reduces stay: at their small sizes, NCCL was slower
  in every measurement (costs/xla_kernels.py).
  """
  for name, kernel in step.own_kernels.items():
    key = step.key_of[name]
    own = step.prices.in_own_kernel(key, kernel)
    by_nccl = step.prices.collective(key, step.default[key])
    is_exchange = key.kind == "ragged-all-to-all"
    if is_exchange and by_nccl.time_us < own.time_us:
      yield Value(
        label="ragged-all-to-alls by NCCL instead of XLA's own kernel",
        options=xla_kernels.without_exchanges(),
        is_first=True,
      )
      return


def _permutes(step: step_lib.Step) -> Iterator[Value]:
  """Communicators of only the devices that exchange data."""
  if step.permuting_apart is not None:
    yield Value(
      label="permutes in communicators of the devices that exchange data",
      options={collective_routes.CONNECTED: True},
      is_first=True,
    )


def _local_copies(step: step_lib.Step) -> Iterator[Value]:
  """Copy engines for exchanges within a process, if they are faster."""
  if not (step.asked.copies_locally or step.cluster.processes_per_node > 1):
    asked = dataclasses.replace(step.asked, copies_locally=True)
    before, after = (
      each.timeline(each.default).step_time_us
      for each in (step, step.asking(asked))
    )
    if after < before:
      yield Value(
        label="exchanges within a process by copy engines",
        options={collective_routes.LOCAL_COPIES: True},
      )


# Kind of collective -> the option that pipelines it over loop iterations.
PIPELINED = {
  "all-gather": "xla_gpu_enable_pipelined_all_gather",
  "all-reduce": "xla_gpu_enable_pipelined_all_reduce",
  "reduce-scatter": "xla_gpu_enable_pipelined_reduce_scatter",
}
# XLA turns all-reduces into reduce-scatters after pipelining them.
PIPELINED_AS = {"reduce-scatter": ("all-reduce", "reduce-scatter")}
_EXPLICIT = "COLLECTIVE_PIPELINING_MODE_EXPLICIT"
_DOUBLE_BUFFERING = "xla_gpu_enable_while_loop_double_buffering"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Knob:
  """A choice in XLA, with texts for `lagom-xla knobs` (`report/knobs.py`).

  Attributes:
    does: what it does and may gain.
    options: the XLA options that its values set.
    tried: when a search tries it; follows "tried if".
    hurts: what it may cost; follows "downside:".
    values: gives the values that can affect a step.
  """

  does: str
  options: tuple[str, ...]
  tried: str
  hurts: str
  values: Callable[[step_lib.Step], Iterator[Value]]


def worth_trying(step: step_lib.Step) -> tuple[Value, ...]:
  """All values of all knobs that can affect a step."""
  return offered(v for knob in KNOBS.values() for v in knob.values(step))


def _combine_thresholds(step: step_lib.Step) -> Iterator[Value]:
  collectives = step.analysis.collectives
  for kind, option in OPTIONS.items():
    for threshold_bytes in thresholds_worth_trying(collectives, kind):
      yield Value(
        label=f"{kind} combined up to {in_words.megabytes(threshold_bytes)}",
        options={option: threshold_bytes},
      )


_HEURISTIC = "xla_gpu_experimental_enable_heuristic_collective_combining"


def _combine_heuristic(step: step_lib.Step) -> Iterator[Value]:
  if any(c.kind in OPTIONS for c in step.analysis.collectives):
    yield Value(
      label="combining by XLA's heuristic",
      options={_HEURISTIC: True},
    )


_WINDOWED = "xla_gpu_threshold_for_windowed_einsum_mib"


def _collective_matmul(step: step_lib.Step) -> Iterator[Value]:
  # Ahead of time, XLA before JAX 0.12 splits nothing. Newer versions split and
  # run the parts concurrently, for which we have no measurements.
  is_live = jax.default_backend() == "gpu"
  kinds = {c.kind for c in step.analysis.collectives}
  if is_live and kinds & {"all-gather", "reduce-scatter"}:
    yield Value(
      label="matmuls split around their collectives",
      options={_WINDOWED: 0},
    )


def _pipelining(step: step_lib.Step) -> Iterator[Value]:
  in_loops = {
    kind
    for collective in step.analysis.collectives
    if collective.executions > 1 and not collective.is_pipelined
    for kind in PIPELINED_AS.get(collective.kind, (collective.kind,))
  }
  for kind, option in PIPELINED.items():
    if kind in in_loops:
      yield Value(
        label=f"{kind} pipelined over loop iterations",
        options={option: True},
      )
  # On JAX 0.12 and newer, if the program marks some collectives of a kind.
  for kind in PIPELINED:
    marks = {
      _is_marked(step.analysis.module, c)
      for c in step.analysis.collectives
      if c.kind == kind and c.executions > 1
    }
    if len(marks) == 2:
      yield Value(
        label=f"{kind} pipelined where it is marked is_pipelineable",
        options={f"xla_gpu_pipeline_{kind.replace('-', '_')}": _EXPLICIT},
      )
  # XLA pipelines the program's own reduce-scatters by default. The option of
  # all-reduces controls those that XLA makes from all-reduces.
  if any(
    c.kind == "reduce-scatter"
    and c.is_pipelined
    and _is_written(step.analysis.module, c)
    for c in step.analysis.collectives
  ):
    yield Value(
      label="reduce-scatter not pipelined over loop iterations",
      options={PIPELINED["reduce-scatter"]: False},
      is_last=True,
    )


def _starts(
  module: hlo.Module, collective: collectives_lib.Collective
) -> Iterator[hlo.Instruction]:
  for computation in module.computations.values():
    if start := computation.by_id.get(collective.start_id):
      yield start


def _is_written(
  module: hlo.Module, collective: collectives_lib.Collective
) -> bool:
  """Whether it is the program's own: its op_name ends in JAX's primitive."""
  primitive = collective.kind.replace("-", "_")
  starts = _starts(module, collective)
  return any(start.metadata.op_name.endswith(primitive) for start in starts)


def _is_marked(
  module: hlo.Module, collective: collectives_lib.Collective
) -> bool:
  """Whether the program marks it as pipelineable (openxla/xla#45836)."""
  return any(
    start.frontend_attributes.map.get("is_pipelineable") == "true"
    for start in _starts(module, collective)
  )


def _unrolling(step: step_lib.Step) -> Iterator[Value]:
  if any(c.executions > 1 for c in step.analysis.collectives):
    yield Value(
      label="loops double-buffered",
      options={_DOUBLE_BUFFERING: True},
    )


_ZERO_FILLS = "xla_gpu_enable_dus_accumulator_zero_init_elimination"


def _unfilled(step: step_lib.Step) -> Iterator[Value]:
  # Pipelined loops keep their fills, and pipelining mostly gains more.
  if any(any(c.loops) for c in step.analysis.sequences):
    yield Value(
      label="loop results not filled with zeros first",
      options={_ZERO_FILLS: True},
      is_last=True,
    )


def uncombined(kinds: Collection[str]) -> Value:
  """Combines no collectives of these kinds, which are keys of OPTIONS."""
  kinds = sorted(kinds)
  return Value(
    label=f"no {' and no '.join(kinds)} combined",
    options={OPTIONS[kind]: 0 for kind in kinds},
  )


# By name, the most important first.
KNOBS: Mapping[str, Knob] = {
  "scheduler": Knob(
    does="starts collectives early and waits for them late, so that more"
    " kernels hide them",
    options=(SCHEDULER,),
    tried="another scheduler made the schedule: XLA leaves this one off before"
    " Hopper, and with ragged-all-to-alls, broadcasts or host work",
    hurts="operands and results stay alive longer",
    values=scheduler_values,
  ),
  "overlap limit": Knob(
    does="lets the scheduler keep more collectives in flight, so that each can"
    " start earlier",
    options=(_OVERLAP_LIMIT, _AS_EARLY),
    tried="the latency-hiding scheduler ran",
    hurts="operands and results stay alive longer; the collectives still run"
    " one after the other",
    values=overlap_limit,
  ),
  "two fabrics": Knob(
    does="runs collectives concurrently, on two streams or one per fabric"
    " (NVLink, network)",
    options=(_STREAMS, _OVERLAP_LIMIT, FABRICS, _WITHIN_LIMIT),
    tried="collectives use several mesh axes, or run both within and between"
    " nodes",
    hurts="kernels lose SMs and memory bandwidth to both collectives. Two NCCL"
    " kernels may deadlock (openxla/xla#46541): try a short run first",
    values=two_fabrics,
  ),
  "unrolling": Knob(
    does="puts two iterations into each loop body, so that collectives can"
    " overlap both",
    options=(_DOUBLE_BUFFERING,),
    tried="a loop has collectives",
    hurts="the loop's code and buffers double",
    values=_unrolling,
  ),
  "pipelining": Knob(
    does="runs a loop's gathers an iteration early and its reductions an"
    " iteration late, so that more kernels hide them; or turns that off",
    options=tuple(PIPELINED.values()),
    tried="a loop has collectives that XLA did not pipeline, or reduce-scatters"
    " that it did",
    hurts="the buffers of one more iteration stay alive",
    values=_pipelining,
  ),
  "collective matmul": Knob(
    does="splits a matmul and its collective, so that their parts overlap",
    options=(_WINDOWED,),
    tried="JAX sees GPUs, as the cost model does not cover the parts",
    hurts="many small matmuls use a GPU less well",
    values=_collective_matmul,
  ),
  "merged matmuls": Knob(
    does="lowers the size up to which XLA merges matmuls that share an"
    " operand, so that no matmul waits for another's operands",
    options=(MERGER,),
    tried="merged matmuls have at least 1 % of the step's FLOPs",
    hurts="separate matmuls leave more SMs idle in their last waves",
    values=_merged_products,
  ),
  "combining by heuristic": Knob(
    does="lets XLA combine collectives by what it expects to overlap",
    options=(_HEURISTIC,),
    tried="XLA could combine collectives",
    hurts="without GPUs, XLA assumes that all communication is between nodes",
    values=_combine_heuristic,
  ),
  "memory": Knob(
    does="sets the scheduler's memory limit, in percent: a higher one can hide"
    " more, a lower one saves memory",
    options=(memory_limit.MEMORY_SLOP,),
    tried="the schedule needs 80 % of the limit",
    hurts="with a higher limit the step may not fit (then it is not planned);"
    " a lower one exposes collectives",
    values=memory_slop,
  ),
  "memory fencing": Knob(
    does="runs the users of large buffers before later collectives, which frees"
    " the buffers earlier (openxla/xla#45929)",
    options=(_FENCING,),
    tried="the schedule needs 80 % of its memory limit",
    hurts="fewer kernels are left to hide collectives behind",
    values=memory_fencing,
  ),
  "zero fills": Knob(
    does="drops kernels that zero buffers which a scan overwrites anyway",
    options=(_ZERO_FILLS,),
    tried="the step has loops; pipelined loops keep their fills",
    hurts="nothing known",
    values=_unfilled,
  ),
  "NCCL": Knob(
    does="runs ragged-all-to-alls by NCCL instead of XLA's own kernel",
    options=xla_kernels.UNSEEN,
    tried="NCCL is predicted to be faster",
    hurts="the host waits for the offsets; predictions leave that out, and it"
    " matters in small exchanges",
    values=_by_nccl,
  ),
  "permutes": Knob(
    does="runs permutes in communicators of only the devices that exchange"
    " data, where NCCL gives each pair more channels",
    options=(collective_routes.CONNECTED,),
    tried="that is predicted to be faster and every device takes part:"
    " otherwise XLA may hang (openxla/xla#44530)",
    hurts="each communicator takes memory and startup time",
    values=_permutes,
  ),
  "local copies": Knob(
    does="runs all-to-alls and permutes within a process by copy engines, which"
    " leaves SMs to kernels",
    options=(collective_routes.LOCAL_COPIES,),
    tried="that is predicted to be faster. It was never measured, so a plan has"
    " it only if a profile does; `tune` notes what it would gain",
    hurts="the host takes part in each exchange. With one process per GPU it"
    " has no effect: set --processes-per-node",
    values=_local_copies,
  ),
  "combining": Knob(
    does="limits the bytes of a combined collective, per kind: large ones save"
    " latency, small ones overlap more",
    options=tuple(OPTIONS.values()),
    tried="the limit changes what XLA combines",
    hurts="a large collective waits for its last operand, and its first user"
    " for all of it; small ones pay the latency once per array",
    values=_combine_thresholds,
  ),
  "fixed costs": Knob(
    does="schedules by fixed costs instead of estimates: five kernels hide any"
    " collective",
    options=(ESTIMATES, SCHEDULER),
    tried="XLA scheduled by its speed-of-light estimates (Hopper, Blackwell)",
    hurts="the scheduler ignores the sizes of collectives and kernels",
    values=fixed_costs,
  ),
}

# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""An explanation as plain data: each collective, and why it is exposed.

`explain --format=json` prints it. It is kept beside a plan, to be read without
a compile.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import difflib
import pathlib
from typing import Final, Literal

from lagom_xla import errors
from lagom_xla import validation
from lagom_xla.costs import in_words
from lagom_xla.costs import routes
from lagom_xla.explain import parts as parts_lib
from lagom_xla.passes import provenance
from lagom_xla.plan import beside

# Raised whenever a field changes its meaning.
FORMAT_VERSION: Final = 1


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Part:
  """A part of a collective's exposed time.

  Attributes:
    reason: the reason, as docs/explain.md defines it.
    us: microseconds per step; a collective's parts add up to its exposed time.
    sentence: the reason in words, with names.
  """

  reason: parts_lib.Reason
  us: float
  sentence: str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Slowed:
  """A kernel that a collective slows.

  Attributes:
    kernel: name of the kernel.
    source: source line and layer; "" if unknown.
    us: loss to the collective, in microseconds per step.
  """

  kernel: str
  source: str
  us: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
  """A change to make in a program.

  Attributes:
    about: the subject, such as "Activations".
    sentence: what XLA does with the program, and what would help; if the
      program is available, also the predicted step time with the change.
    gain_us: gain in microseconds per step; if the program is not available,
      today's loss.
  """

  about: str
  sentence: str
  gain_us: float

  def __str__(self) -> str:
    return f"{self.about}: {self.sentence}"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class WithPlan:
  """The effect of a plan on a collective, and on others from the same lines.

  Times are in microseconds per step.

  Attributes:
    num_before: number of today's collectives of its kind from its source lines,
      including itself.
    names: the collectives from those lines with the plan.
    exposed_before_us: exposed time today.
    exposed_after_us: exposed time with the plan.
    slowed_before_us: time by which they slow kernels today.
    slowed_after_us: time by which they slow kernels with the plan.
    sentence: the comparison in words.
  """

  num_before: int
  names: tuple[str, ...]
  exposed_before_us: float
  exposed_after_us: float
  slowed_before_us: float
  slowed_after_us: float
  sentence: str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Collective:
  """A collective, and why it is exposed; times in microseconds per step.

  Attributes:
    name: name of the instruction that starts it.
    what: a short description.
    kind: HLO opcode.
    form: "async" or "sync".
    computation: the computation that contains it.
    num_bytes: bytes that it moves per execution, as NCCL counts them.
    num_ranks: number of GPUs that take part.
    num_nodes: number of nodes with these GPUs.
    num_arrays: number of arrays that it moves; several if XLA combined
      collectives.
    moves: a description of each array.
    executions: number of runs per step.
    file: file of its source line; "" if unknown.
    line: line number in that file; 0 if unknown.
    layer: the named scopes around it; "" if there are none.
    is_backward: whether it belongs to the backward pass.
    run_by: "NCCL" if NCCL settings affect it; else what runs it instead.
    num_sms: SMs that it takes.
    lone_us: time of all its runs alone.
    exposed_us: time that its done blocks the compute stream.
    hideable_us: time of independent kernels in its computation; null if it is
      not exposed.
    unhideable_us: time beyond that of those kernels, exposed in any order; null
      if it is not exposed.
    sync_because: why XLA made it sync; "" if it is async or not exposed.
    why: why it is exposed, in a sentence; "" if it is not.
    parts: the parts of its exposed time, largest first.
    slowed_us: time by which it slows kernels.
    slows: the kernels that it slows most.
    with_plan: the plan's effect on it; null without a plan.
    advice: possible changes to the model, mesh, accumulation or strands.
  """

  name: str
  what: str
  kind: str
  form: Literal["async", "sync"]
  computation: str
  num_bytes: int
  num_ranks: int
  num_nodes: int
  num_arrays: int
  moves: tuple[provenance.Array, ...] = ()
  executions: int
  file: str
  line: int
  layer: str
  is_backward: bool
  run_by: routes.RunBy = "NCCL"
  num_sms: int = 0
  lone_us: float
  exposed_us: float
  hideable_us: float | None
  unhideable_us: float | None
  sync_because: str
  why: str
  parts: tuple[Part, ...]
  slowed_us: float
  slows: tuple[Slowed, ...]
  with_plan: WithPlan | None
  advice: tuple[str, ...]

  @property
  def at(self) -> str:
    """Its file and line, such as `train.py:88`; "" if unknown."""
    return f"{pathlib.PurePath(self.file).name}:{self.line}" * bool(self.file)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Step:
  """A step and its collectives; times in microseconds.

  Attributes:
    step_us: step time.
    exposed_us: exposed time of all collectives.
    copy_wait_us: time that kernels wait for asynchronous copies, to host memory
      or within the GPU.
    lower_bound_us: step time that no order and no NCCL settings of this module
      can beat.
    unexplained_us: exposed time of collectives beyond the limit, which were not
      examined.
    reasons_us: reason -> exposed time of all examined collectives.
    between_products_us: exposed time that no order can hide, because the
      kernels around it depend on it or already hide others.
    in_process_us: the most of `between_products_us` that strands or slices
      could hide.
    collectives: all collectives, the most exposed first.
  """

  step_us: float
  exposed_us: float
  copy_wait_us: float = 0.0
  lower_bound_us: float
  unexplained_us: float
  reasons_us: Mapping[str, float]
  between_products_us: float = 0.0
  in_process_us: float = 0.0
  collectives: tuple[Collective, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Explanation:
  """Why a step's collectives are exposed, and the effect of a plan.

  Attributes:
    format_version: raised when a field changes its meaning.
    module_name: name of the step's module.
    cluster: name of the cluster.
    made_with: versions, as text.
    basis: the basis of times: "predicted", or "predicted from measured costs".
    before: the step as it runs today.
    after: the step with the plan; null without one.
    calls_that_may_communicate: library calls that may contain collectives not
      listed here.
    advice: what to change in the program, the largest gain first.
  """

  __pydantic_config__ = validation.STRICT

  format_version: Literal[1] = FORMAT_VERSION
  module_name: str
  cluster: str
  made_with: str
  basis: str
  before: Step
  after: Step | None
  calls_that_may_communicate: tuple[str, ...] = ()
  advice: tuple[Advice, ...] = ()


_MOST_NEAR = 3


def find(explanation: Explanation, name: str) -> tuple[Step, Collective]:
  """The collective with a name, and its step.

  The step is today's, or the step with the plan if only that has it.

  Raises:
    UnknownCollectiveError: neither has it; the message names similar ones.
  """
  steps = [*filter(None, (explanation.before, explanation.after))]
  names: dict[str, None] = {}
  for step in steps:
    for collective in step.collectives:
      if collective.name == name:
        return step, collective
      names[collective.name] = None
  words = "it has no collectives"
  if near := difflib.get_close_matches(name, names, n=_MOST_NEAR):
    words = f"the nearest names are {in_words.some(near)}"
  elif names:
    words = f"it has {in_words.some([*names][:_MOST_NEAR])}"
  raise errors.UnknownCollectiveError(
    f"{explanation.module_name} has no collective {name!r}; {words}."
  )


def only(explanation: Explanation, name: str) -> Explanation:
  """An explanation with one collective only.

  Raises:
    UnknownCollectiveError: neither step has it.
  """
  find(explanation, name)
  before, after = (
    step
    and dataclasses.replace(
      step, collectives=tuple(c for c in step.collectives if c.name == name)
    )
    for step in (explanation.before, explanation.after)
  )
  assert before is not None
  return dataclasses.replace(explanation, before=before, after=after)


NAME = beside.EXPLANATION
_FILE = beside.File(
  name=NAME,
  noun="step's explanation",
  of=Explanation,
  format_version=FORMAT_VERSION,
  instead=", or pass --cluster to explain a target",
)
write = _FILE.write
read = _FILE.read

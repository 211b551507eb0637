# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""An explanation as plain data: each collective, and why it is exposed.

It is what `explain --format=json` prints, and is kept beside a plan, so that it
can be read without compiling.
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
  """A part of what is exposed of a collective.

  Attributes:
    reason: why, as docs/explain.md defines it.
    us: how much, in microseconds per step; the parts of a collective sum up to
      what is exposed of it.
    sentence: the same in words, with names.
  """

  reason: parts_lib.Reason
  us: float
  sentence: str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Slowed:
  """A kernel that a collective slows.

  Attributes:
    kernel: its name.
    source: its source line and layer; "" where they are not known.
    us: what it loses to the collective, in microseconds per step.
  """

  kernel: str
  source: str
  us: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
  """What to change in a program.

  Attributes:
    about: what it is on, such as "Activations".
    sentence: what XLA makes of the program, what would help, and with the
      program at hand what the step takes then.
    gain_us: what that gains, in microseconds per step; without the program
      what is lost today.
  """

  about: str
  sentence: str
  gain_us: float

  def __str__(self) -> str:
    return f"{self.about}: {self.sentence}"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class WithPlan:
  """What a plan makes of a collective, and of others from the same lines.

  Attributes:
    num_before: collectives of its kind from its source lines, itself included,
      as the step runs today.
    names: the collectives from those lines that run with the plan.
    exposed_before_us: what is exposed of the former, in microseconds.
    exposed_after_us: what is exposed of the latter.
    slowed_before_us: what kernels lose to the former.
    slowed_after_us: what kernels lose to the latter.
    sentence: the same in words, and how they differ.
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
    name: of the instruction that starts it.
    what: it does, in a few words.
    kind: its HLO opcode.
    form: "async" or "sync".
    computation: that it stands in.
    num_bytes: that it moves, per execution, as NCCL counts them.
    num_ranks: GPUs that take part.
    num_nodes: that those are on.
    num_arrays: that it moves; XLA combined them if there are several.
    moves: what each of them is.
    executions: times it runs per step.
    file: of the user's line that it comes from; "" where that is not known.
    line: in that file; 0 where it is not known.
    layer: scopes around it; "" where the program names none.
    is_backward: whether it belongs to the backward pass.
    run_by: "NCCL", whose settings act on it; else what runs it in place of a
      kernel that NCCL tunes.
    num_sms: that it takes.
    lone_us: all its runs alone.
    exposed_us: how long its done holds the compute stream.
    hideable_us: kernels of its computation that depend on it in no way, nor it
      on them; null where it is not exposed.
    unhideable_us: what is exposed in any order: that it takes longer than
      those; null where it is not exposed.
    sync_because: why XLA made it sync; "" where it is async, or not exposed.
    why: why it is exposed, in a sentence; "" where it is not.
    parts: of what is exposed, the largest first.
    slowed_us: what kernels lose to it.
    slows: the kernels that lose most.
    with_plan: what the plan makes of it; null without a plan.
    advice: what could be changed in the model, the mesh, accumulation or
      strands.
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
    """Its file and line, as `train.py:88`; "" where they are not known."""
    return f"{pathlib.PurePath(self.file).name}:{self.line}" * bool(self.file)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Step:
  """A step and its collectives; times in microseconds.

  Attributes:
    step_us: the step.
    exposed_us: what is exposed of all collectives.
    lower_bound_us: what no order and no setting of this module can beat.
    unexplained_us: what is exposed of those that are too many to look at.
    reasons_us: what is exposed of all others, by reason.
    between_products_us: of that, what no order hides, as products before and
      behind need it.
    in_process_us: of that, what strands and slices could hide, at most.
    collectives: those that are exposed most first.
  """

  step_us: float
  exposed_us: float
  lower_bound_us: float
  unexplained_us: float
  reasons_us: Mapping[str, float]
  between_products_us: float = 0.0
  in_process_us: float = 0.0
  collectives: tuple[Collective, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Explanation:
  """Why a step's collectives are exposed, and what a plan does about it.

  Attributes:
    format_version: raised when a field changes its meaning.
    module_name: of the step.
    cluster: its name.
    made_with: versions, in words.
    basis: what times are: "predicted", or "predicted from measured costs".
    before: the step as it runs today.
    after: with the plan; null without one.
    calls_that_may_communicate: library calls that may hold collectives, which
      are not among these.
    advice: what to change in the program, what gains most first.
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
  """The collective of a name, and the step that has it.

  That is the step as it runs today; the one with the plan if only that has it.

  Raises:
    UnknownCollectiveError: neither has; the message says which names are near.
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
  """An explanation without the collectives of other names.

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

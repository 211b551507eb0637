# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Forms of the program: which strands and slices to compile.

*Strands.* A form changes what can overlap, and so which options gain: XLA's
combiners may couple the two strands again, and one collective in flight at a
time may be too few. So each form that the program can have is scheduled under
the best options so far, and the fastest form of each kind of strands also under
XLA's defaults. Then options are searched again from the fastest form, even if
it is not faster than the best so far: options that suit strands first, then all
values. The search skips

- forms that make the same program as another;
- keys, if XLA combined nothing without them, or if kernels alone take longer
  than the best step;
- keys without strands, if another form makes strands.

*Slices.* Slicing a chain hides communication that no order of whole collectives
can, but costs time: the products of a piece leave more SMs idle in their last
wave, and its collectives are less efficient. One schedule, whose collectives
carry the labels of their chains, shows how much of each chain is exposed. In a
chain of k pieces, kernels wait for at most the first or the last piece, and the
k pieces take longer than the whole:

    gain(k) = exposed · (1 − 1/k) − share · (k · t(bytes / k) − t(bytes))

summed over the chain's collectives; share is the exposed share of each. XLA's
partitioner puts no labels on the collectives that it inserts. Those are matched
by kind and size, and their exposed time is divided among all chains that match.
Equal chains, such as those of unrolled layers, are sliced alike: first many at
once, then one kind at a time while the step gets shorter. If XLA combines
pieces again, the fastest result is also tried without combining those kinds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
import dataclasses
import typing

from lagom_xla import errors
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import rewriting
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import hlo
from lagom_xla.passes.program import form as form_lib
from lagom_xla.passes.program.slices import chains as chains_lib
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import evaluation
from lagom_xla.search.xla import knobs
from lagom_xla.search.xla import options

# Usually fastest first. "none" is for programs with strands of their own, which
# only need keys to stay apart.
_ORDER = ("rotated", "paired", "merged", "staggered", "none")
_STRANDS: tuple[form_lib.Strands, ...] = tuple(
  sorted(typing.get_args(form_lib.Strands), key=_ORDER.index)
)


def search_strands(
  target: target_lib.Target,
  so_far: candidates.Search,
  evaluate: candidates.Evaluate,
  *,
  until_s: float,
  in_turn: evaluation.InTurn = evaluation.one_by_one,
  progress: candidates.Progress = lambda _: None,
) -> candidates.Search:
  """Continues a search over options with forms of the program.

  Args:
    target: what is tuned.
    so_far: what was tried so far, all with the program as written.
    evaluate: schedules a config and searches its NCCL settings.
    until_s: when to stop trying options, a time of `time.monotonic`.
    in_turn: starts compiles of the next configs ahead.
    progress: called with a short description of each candidate after it.
  """
  incumbent = so_far.best
  attempts = _Attempts(so_far, evaluate, progress)
  no_keys: set[form_lib.Strands] = set()
  forms = list(_forms(target))
  configs = [dataclasses.replace(incumbent.config, program=f) for f in forms]
  for form, config in zip(forms, in_turn(configs), strict=True):
    if form.keyed and form.strands in no_keys:
      continue
    found = attempts.make(config)
    if found is not None:
      can_win = candidates.can_win(found, attempts.so_far)
      if not (can_win and _is_combined(found.step)):
        no_keys.add(form.strands)
  if incumbent.config.options:
    quickest = _quickest_of_each(attempts.scheduled)
    able = [c for c in quickest if candidates.can_win(c, attempts.so_far)]
    plain = [config_lib.XlaConfig(program=c.config.program) for c in able]
    for candidate, config in zip(able, in_turn(plain), strict=True):
      if candidates.can_win(candidate, attempts.so_far):
        attempts.make(config)
  so_far = attempts.so_far
  start = min(attempts.scheduled, key=candidates.tuned_us, default=None)
  if start is None or not candidates.can_win(start, so_far):
    return so_far
  keyed = start.config.program.keyed
  return options.climb(
    so_far,
    start,
    evaluate,
    changes=lambda best: options.settings(_for_strands(best, keyed=keyed)),
    drops=options.drops,
    in_turn=in_turn,
    until_s=until_s,
    progress=progress,
  )


def _quickest_of_each(
  tried: Iterable[candidates.Candidate],
) -> list[candidates.Candidate]:
  """The fastest candidate of each kind of strands, the fastest of all first."""
  found: dict[form_lib.Strands, candidates.Candidate] = {}
  for candidate in sorted(tried, key=candidates.tuned_us):
    found.setdefault(candidate.config.program.strands, candidate)
  return list(found.values())


def _is_combined(step: step_lib.Step) -> bool:
  return any(c.num_operands > 1 for c in step.analysis.collectives)


def _for_strands(
  best: candidates.Candidate, *, keyed: bool
) -> Sequence[knobs.Value]:
  """Values that suit strands, then all values.

  A collective combined from both strands waits for both, unless keys keep them
  apart, and one strand's collective in flight delays the other strand's.
  """
  collectives = best.step.analysis.collectives
  values = [knobs.in_flight(2)]
  combined = {c.kind for c in collectives if c.num_operands > 1}
  if not keyed and (kinds := combined & knobs.OPTIONS.keys()):
    values.insert(0, knobs.uncombined(kinds))
  return [*knobs.offered(values), *knobs.worth_trying(best.step)]


def _forms(target: target_lib.Target) -> Iterator[form_lib.Form]:
  """The forms to compile, each without keys first.

  Includes forms that the program cannot have, so that their refusals are
  recorded, but not with keys. Leaves out forms that make the same program as
  another.
  """
  known = {target.digest(form_lib.AS_WRITTEN)}
  for strands in _STRANDS:
    form = form_lib.Form(strands=strands)
    if not (form.is_as_written or target.outcome(form).actions):
      yield form
      continue
    if form.is_as_written and len(known) > 1:
      return
    for keyed in (False, True):
      form = form_lib.Form(strands=strands, keyed=keyed)
      if keyed and not target.outcome(form).actions:
        continue
      digest = target.digest(form)
      if digest not in known:
        known.add(digest)
        yield form


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
  """Equal chains, which are sliced alike.

  Attributes:
    labels: the chains' labels.
    collectives: their collectives, by name in the schedule, or by the chain's
      ends if XLA's partitioner inserted them. Two kinds that share one cannot
      both be sliced.
    has_both_ends: whether each chain begins and ends with a collective.
    pieces: the numbers of pieces that each chain can have.
    exposed_us: exposed time of their collectives per step.
    num_pieces: the number of pieces with the largest predicted gain.
    gain_us: that gain per step.
  """

  labels: tuple[str, ...]
  collectives: frozenset[str]
  has_both_ends: bool
  pieces: tuple[int, ...]
  exposed_us: float
  num_pieces: int
  gain_us: float


def of_chains(
  target: target_lib.Target,
  candidate: candidates.Candidate,
  chains: Iterable[chains_lib.Chain],
) -> tuple[Kind, ...]:
  """The kinds of chains that slicing may speed up, the most promising first.

  Kinds with collectives at both ends come first: their products hide both the
  collective before the next piece and the one after the previous piece. Then
  kinds are sorted by gain.

  Args:
    target: what is tuned.
    candidate: the candidate whose program is to be sliced.
    chains: the chains of the program as written.

  Raises:
    CompileError: XLA refused the program with its chains marked.
    ProgramError: with its calls inlined, the program cannot have the config's
      form.
  """
  module = target.schedule_with_chains(candidate.config)
  step = evaluation.of_schedule(module, target, candidate.config)
  exposed_us = step.timeline(step.default).exposed_us
  chains = tuple(chains)
  by_chain = {**_by_looks(step, chains), **_by_label(step)}
  least_us = candidates.LEAST_GAIN * candidate.tuned.step_time_us
  found = []
  for alike in _kinds(chains):
    scheduled = [m for chain in alike for m in by_chain.get(chain.label, ())]
    waits = [m for m in scheduled if exposed_us.get(m.collective.name)]
    gains = {
      k: sum(
        m.share * _gain_us(step, m.collective, exposed_us[m.collective.name], k)
        for m in waits
      )
      for k in alike[0].pieces
    }
    num_pieces = max(gains, key=lambda k: gains[k])
    if gains[num_pieces] >= least_us:
      found.append(
        Kind(
          labels=tuple(chain.label for chain in alike),
          collectives=frozenset(m.identity for m in scheduled),
          has_both_ends=len(alike[0].collectives) > 1,
          pieces=alike[0].pieces,
          exposed_us=sum(
            m.share * exposed_us[m.collective.name] for m in waits
          ),
          num_pieces=num_pieces,
          gain_us=gains[num_pieces],
        )
      )
  return tuple(
    sorted(found, key=lambda kind: (not kind.has_both_ends, -kind.gain_us))
  )


def _kinds(
  chains: Iterable[chains_lib.Chain],
) -> Sequence[Sequence[chains_lib.Chain]]:
  kinds: dict[object, list[chains_lib.Chain]] = {}
  for chain in chains:
    alike = dataclasses.replace(chain, label="")
    kinds.setdefault(alike, []).append(chain)
  return list(kinds.values())


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Member:
  """A scheduled collective of a chain.

  Attributes:
    collective: the collective.
    share: the share of it that is counted for this chain.
    identity: equal for chains that cannot both be sliced.
  """

  collective: collectives_lib.Collective
  share: float
  identity: str


def _by_label(step: step_lib.Step) -> dict[str, list[_Member]]:
  """A schedule's collectives by chain label."""
  found: dict[str, list[_Member]] = {}
  for collective, labels in _labeled(step):
    for label in labels:
      found.setdefault(label, []).append(
        _Member(collective=collective, share=1.0, identity=collective.name)
      )
  return found


def _by_looks(
  step: step_lib.Step, chains: Sequence[chains_lib.Chain]
) -> dict[str, list[_Member]]:
  """Unlabeled collectives, by the label of each chain that they match."""
  unlabeled = [c for c, labels in _labeled(step) if not labels]
  found: dict[str, list[_Member]] = {}
  for collective in unlabeled:
    alike = [c for c in chains if _looks_like(collective, c)]
    ends = {_ends(chain) for chain in alike}
    for chain in alike:
      found.setdefault(chain.label, []).append(
        _Member(
          collective=collective, share=1 / len(ends), identity=_ends(chain)
        )
      )
  return found


def _looks_like(
  collective: collectives_lib.Collective, chain: chains_lib.Chain
) -> bool:
  kinds = {
    name.removeprefix("stablehlo.").replace("_", "-")
    for name in chain.collectives
  }
  return (
    collective.kind in kinds
    and collective.nccl_bytes * len(chain.collectives) == chain.nccl_bytes
  )


def _ends(chain: chains_lib.Chain) -> str:
  """A chain's label without the dimension: chains with the same ends clash."""
  return chain.label.rpartition(":")[0]


def _labeled(
  step: step_lib.Step,
) -> Iterator[tuple[collectives_lib.Collective, Sequence[str]]]:
  """Collectives of a schedule, each with its chain labels."""
  module = step.analysis.module
  starts = {i.id: i for i in module.instructions}
  for collective in step.analysis.collectives:
    yield collective, _labels(module, starts[collective.start_id])


def _labels(module: hlo.Module, start: hlo.Instruction) -> Sequence[str]:
  inside = collectives_lib.payloads(module, start)
  for operation in (start, *(operation for _, operation in inside)):
    tags = operation.frontend_attributes.map.get(chains_lib.CHAIN)
    if tags:
      return tags.split(",")
  return ()


def _gain_us(
  step: step_lib.Step,
  collective: collectives_lib.Collective,
  exposed_us: float,
  num_pieces: int,
) -> float:
  key = step.key_of[collective.name]
  piece = dataclasses.replace(key, num_bytes=key.num_bytes // num_pieces)
  setting = collective_lib.default_setting(piece, step.cluster)
  whole_us = step.predict(key, step.default[key]).time_us
  piece_us = step.predict(piece, setting).time_us
  # Exposed time may include waits for earlier collectives.
  alone_us = whole_us * collective.executions
  share = min(exposed_us / alone_us, 1.0) if alone_us else 0.0
  grown_us = (num_pieces * piece_us - whole_us) * collective.executions
  return exposed_us * (1 - 1 / num_pieces) - share * max(grown_us, 0.0)


# The most slicings to compile of two programs, the fastest with strands and the
# fastest as written: of the faster one, and of the slower one.
_MAX_CUTS = (5, 2)
# Plus, per program, one schedule that shows what is exposed, and one in which
# the pieces are not combined.
MAX_SLICES = sum(1 + max_cuts + 1 for max_cuts in _MAX_CUTS)


def search_slices(
  target: target_lib.Target,
  so_far: candidates.Search,
  evaluate: candidates.Evaluate,
  *,
  progress: candidates.Progress = lambda _: None,
) -> candidates.Search:
  """Continues a search with slices of the best programs so far.

  Args:
    target: what is tuned.
    so_far: what was tried so far.
    evaluate: schedules a config and searches its NCCL settings.
    progress: called with a short description of each schedule after it.
  """
  chains = target.chains()
  programs = _programs(so_far) if chains else []
  for start, max_cuts in zip(programs, _MAX_CUTS, strict=False):
    if not candidates.can_win(start, so_far) or not _is_exposed(start):
      continue
    try:
      kinds = of_chains(target, start, chains)
    except (errors.CompileError, errors.ProgramError) as error:
      refused = candidates.Refused(config=start.config, reason=str(error))
      so_far = so_far.with_candidate(refused)
      continue
    finally:
      progress("exposed time of each chain")
    so_far = _cut(start, kinds, max_cuts, so_far, evaluate, progress)
  return so_far


def _programs(so_far: candidates.Search) -> list[candidates.Candidate]:
  """The fastest with a form and the fastest as written, the faster first."""
  quickest: dict[bool, candidates.Candidate] = {}
  for candidate in sorted(so_far.scheduled, key=candidates.tuned_us):
    quickest.setdefault(candidate.config.program.is_as_written, candidate)
  return list(quickest.values())


def _is_exposed(candidate: candidates.Candidate) -> bool:
  tuned = candidate.tuned
  return tuned.total_exposed_us >= candidates.LEAST_GAIN * tuned.step_time_us


def _cut(
  start: candidates.Candidate,
  kinds: Sequence[Kind],
  max_cuts: int,
  so_far: candidates.Search,
  evaluate: candidates.Evaluate,
  progress: candidates.Progress,
) -> candidates.Search:
  """The search after slicing one program."""
  attempts = _Attempts(so_far, evaluate, progress)
  cuts = attempts.scheduled
  tried: list[Mapping[str, int]] = []
  left: list[Kind | None] = [None, *kinds]

  while left and len(tried) < max_cuts:
    quickest = min((start, *cuts), key=candidates.tuned_us)
    moves = _moves(quickest, kinds, left[0])
    slices = next((m for m in moves if m not in tried), None)
    if slices is None:
      left.pop(0)
      continue
    tried.append(slices)
    form = dataclasses.replace(start.config.program, slices=slices)
    attempts.make(dataclasses.replace(start.config, program=form))
  if cuts:
    quickest = min(cuts, key=candidates.tuned_us)
    if options := _apart(start.step, quickest.step):
      attempts.make(quickest.config.with_options(options))
  return attempts.so_far


def _apart(before: step_lib.Step, after: step_lib.Step) -> knobs.XlaOptions:
  """Options that stop XLA from combining pieces again; {} if it did not.

  Pieces carry keys against combining, but XLA's partitioner drops these.
  """
  num_before, num_after = _num_combined(before), _num_combined(after)
  kinds = [kind for kind in num_after if num_after[kind] > num_before[kind]]
  if not kinds:
    return {}
  offered = knobs.offered([knobs.uncombined(kinds)])
  return offered[0].options if offered else {}


def _num_combined(step: step_lib.Step) -> Counter[str]:
  """How many collectives of each kind XLA combined into others, per step."""
  num: Counter[str] = Counter()
  for collective in step.analysis.collectives:
    if collective.kind in knobs.OPTIONS:
      num[collective.kind] += collective.executions * (
        collective.num_operands - 1
      )
  return num


def _moves(
  quickest: candidates.Candidate,
  kinds: Sequence[Kind],
  kind: Kind | None,
) -> Iterator[Mapping[str, int]]:
  """Slices to try next.

  Args:
    quickest: the candidate with the best slices so far.
    kinds: the kinds of chains.
    kind: the kind to slice differently; None to slice many at once.
  """
  slices = quickest.config.program.slices
  if kind is None:
    both_ends = [k for k in kinds if k.has_both_ends]
    if len(both_ends) > 1:
      yield _together(both_ends)
    # Slice all kinds only if slicing those with both ends gained.
    if len(kinds) > 1 and (len(both_ends) <= 1 or slices):
      yield _together(kinds)
    return
  others = {
    label: slices[label]
    for other in kinds
    if kind.collectives.isdisjoint(other.collectives)
    for label in other.labels
    if label in slices
  }
  now = slices.get(kind.labels[0], 1)
  numbers = (1, *kind.pieces)
  at = numbers.index(now)
  neighbors = numbers[at + 1 : at + 2] + numbers[max(at - 1, 0) : at]
  for num in neighbors if now > 1 else (kind.num_pieces,):
    cut = dict.fromkeys(kind.labels, num) if num > 1 else {}
    if others or cut:
      yield {**others, **cut}


def _together(kinds: Sequence[Kind]) -> Mapping[str, int]:
  """Each kind in its best number of pieces, except kinds that clash."""
  slices: dict[str, int] = {}
  taken: frozenset[str] = frozenset()
  for kind in kinds:
    if taken.isdisjoint(kind.collectives):
      taken |= kind.collectives
      slices |= dict.fromkeys(kind.labels, kind.num_pieces)
  return slices


class _Attempts:
  """The candidates that one part of a search adds.

  Attributes:
    so_far: the search, including all attempts so far.
    scheduled: the attempts that were not refused, in order.
  """

  def __init__(
    self,
    so_far: candidates.Search,
    evaluate: candidates.Evaluate,
    progress: candidates.Progress,
  ):
    self.so_far = so_far
    self.scheduled: list[candidates.Candidate] = []
    self._evaluate = evaluate
    self._progress = progress

  def make(self, config: config_lib.XlaConfig) -> candidates.Candidate | None:
    """Evaluates a config and returns the candidate; None if it is refused."""
    found = self._evaluate(config)
    self.so_far = self.so_far.with_candidate(found)
    self._progress(rewriting.in_words(config.program))
    if isinstance(found, candidates.Refused):
      return None
    self.scheduled.append(found)
    return found

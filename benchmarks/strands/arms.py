# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The arms of a train step: its forms, each with the best flags for it.

Which form is tuned is decided with XLA's and NCCL's defaults; then each kind of
form is searched as if it were the program, with the tool's own search of XLA
options and NCCL settings. A form that needs more memory than the GPU has is
out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
import dataclasses
import functools

import jax

from benchmarks.strands import forms
from benchmarks.strands import modules as modules_lib
from benchmarks.strands import progress
from lagom_xla import errors
from lagom_xla import tuner
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import timeline as timeline_lib
from lagom_xla.passes.program import form as form_lib
from lagom_xla.passes.program.slices import chains as chains_lib


@dataclasses.dataclass(frozen=True, kw_only=True)
class Variant:
  """A program, as it is compiled.

  Attributes:
    form: how it was rewritten.
    microbatches_per_trip: of the loop over micro-batches, as it was written.
    target: what is tuned.
  """

  form: form_lib.Form
  microbatches_per_trip: int
  target: target_lib.Target

  @property
  def name(self) -> str:
    """What the tables call it."""
    words: list[str] = (
      [] if self.form.strands == "none" else [self.form.strands]
    )
    if self.microbatches_per_trip > 1:
      words.append(f"{self.microbatches_per_trip} a trip")
    pieces = sorted(set(self.form.slices.values()))
    if pieces:
      words.append(f"slices of {', '.join(map(str, pieces))}")
    return ", ".join(words) or "as written"

  @functools.cached_property
  def default(self) -> timeline_lib.Timeline:
    """Its replay under all defaults."""
    step = self.default_step
    return step.timeline(step.default)

  @functools.cached_property
  def default_step(self) -> step_lib.Step:
    """The step under XLA's defaults."""
    return step_lib.of_module(self.target.schedule(), self.target.cluster)

  @functools.cached_property
  def tuning(self) -> tuner.Tuning:
    """What the tool finds for it that a launcher can set."""
    progress.say(f"  tuning {self.name}")
    return tuner.tune(self.target)

  @property
  def tuned_us(self) -> float:
    """The step time under the tool's plan."""
    return self.tuning.timeline_after.step_time_us

  @property
  def fits(self) -> bool:
    """Whether the plan's full compile fits the GPU, as far as is known."""
    peak = self.tuning.peak_bytes_after
    return peak is None or peak <= self.target.cluster.gpu.hbm_bytes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arms:
  """The best program of each kind by its tuned step time; None is none.

  Attributes:
    as_written: the program itself.
    strands: with micro-batches side by side.
    slices: with chains in pieces.
    both: with both.
  """

  as_written: Variant
  strands: Variant | None
  slices: Variant | None
  both: Variant | None

  @property
  def best(self) -> Variant:
    """The best of all that fit, of which the program itself is one."""
    others = (v for v in (self.strands, self.slices, self.both) if v)
    fitting = [v for v in others if v.fits]
    return min((self.as_written, *fitting), key=lambda v: v.tuned_us)


def of_module(module: modules_lib.Module) -> Arms:
  """Finds the arms of a train step."""
  lowered, pairs = programs(module)
  strands = best_strands(module, lowered, pairs)
  both = None
  if strands is not None:
    source = lowered if strands.microbatches_per_trip == 1 else pairs
    both = _quickest(
      _slices(
        module, source, strands.microbatches_per_trip, strands.form.strands
      )
    )
  return Arms(
    as_written=as_written(module, lowered),
    strands=strands,
    slices=_quickest(_slices(module, lowered, 1, "none")),
    both=both,
  )


def programs(
  module: modules_lib.Module,
) -> tuple[jax.stages.Lowered, jax.stages.Lowered]:
  """The step with one micro-batch in each trip of its loop, and with two."""
  return module.lowered(), module.lowered(microbatches_per_trip=2)


def as_written(
  module: modules_lib.Module, lowered: jax.stages.Lowered
) -> Variant:
  """The program itself."""
  return Variant(
    form=form_lib.AS_WRITTEN,
    microbatches_per_trip=1,
    target=module.target(lowered),
  )


def best_strands(
  module: modules_lib.Module,
  lowered: jax.stages.Lowered,
  pairs: jax.stages.Lowered,
) -> Variant | None:
  """The quickest form with strands, under all defaults."""
  return _quickest(_strands(module, lowered, pairs))


def _strands(
  module: modules_lib.Module,
  lowered: jax.stages.Lowered,
  pairs: jax.stages.Lowered,
) -> Iterator[Variant]:
  """The forms with strands that the program can have."""
  wanted: tuple[tuple[jax.stages.Lowered, int, form_lib.Strands], ...] = (
    (lowered, 1, "rotated"),
    (lowered, 1, "merged"),
    (pairs, 2, "merged"),
    (pairs, 2, "staggered"),
  )
  for program, per_trip, strands in wanted:
    form = form_lib.Form(strands=strands)
    variant = _variant(module, program, per_trip, form)
    if variant is not None:
      yield variant


def _slices(
  module: modules_lib.Module,
  lowered: jax.stages.Lowered,
  per_trip: int,
  strands: form_lib.Strands,
) -> Iterator[Variant]:
  """All chains in equally many pieces; then the best of them without each."""
  cut: list[Variant] = []
  for num in chains_lib.NUM_PIECES:
    form = forms.in_pieces(lowered, strands, num)
    if not form.slices:
      continue
    variant = _variant(module, lowered, per_trip, form)
    if variant is not None:
      cut.append(variant)
      yield variant
  best = _quickest(cut)
  if best is None:
    return
  for label in best.form.slices:
    fewer = {k: v for k, v in best.form.slices.items() if k != label}
    if not fewer:
      continue
    form = dataclasses.replace(best.form, slices=fewer)
    variant = _variant(module, lowered, per_trip, form)
    if variant is not None:
      yield variant
      if variant.default.step_time_us < best.default.step_time_us:
        best = variant


def _variant(
  module: modules_lib.Module,
  lowered: jax.stages.Lowered,
  per_trip: int,
  form: form_lib.Form,
) -> Variant | None:
  """A program in a form; None, and why, where it cannot have it."""
  rewritten, outcome = forms.rewritten(lowered, form)
  if not (form.is_as_written or outcome.actions):
    reasons = [f"{r.where}: {r.reason}" for r in outcome.refusals]
    progress.say(f"  no {form.strands}: {'; '.join(reasons[:1]) or 'nothing'}")
    return None
  variant = Variant(
    form=form, microbatches_per_trip=per_trip, target=module.target(rewritten)
  )
  try:
    time_us = variant.default.step_time_us
  except errors.CompileError as error:
    progress.say(f"  {variant.name} refused: {error}")
    return None
  progress.say(f"  {variant.name}: {time_us / 1e3:.1f} ms by default")
  return variant


def _quickest(variants: Iterable[Variant]) -> Variant | None:
  return min(variants, key=lambda v: v.default.step_time_us, default=None)

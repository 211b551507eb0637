# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The tables that -v adds to the reports of a step, a tuning and a profile.

Times are labeled as predicted or measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import rich.console
import rich.table

from lagom_xla import plan as plan_lib
from lagom_xla.costs import in_words
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import timeline
from lagom_xla.explain import explaining
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.profiling import costing as costing_lib
from lagom_xla.profiling import overlaps as overlaps_lib
from lagom_xla.report import instructions
from lagom_xla.report import layout
from lagom_xla.report import notes
from lagom_xla.report import results
from lagom_xla.report import settings
from lagom_xla.search.xla import candidates as candidates_lib
from lagom_xla.tuner import tuning as tuning_lib

_ms = in_words.ms

_MOST_ROWS = 24
_MOST_SLOWDOWNS = 5
_MOST_MEASURED_SLOWDOWNS = 10


def of_inspection(
  step: step_lib.Step, costed: costing_lib.Costing | None
) -> Iterator[rich.console.RenderableType]:
  """The overlaps of a step's collectives and kernels, with their costs."""
  replayed = step.timeline(step.default)
  module = step.analysis.module
  # At least three digits.
  tflop = step.analysis.gemm_flops / 1e12
  yield (
    f"{module.name} on {step.cluster.name}:"
    f" {in_words.count(module.num_instructions, 'instruction')},"
    f" {in_words.count(step.analysis.kernels, 'kernel')},"
    f" {in_words.count(step.analysis.collectives, 'collective')},"
    f" {f'{tflop:,.0f}' if tflop >= 100 else f'{tflop:.3g}'} TFLOP of matmuls"
    " and convolutions per GPU and step"
  )
  yield _totals(step)
  yield _moved(step, replayed)
  yield _times(step, replayed)
  if replayed.slowdown_us:
    lost = sorted(replayed.slowdown_us.items(), key=lambda item: -item[1])
    yield layout.table(
      "Kernels slowed most (predicted)",
      ("kernel", "by collective", "ms/step"),
      ((*names, _ms(us)) for names, us in lost[:_MOST_SLOWDOWNS]),
    )
  if costed is not None:
    yield ratios(costed)


def of_tuning(
  tuning: tuning_lib.Tuning, costed: costing_lib.Costing | None
) -> Iterator[rich.console.RenderableType]:
  """All candidates and arms of a tuning, after the tables of its step."""
  yield from of_inspection(tuning.before, costed)
  yield candidates(tuning)
  if tuning.search.arms:
    yield arms(tuning.search, tuning.plan.applied)
    yield from _arms_notes(results.arms(tuning.search))
  found, kept = tuning.kept.config.options, tuning.plan.xla.options
  if idle := [name for name in found if name not in kept]:
    yield f"Left out because they do not change the schedule: {', '.join(idle)}"


def _totals(step: step_lib.Step) -> rich.table.Table:
  return layout.table(
    "Collectives per GPU and step",
    ("kind", "instructions", "executions", "operands MB", "results MB"),
    (
      (
        kind,
        f"{total.num_instructions:,}",
        f"{total.num_executions:,}",
        in_words.mb(total.operand_bytes),
        in_words.mb(total.result_bytes),
      )
      for kind, total in results.totals(step.analysis).items()
    ),
  )


def _moved(
  step: step_lib.Step, replayed: timeline.Timeline
) -> rich.table.Table:
  """The longest collectives and host copies, with their waits."""
  instruction_of = instructions.of_step(step)
  explained = {
    waits.name: waits
    for waits in explaining.of_run(step, step.default).collectives
  }
  rows: list[tuple[float, float, Sequence[str]]] = []
  for collective in step.analysis.collectives:
    name, waits = collective.name, explained[collective.name]
    kernels = step.analysis.kernels_beside[collective.start_id]
    cells = (
      "\n  ".join(
        [
          name,
          *filter(None, [instruction_of[name].moves]),
          *map(str, instruction_of[name].source.frames[:1]),
        ]
      ),
      "scale-up"
      if collective.stream == collectives_lib.SCALE_UP
      else collective.form,
      str(collective.executions),
      in_words.mb(collective.nccl_bytes),
      str(sum(kernel.category == "gemm" for kernel in kernels)),
      str(len(kernels)),
      _taken(step, collective),
    )
    rows.append((waits.lone_us, waits.exposed_us, cells))
  for copy in step.analysis.host_copies:
    cells = (
      copy.name,
      "to host" if copy.to_host else "to GPU",
      str(copy.executions),
      in_words.mb(copy.num_bytes),
      *("-", "-", "-"),
    )
    lone_us = copy.executions * step.copy_cost(copy).time_us
    rows.append((lone_us, replayed.copy_wait_us.get(copy.name, 0.0), cells))
  rows.sort(key=lambda row: -row[0])
  num_left = len(rows) - _MOST_ROWS
  return layout.table(
    "What runs beside each collective (predicted per step, NCCL's defaults)",
    (
      *("collective", "form", "times", "MB", "GEMMs", "kernels", "SMs"),
      *("ms", "wait"),
    ),
    (
      (*cells, _ms(lone_us), _ms(wait_us))
      for lone_us, wait_us, cells in rows[:_MOST_ROWS]
    ),
    caption=f"and {num_left} shorter ones" if num_left > 0 else None,
  )


_MARKS = {
  "NCCL": "",
  "XLA kernel": " (XLA)",
  "copy engines": " (copies)",
  "symmetric kernel": " (symmetric)",
}


def _taken(step: step_lib.Step, collective: collectives_lib.Collective) -> str:
  """The SMs of a collective, and what runs it if not NCCL."""
  return f"{step.num_sms(collective)}{_MARKS[step.run_by(collective)]}"


def _times(
  step: step_lib.Step, replayed: timeline.Timeline
) -> rich.table.Table:
  """The parts of the step time."""
  of_copies = (
    ("+ kernels slowed by copies", _ms(replayed.total_copy_slowdown_us)),
    ("+ waits for copies", _ms(replayed.total_copy_wait_us)),
  )
  return layout.table(
    f"Predicted step, {notes.today()} (errors: docs/cost_model.md)",
    ("part", "ms"),
    (
      ("kernels alone", _ms(replayed.kernel_us)),
      ("+ kernels slowed by collectives", _ms(replayed.total_slowdown_us)),
      ("+ waits for collectives", _ms(replayed.total_exposed_us)),
      *(of_copies if step.analysis.copies else ()),
      ("= step", _ms(replayed.step_time_us)),
      ("collectives slowed by kernels", _ms(replayed.total_delay_us)),
    ),
  )


_NOT_SEARCHED = "-: refused, or not searched because slower than today's step"


def _tuned(applied: plan_lib.Applied) -> str:
  """The heading of the column of step times with NCCL tuned."""
  return "NCCL tuned" if applied == "all" else "NCCL capped"


def _cell(us: float | None) -> str:
  return "-" if us is None else _ms(us)


def candidates(tuning: tuning_lib.Tuning) -> rich.table.Table:
  """All configs that were tried, with their predicted step times."""
  found = results.candidates(tuning.search)
  # Two lines leave more of the 80 columns to names of options.
  tuned = _tuned(tuning.plan.applied).replace(" ", "\n")
  return layout.table(
    f"XLA options tried, with {tuning.num_trials:,} NCCL trials (predicted ms)",
    ("options", "NCCL\ndefaults", tuned, "sure\ngain", ""),
    (
      (
        settings.config_in_words(candidate.config, tuning.search.arms),
        _cell(one.step_time_us),
        _cell(one.tuned_step_time_us),
        _cell(one.gain_us.low_us if one.gain_us else None),
        one.verdict,
      )
      for candidate, one in zip(tuning.candidates, found, strict=True)
    ),
    texts=(0, -1),
    caption=_NOT_SEARCHED,
  )


def arms(
  search: candidates_lib.Search, applied: plan_lib.Applied = "all"
) -> rich.table.Table:
  """Arms: today's configuration, published recipes, and the plan.

  Shows the value of a recipe for this step: its time with NCCL's own choices,
  as you would run it, and with searched settings.
  """
  today_us = search.default.under_nccl_defaults.step_time_us
  fastest = search.fastest_arm.config.options
  (planned,) = (c for c in results.candidates(search) if not c.obstacle)
  rows = []
  for name, arm in (
    *((a.name, a) for a in results.arms(search)),
    ("the plan", planned),
  ):
    us, words = arm.step_time_us, ""
    if us is None:
      words = settings.refusal(arm.failure) if arm.failure else "not tried"
    elif arm is not planned and arm.xla_options == fastest:
      words = "fastest"
    over = "-" if us is None else f"{us / today_us - 1:+.1%}"
    tuned = _cell(arm.tuned_step_time_us)
    rows.append((name, _cell(us), over, tuned, words))
  return layout.table(
    "What you could run without a plan (predicted ms per step)",
    ("arm", "NCCL defaults", "over today", _tuned(applied), ""),
    rows,
    texts=(0, -1),
    caption=_NOT_SEARCHED,
  )


def _arms_notes(found: Iterable[results.Arm]) -> Iterator[str]:
  """One line per note on arms, with the names of its arms."""
  by_note: dict[str, list[str]] = {}
  for arm in found:
    if arm.source:
      by_note[f"It is from {arm.source}."] = [arm.name]
    for note in arm.notes:
      by_note.setdefault(note, []).append(arm.name)
  for note, names in by_note.items():
    yield f"{', '.join(names)}: {note}"


def of_profile(overlaps: overlaps_lib.Overlaps) -> Iterator[rich.table.Table]:
  """Waits, slowdowns and ranks of a run, as measured."""
  late_us = sum(row.late_ranks_us for row in overlaps.collectives)
  total_us = overlaps.kernel_us + overlaps.exposed_us + overlaps.gap_us
  yield layout.table(
    "Measured step, mean of devices and steps",
    ("part", "ms"),
    (
      ("kernels", _ms(overlaps.kernel_us)),
      ("  slowed by collectives", _ms(overlaps.slowdown_us)),
      ("+ waits for collectives", _ms(overlaps.exposed_us)),
      ("  caused by late ranks", _ms(late_us)),
      ("+ gaps", _ms(overlaps.gap_us)),
      ("= step", _ms(total_us)),
      ("median step", _ms(overlaps.step_us)),
    ),
  )
  if overlaps.collectives:
    left = len(overlaps.collectives) - _MOST_ROWS
    columns = ("times", "SMs", "ran", "own", "wait", "late ranks", "slows")
    table = layout.table(
      "Who waited for whom (measured, ms per step)",
      ("collective", *columns),
      (
        (
          row.name,
          f"{row.runs:g}",
          "" if row.num_channels is None else str(row.num_channels),
          _ms(row.ran_us),
          ("" if row.has_all_ranks else "≤ ") + _ms(row.own_us * row.runs),
          _ms(row.exposed_us),
          _ms(row.late_ranks_us),
          _ms(row.slowdown_us),
        )
        for row in overlaps.collectives[:_MOST_ROWS]
      ),
      caption=f"and {left} with shorter waits" if left > 0 else None,
    )
    table.columns[0].no_wrap = True
    yield table
  if overlaps.slowdowns:
    columns = ("kernel", "alike", "by collective", "alone us", "beside us")
    yield layout.table(
      "Kernels slowed most (measured)",
      (*columns, "slowed ms/step"),
      (
        (
          row.kernel,
          str(row.num_kernels),
          row.collective,
          f"{row.lone_us:,.1f}",
          "" if row.beside_us is None else f"{row.beside_us:,.1f}",
          _ms(row.lost_us),
        )
        for row in overlaps.slowdowns[:_MOST_MEASURED_SLOWDOWNS]
      ),
    )
  yield layout.table(
    "Ranks (measured per step)",
    ("device", "steps", "step ms", "came last", "kept others waiting ms"),
    (
      (
        row.name,
        str(row.num_steps),
        _ms(row.step_us),
        f"{row.last:,.1f}",
        _ms(row.late_us),
      )
      for row in overlaps.devices
    ),
  )


def ratios(costed: costing_lib.Costing) -> rich.table.Table:
  """Measured over predicted costs, by kind."""
  columns = ("number", "measured ms", "predicted ms", "least", "median", "most")
  return layout.table(
    "Measured over predicted, alone (without ranks' waits)",
    ("kind", *columns),
    (
      (
        ratio.kind,
        f"{ratio.n:,}",
        _ms(ratio.measured_us),
        _ms(ratio.predicted_us),
        f"{ratio.low:.2f}",
        f"{ratio.median:.2f}",
        f"{ratio.high:.2f}",
      )
      for ratio in costed.ratios
    ),
  )

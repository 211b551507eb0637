# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Candidates: XLA configs, each with the best NCCL settings for it.

XLA's defaults and the published recipes, which you could run without lagom_xla,
are always candidates. Another candidate replaces the fastest of them only if
its gain is sure. Configs that XLA refuses are recorded with the reason.
`evaluation.py` makes candidates.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import functools
import operator

from lagom_xla import errors
from lagom_xla.compile import config as config_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.costs.replay import timeline
from lagom_xla.passes.program import form
from lagom_xla.search.xla import arms as arms_lib

# The low end of a gain's range must reach this share of the step. A smaller
# gain does not justify leaving XLA's defaults.
LEAST_GAIN = 1e-3

Progress = Callable[[str], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
  """An XLA config, with the best NCCL settings found for it.

  Attributes:
    config: the XLA config.
    step: the step as scheduled under it.
    runs: the step that runs, to which all times refer: `step`, unless memory is
      short and XLA rematerializes values.
    settings: the searched NCCL settings, by tuning key.
    under_nccl_defaults: the replay under NCCL's own choices.
    tuned: the replay under `settings`.
    default_times: step times under NCCL's own choices, in every scenario.
    tuned_times: step times under `settings`, in every scenario.
    num_trials: trials of the NCCL search; 0 if it was skipped, because NCCL's
      own choices ruled the candidate out or its schedule was known.
    outcome: how the config's form changed the program.
    peak_bytes: peak device memory of the step, if it was compiled fully.
    capped: the replay under a cap on channels, for jobs that set one with the
      options and load no plugin; None for other jobs.
  """

  config: config_lib.XlaConfig
  step: step_lib.Step
  runs: step_lib.Step
  settings: step_lib.Configuration
  under_nccl_defaults: timeline.Timeline
  tuned: timeline.Timeline
  default_times: uncertainty.Times
  tuned_times: uncertainty.Times
  num_trials: int
  outcome: form.Outcome
  peak_bytes: int | None = None
  capped: timeline.Timeline | None = None

  @property
  def launched_us(self) -> float:
    """Step time with only what every job sets: the options and any cap."""
    return (self.capped or self.under_nccl_defaults).step_time_us

  @property
  def takes_plugin(self) -> bool:
    """Whether `settings` need the tuner plugin: they are more than a cap."""
    return self.tuned is not self.capped

  @property
  def is_searched(self) -> bool:
    """Whether NCCL's settings were searched."""
    return self.tuned is not self.under_nccl_defaults


def tuned_us(candidate: Candidate) -> float:
  """Step time under the searched settings, without gains never measured.

  It leaves out gains from mechanisms that were never measured, so that no
  search or plan relies on them.
  """
  return candidate.tuned_times.sure_us


@dataclasses.dataclass(frozen=True, kw_only=True)
class Refused:
  """A config that XLA or a pass refused, or that does not fit in memory.

  Attributes:
    config: the XLA config.
    reason: why, in a sentence.
    is_too_large: whether the reason is its memory.
  """

  config: config_lib.XlaConfig
  reason: str
  is_too_large: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Search:
  """The candidates that a search tried.

  Attributes:
    default: the candidate with XLA's defaults.
    others: all others, in the order in which they were tried.
    arms: the configs that you could run without lagom_xla, besides the default.
    no_arms: why the arms are unknown; "" if they are known.
    pruned: the best config without options that have no effect, once known
      (`pruning.py`).
  """

  default: Candidate
  others: tuple[Candidate | Refused, ...] = ()
  arms: tuple[arms_lib.Arm, ...] = ()
  no_arms: str = ""
  pruned: config_lib.XlaConfig | None = None

  @property
  def planned(self) -> config_lib.XlaConfig:
    """The config for a plan."""
    return self.best.config if self.pruned is None else self.pruned

  @functools.cached_property
  def best(self) -> Candidate:
    """The candidate to keep.

    A candidate replaces the one kept so far if, under the searched settings, it
    is surely faster by `LEAST_GAIN` of the step, or if its sure gain over the
    default is larger by that much. Some jobs apply the options without the
    tuner plugin. So under NCCL's defaults, the candidate must also be predicted
    no slower than the fastest arm, and slower by at most that share at the end
    of the range. Candidates with a cap are exempt, as the cap is set with the
    options. Then options that only cost time are left out, however little they
    cost.

    If the result is slower than the fastest arm, this starts again from that
    arm instead of the default. So the candidate to keep is predicted to be no
    slower than any arm without the plugin, and no slower than the fastest arm
    with it.
    """
    fastest = self.fastest_arm
    kept = self._best_from(self.default, fastest)
    if (
      kept.launched_us > fastest.launched_us
      or kept.tuned.step_time_us > fastest.tuned.step_time_us
    ):
      return self._best_from(fastest, fastest)
    return kept

  def _best_from(self, kept: Candidate, fastest: Candidate) -> Candidate:
    for candidate in self.scheduled:
      if not self._obstacle(candidate, kept, fastest):
        kept = candidate
    while better := self._better_with_less(kept):
      kept = better
    return kept

  def _better_with_less(self, kept: Candidate) -> Candidate | None:
    """A candidate without some options that are predicted to only cost time."""
    return next(
      (
        candidate
        for candidate in self.scheduled
        if _is_less(candidate.config, kept.config) and _costs(kept, candidate)
      ),
      None,
    )

  @functools.cached_property
  def fastest_arm(self) -> Candidate:
    """The fastest arm by `launched_us`, or the default if none is faster."""
    found = map(self.found, (arm.config for arm in self.arms))
    arms = (c for c in found if isinstance(c, Candidate))
    return min((self.default, *arms), key=lambda c: c.launched_us)

  def found(self, config: config_lib.XlaConfig) -> Candidate | Refused | None:
    """The result of a config; None if it was not tried."""
    tried = (self.default, *self.others)
    return next((c for c in tried if c.config == config), None)

  @property
  def scheduled(self) -> tuple[Candidate, ...]:
    """The candidates that XLA accepted, the default first."""
    others = (c for c in self.others if isinstance(c, Candidate))
    return (self.default, *others)

  def with_candidate(self, candidate: Candidate | Refused) -> Search:
    """The search with one more candidate tried."""
    return dataclasses.replace(self, others=(*self.others, candidate))

  def refused(self, candidate: Candidate, reason: str) -> Search:
    """The search with a candidate refused after all, for this reason."""
    refused = Refused(config=candidate.config, reason=reason)
    return dataclasses.replace(self, others=self._others(candidate, refused))

  def judged_again(self, candidate: Candidate, judged: Candidate) -> Search:
    """The search with a candidate or the default replaced by a new result."""
    if candidate is self.default:
      return dataclasses.replace(self, default=judged)
    return dataclasses.replace(self, others=self._others(candidate, judged))

  def _others(
    self, candidate: Candidate, instead: Candidate | Refused
  ) -> tuple[Candidate | Refused, ...]:
    return tuple(instead if c is candidate else c for c in self.others)

  def obstacle(self, candidate: Candidate) -> str:
    """Why a candidate is not kept, in a few words; "" for the best."""
    best = self.best
    if candidate is best:
      return ""
    if candidate is self.default:
      return "today"
    obstacle = self._obstacle(candidate, best, self.fastest_arm)
    return obstacle or "not surely faster"

  def _obstacle(
    self, candidate: Candidate, kept: Candidate, fastest: Candidate
  ) -> str:
    least_us = LEAST_GAIN * kept.tuned.step_time_us
    slower_us = candidate.tuned.step_time_us - kept.tuned.step_time_us
    if slower_us >= -least_us:  # Nothing else is worth a replay.
      return "not faster" if slower_us >= 0 else "not surely faster"
    if tuned_us(candidate) >= tuned_us(kept) - least_us:
      return "its gain was never measured"
    if not self._is_surely_faster(candidate, kept, least_us):
      return "not surely faster"
    if candidate.capped is not None:
      return ""
    under_defaults = uncertainty.gain(
      fastest.default_times, candidate.default_times
    )
    if under_defaults.mean < 0 or under_defaults.low < -least_us:
      return "may be slower without the plugin"
    return ""

  def _is_surely_faster(
    self, candidate: Candidate, kept: Candidate, least_us: float
  ) -> bool:
    """Whether a candidate is surely faster than the one kept.

    If both surely gain over the default, the one with the larger assured gain
    counts as faster, as for NCCL settings (`nccl/settings.py`).
    """
    if _sure_gain_us(kept, candidate) >= least_us:
      return True
    if kept is self.default:
      return False
    of_kept_us = max(_sure_gain_us(self.default, kept), 0.0)
    return _sure_gain_us(self.default, candidate) >= of_kept_us + least_us


def _costs(candidate: Candidate, without: Candidate) -> bool:
  """Whether leaving out a part of a candidate is predicted to save time."""
  times_us = candidate.launched_us, candidate.tuned.step_time_us
  without_us = without.launched_us, without.tuned.step_time_us
  return times_us != without_us and all(map(operator.ge, times_us, without_us))


def _is_less(some: config_lib.XlaConfig, more: config_lib.XlaConfig) -> bool:
  """Whether `some` is `more` without some of its options."""
  left = more.options.keys() - some.options.keys()
  return bool(left) and some == more.without_options(left)


def _sure_gain_us(before: Candidate, after: Candidate) -> float:
  """The low end of the gain under the searched settings."""
  return uncertainty.gain(before.tuned_times, after.tuned_times).low


Evaluate = Callable[[config_lib.XlaConfig], Candidate | Refused]
Named = Callable[[Candidate], Candidate]


class SoFar:
  """The results so far, to make a plan from if the search is stopped."""

  def __init__(self):
    self.search: Search | None = None

  def add(self, candidate: Candidate | Refused) -> None:
    """Adds the default, then others."""
    if self.search is not None:
      self.search = self.search.with_candidate(candidate)
    elif isinstance(candidate, Candidate):
      self.search = Search(default=candidate)


def launched_alone(
  search: Search, config: config_lib.XlaConfig
) -> Candidate | None:
  """The candidate with only a config's options, if it was tried."""
  alone = config_lib.XlaConfig(options=config.options)
  return next((c for c in search.scheduled if c.config == alone), None)


def without_unchecked(search: Search, stop: errors.Stopped) -> Search:
  """A search without candidates that need another compile to make a plan.

  A plan needs a compile with only the options, which a launcher can set.
  """
  for candidate in search.scheduled:
    if launched_alone(search, candidate.config) is None:
      search = search.refused(candidate, f"Not checked: {stop.reason}.")
  return search


def can_win(candidate: Candidate, so_far: Search) -> bool:
  """Whether a candidate could be the best if collectives took no time."""
  return candidate.tuned.kernel_us < so_far.best.tuned.step_time_us

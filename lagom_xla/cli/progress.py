# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Progress on stderr, so that stdout holds only the result.

On a terminal, a bar shows the current work and the time left. Elsewhere, each
finished piece of work gets a line, and so does the current work after a
silence. So a log shows what a command is doing, and a quick command prints
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
import contextlib
import datetime
import sys
import threading
import time
from typing import TYPE_CHECKING

import rich.console
import rich.progress
import rich.table
import rich.text

from lagom_xla.compile import watching

if TYPE_CHECKING:
  from lagom_xla.compile import config as config_lib

# The end of a line that shows current work.
GOES_ON = " ..."
# Short, so that 80 columns hold the name of an option and its value.
_BAR_WIDTH = 4
# Steps needed for an estimate. The first does not count, because it loads
# everything.
_LEAST_STEPS = 3
# Most recent steps in an estimate, because load and candidates change.
_MOST_RECENT = 4
# Shorter times are not shown; times up to the next are rounded to ten seconds.
_LEAST_S = 5
_MINUTES_FROM_S = 95
# The first silence before a line, and the longest. Each is twice the previous.
FIRST_S = 1.0
_LONGEST_S = 60.0
_LOOKS_S = 0.1


class Bar:
  """Progress in steps, `num_done` so far; use it in a `with` block.

  `words` are the current work. The time left is at most the time budget's. If
  stderr is not a terminal, `lines` prints a line for each step. `is_quiet`
  prints nothing.
  """

  def __init__(
    self,
    *,
    time_budget_s: float | None = None,
    lines: bool = True,
    is_quiet: bool = False,
  ):
    console = rich.console.Console(stderr=True)
    # sys.stderr is None after `2>&-`.
    is_open = sys.stderr is not None and not is_quiet
    is_bar = is_open and sys.stderr.isatty() and not console.is_dumb_terminal
    self._says_silences = is_open and not is_bar
    self._has_lines = lines and self._says_silences
    self._time_budget_s = time_budget_s
    self._started_s = self._printed_s = time.monotonic()
    self.num_done = 0
    self._num_left: float | None = None
    self._num_full = 0
    self._ended_s: list[float] = []
    self.words = "loading JAX"
    self._ended = threading.Event()
    self._silences = threading.Thread(target=self._say_silences, daemon=True)
    self._progress = rich.progress.Progress(
      rich.progress.TextColumn(
        "{task.description}",
        markup=False,
        table_column=rich.table.Column(
          ratio=1, no_wrap=True, overflow="ellipsis"
        ),
      ),
      rich.progress.BarColumn(_BAR_WIDTH),
      rich.progress.MofNCompleteColumn(),
      _Time(self),
      console=console,
      transient=True,
      disable=not is_bar,
      expand=True,
    )
    self._task = self._progress.add_task(self.words, total=None)

  def __enter__(self) -> Bar:
    if self._says_silences:
      self._silences.start()
    self._progress.start()
    return self

  def __exit__(self, *_: object) -> None:
    self._ended.set()
    if self._says_silences:
      self._silences.join()
    self._progress.stop()

  def say(self, words: str) -> None:
    """Shows the current work."""
    self.words = words
    self._progress.update(self._task, description=words)

  @contextlib.contextmanager
  def told_of_compiles(
    self,
    name: Callable[[config_lib.XlaConfig], str],
    *,
    are_steps: bool = False,
    for_clusters: bool = False,
  ) -> Iterator[None]:
    """Shows the names of compiled configs inside the block.

    With `are_steps`, each config is one of the expected steps. With
    `for_clusters`, names include the cluster.
    """
    done: list[config_lib.XlaConfig] = []

    @contextlib.contextmanager
    def watch(
      config: config_lib.XlaConfig, cluster: str, is_to_the_end: bool
    ) -> Iterator[None]:
      words = name(config) + (f" for {cluster}" if for_clusters else "")
      end = " to the end" if is_to_the_end else ""
      self.say(f"compiling {words}{end}")
      yield
      if are_steps and config not in done:
        done.append(config)
        self.advance(words)
      self.say(f"costing {words}")

    with watching.by(watch):
      yield

  def expect(self, num_steps: int) -> None:
    """Sets the number of steps."""
    self.estimate(num_steps)
    self._progress.update(self._task, total=num_steps)

  def estimate(self, num_left: float, num_full: int = 0) -> None:
    """Sets the estimated number of steps left.

    Besides them, `num_full` steps will each take as long as the first one did,
    which loads and compiles everything.
    """
    self._num_left, self._num_full = num_left, num_full

  def advance(self, words: str, outcome: str = "") -> None:
    """Counts a step as done; only lines show its outcome."""
    self.num_done += 1
    if self._num_left is not None:
      self._num_left = max(self._num_left - 1, 0.0)
    self._ended_s.append(time.monotonic())
    self._progress.update(self._task, advance=1, description=words)
    if self._has_lines:
      self._print(f"{words}{outcome}")

  def _print(self, words: str, end: str = "") -> None:
    """Prints a line in one piece, because two threads print."""
    elapsed_s = time.monotonic() - self._started_s
    line = f"{elapsed_s:7.1f} s  {words}{self.left_in_words}{end}\n"
    print(line, end="", file=sys.stderr, flush=True)
    self._printed_s = time.monotonic()

  def _say_silences(self) -> None:
    """Prints the current work after a silence, in a thread."""
    longest_s = FIRST_S
    while not self._ended.wait(_LOOKS_S):
      if time.monotonic() - self._printed_s >= longest_s:
        self._print(self.words, GOES_ON)
        longest_s = min(2 * longest_s, _LONGEST_S)

  @property
  def left_in_words(self) -> str:
    """The time left, after a comma; "" if unknown or short."""
    now_s = time.monotonic()
    left_s: float | None = None
    if self.num_done >= _LEAST_STEPS and self._num_left is not None:
      first_s, *others_s = self._ended_s[-1 - _MOST_RECENT :]
      step_s = (others_s[-1] - first_s) / len(others_s)
      full_s = self._num_full * (self._ended_s[0] - self._started_s)
      left_s = self._num_left * step_s + full_s - (now_s - others_s[-1])
      left_s = max(left_s, 0.0)
    if self._time_budget_s is not None:
      budget_s = self._time_budget_s - (now_s - self._started_s)
      if budget_s > 0 and (left_s is None or budget_s < left_s):
        return f", at most {datetime.timedelta(seconds=round(budget_s))} left"
    if left_s is None or left_s < _LEAST_S:
      return ""
    if left_s < _MINUTES_FROM_S:
      return f", about {max(10 * round(left_s / 10), 10)} s left"
    return f", about {round(left_s / 60)} min left"


class _Time(rich.progress.ProgressColumn):
  """The time left, or the elapsed time if unknown."""

  def __init__(self, bar: Bar):
    super().__init__()
    self._bar = bar

  def render(self, task: rich.progress.Task) -> rich.text.Text:
    if left := self._bar.left_in_words:
      return rich.text.Text(left.replace(", at most ", "≤ ").lstrip(", "))
    elapsed_s = round(task.elapsed or 0.0)
    return rich.text.Text(str(datetime.timedelta(seconds=elapsed_s)))

# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A progress bar on stderr, so that stdout holds the result alone."""

from __future__ import annotations

import rich.console
import rich.progress


class Bar:
  """A bar for a known number of steps.

  There is none where stderr is not a terminal, and it vanishes on an error.
  """

  def __enter__(self) -> Bar:
    console = rich.console.Console(stderr=True)
    self._progress = rich.progress.Progress(
      rich.progress.TextColumn("{task.description:44.44}", markup=False),
      rich.progress.BarColumn(),
      rich.progress.MofNCompleteColumn(),
      rich.progress.TimeElapsedColumn(),
      console=console,
      disable=not console.is_terminal,
    )
    self._progress.start()
    self._task = self._progress.add_task("", total=None)
    return self

  def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
    self._progress.live.transient = error is not None
    done = self._progress.tasks[self._task].completed
    self._progress.update(self._task, total=done)
    self._progress.stop()

  def say(self, words: str) -> None:
    """Says what is going on."""
    self._progress.update(self._task, description=words)

  def expect(self, num_steps: int) -> None:
    """Sets how many steps there are at most."""
    self._progress.update(self._task, total=num_steps)

  def advance(self, words: str) -> None:
    """One more step is done."""
    self._progress.update(self._task, advance=1, description=words)

# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Arms and their outcomes, in the order in which reports list them."""

from __future__ import annotations

from collections.abc import Iterator

from lagom_xla.flags import environment
from lagom_xla.search.xla import arms as arms_lib
from lagom_xla.search.xla import candidates as candidates_lib

# The outcome of an arm; None where it was not tried.
Found = candidates_lib.Candidate | candidates_lib.Refused | None


def rows(
  search: candidates_lib.Search,
) -> Iterator[tuple[arms_lib.Arm, Found]]:
  """Each arm with its outcome, what runs today first."""
  options = environment.options_in_words()
  name = options if environment.is_set() else f"today: {options}"
  yield arms_lib.Arm(name=name, config=search.default.config), search.default
  for arm in search.arms:
    yield arm, search.found(arm.config)

# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The table and the rule by which XLA's combiners fill their groups."""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses

import pytest

from lagom_xla.flags import debug_options
from lagom_xla.passes.combine import table


@pytest.mark.parametrize("kind", table.COMBINERS)
def test_options_and_defaults_are_those_of_the_installed_xla(
  kind: str,
) -> None:
  combiner = table.COMBINERS[kind]
  option = debug_options.find(combiner.option)
  assert option is not None
  assert option.default == combiner.default_bytes


@dataclasses.dataclass(frozen=True)
class _Array:
  """An all-gather of a type of its own or of the others'."""

  name: str
  num_bytes: int
  traits: table.Traits = ()
  kind: str = "all-gather"


def _filled(
  arrays: Sequence[_Array],
  threshold_bytes: int,
  after: Sequence[tuple[str, str]] = (),
) -> list[str]:
  groups = table.fill(
    arrays,
    {"all-gather": threshold_bytes},
    depends=lambda array, others: any(
      (array.name, other.name) in after for other in others
    ),
  )
  return ["".join(array.name for array in group) for group in groups]


@pytest.mark.parametrize(
  ("threshold_bytes", "groups"),
  [
    (0, ["a", "b", "c", "d", "e"]),
    (4, ["a", "c", "b", "d", "e"]),
    # One that is too large stays alone; those around it are still combined.
    (8, ["c", "ab", "de"]),
    # It is the first one without room that begins the next group.
    (40, ["ab", "cd", "e"]),
    (100, ["abcde"]),
  ],
)
def test_groups_are_filled_up_to_the_threshold(
  threshold_bytes: int, groups: list[str]
) -> None:
  arrays = [_Array(n, 36 if n == "c" else 4) for n in "abcde"]
  assert _filled(arrays, threshold_bytes) == groups


def test_what_differs_in_a_trait_is_passed_over() -> None:
  pipelined = (("pipelining", True),)
  arrays = [_Array("a", 4), _Array("b", 4, pipelined), _Array("c", 4)]
  assert _filled(arrays, 8) == ["ac", "b"]
  assert table.difference(pipelined, (("pipelining", False),)) == (
    "pipelining", True, False,
  )  # fmt: skip


def test_what_depends_on_a_member_begins_the_next_group() -> None:
  arrays = [_Array(name, 4) for name in "abc"]
  assert _filled(arrays, 100, after=[("b", "a")]) == ["a", "bc"]

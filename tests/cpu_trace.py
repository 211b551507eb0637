# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XSpaces of XLA:CPU for tests, of executions whose times are known.

Instructions run one after the other in the order of the schedule. What leaves
its work to other threads is marked as handed over at once, and as over by an
event of its own, as XLA's profiler does it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import pathlib

import jax

from benchmarks.live.cpu import replay
from lagom_xla.passes import hlo

_STATS = ("hlo_op", "hlo_module", "run_id", "device_ordinal", "_p", "_c")
_BETWEEN_PS = 10**9


@dataclasses.dataclass(frozen=True, kw_only=True)
class Did:
  """What an instruction did, and how long that took."""

  kind: replay.Kind
  seconds: float


def write(
  folder: pathlib.Path,
  module: hlo.Module,
  executions: Sequence[Mapping[str, Did]],
) -> None:
  """Writes a trace of a module's entry.

  Args:
    folder: that it goes to.
    module: scheduled.
    executions: of each, what instructions did and took, by name.
  """
  names = [i.name for i in module.entry.instructions]
  names += [f"end: {name}" for name in names]
  numbers = {name: number for number, name in enumerate(names, start=1)}
  parts = ['planes { name: "/host:CPU"']
  for kind, all_ in (("stat", _STATS), ("event", names)):
    parts += [
      f'{kind}_metadata {{ key: {i} value {{ id: {i} name: "{name}" }} }}'
      for i, name in enumerate(all_, start=1)
    ]
  parts.append('lines { id: 1 name: "tf_XLAEigen/1"')
  begin_ps = 0
  for run_id, execution in enumerate(executions, start=1):
    for instruction in module.entry.instructions:
      if instruction.name in execution:
        did = execution[instruction.name]
        end_ps = begin_ps + round(did.seconds * 1e12)
        parts += _events(
          numbers, instruction.name, module.name, run_id, begin_ps, end_ps, did
        )
        begin_ps = end_ps
    begin_ps += _BETWEEN_PS
  xspace = jax.profiler.ProfileData.text_proto_to_serialized_xspace(
    "\n".join([*parts, "} }"])
  )
  folder.mkdir(parents=True, exist_ok=True)
  (folder / "host.xplane.pb").write_bytes(xspace)


def _events(
  numbers: Mapping[str, int],
  name: str,
  module: str,
  run_id: int,
  begin_ps: int,
  end_ps: int,
  did: Did,
) -> Iterator[str]:
  """An instruction's event, and the end of what it left to others."""
  link = 1000 * run_id + numbers[name]
  stats = (
    f'stats {{ metadata_id: 1 str_value: "{name}" }}'
    f' stats {{ metadata_id: 2 str_value: "{module}" }}'
    f" stats {{ metadata_id: 3 uint64_value: {run_id} }}"
    " stats { metadata_id: 4 uint64_value: 0 }"
    f" stats {{ metadata_id: 5 uint64_value: {link} }}"
  )
  held_ps = 0 if did.kind == "product" else end_ps - begin_ps
  yield _event(numbers[name], begin_ps, held_ps, stats)
  if did.kind == "product":
    over = f"stats {{ metadata_id: 6 uint64_value: {link} }}"
    yield _event(numbers[f"end: {name}"], end_ps, 0, over)


def _event(number: int, begin_ps: int, held_ps: int, stats: str) -> str:
  return (
    f"events {{ metadata_id: {number} offset_ps: {begin_ps}"
    f" duration_ps: {held_ps} {stats} }}"
  )

# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What is ready is all that can run, as it stood; what is last comes last."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.live.cpu import behind_products
import hlo_text

_NUM = 8
_BODY = "p0 = f32[8] parameter(0)\n" + "\n".join(
  f"{'ROOT ' * (i == _NUM - 1)}p{i} = f32[8] negate(p{i - 1})"
  for i in range(1, _NUM)
)


@given(st.data())
def test_each_runs_once_after_what_it_waits_for(data: st.DataObject):
  entry = hlo_text.load(_BODY).entry
  ids = [i.id for i in entry.instructions]
  waits_for = {
    id_: data.draw(st.frozensets(st.sampled_from(ids[:n]))) if n else set()
    for n, id_ in enumerate(ids)
  }
  last = data.draw(st.frozensets(st.sampled_from(ids)))
  queue = behind_products.Queue(entry, waits_for, last)
  ran: list[int] = []
  while ready := [i.id for i in queue.ready]:
    left = [i for i in ids if i not in ran and waits_for[i] <= set(ran)]
    assert ready == ([i for i in left if i not in last] or left)
    taken = data.draw(st.sampled_from(ready))
    queue.take(taken)
    ran.append(taken)
  assert sorted(ran) == sorted(ids)

# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Every pair of a start and a done is one collective with its bytes.

They are counted by hand: f32 takes four, bf16 two.
"""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

import collective_text
import hlo_text
from lagom_xla.passes import collectives

_REDUCE = collective_text.REDUCE
_SCATTER = collective_text.SCATTER
_NO_IDS = collective_text.NO_IDS
_PAIRS = collective_text.PAIRS
_GATHER = hlo_text.GATHER


@dataclasses.dataclass(frozen=True)
class _Form:
  """A way to write a collective, and what it comes to."""

  kind: str
  parameters: str  # Types of parameters p0, p1, ...
  start: str  # Type and operation, as in the text.
  done: str  # Type of the result.
  num_operands: int
  operand_bytes: int
  result_bytes: int
  computations: str = ""
  done_opcode: str = ""

  def body(self, between: str = "busy = f32[] negate(zero)") -> str:
    """The collective with an instruction between its start and its done."""
    opcode = re.search(r" ([a-z-]+)-start\(", self.start)
    assert opcode is not None
    parameters = [
      f"p{i} = {t} parameter({i})"
      for i, t in enumerate(self.parameters.split(";"))
    ]
    return "\n".join(
      [
        *parameters,
        "zero = f32[] constant(0)",
        f"begin = {self.start}",
        between,
        f"ROOT end = {self.done} {opcode[1]}-done(begin)",
      ]
    )


_FORMS = {
  "all-gather-start": _Form(
    "all-gather",
    "f32[128]",
    f"(f32[128], f32[1024]) all-gather-start(p0), {_GATHER}",
    "f32[1024]",
    1, 512, 4096,
  ),
  "all-gather-start of two": _Form(
    "all-gather",
    "f32[128];bf16[64]",
    "((f32[128], bf16[64]), (f32[1024], bf16[512]))"
    f" all-gather-start(p0, p1), {_GATHER}",
    "(f32[1024], bf16[512])",
    2, 512 + 128, 4096 + 1024,
  ),
  "all-reduce-start": _Form(
    "all-reduce",
    "f32[128]",
    f"f32[128] all-reduce-start(p0), {_REDUCE}",
    "f32[128]",
    1, 512, 512,
  ),
  "all-reduce-start of two": _Form(
    "all-reduce",
    "f32[128];f32[3,5]",
    f"(f32[128], f32[3,5]) all-reduce-start(p0, p1), {_REDUCE}",
    "(f32[128], f32[3,5])",
    2, 512 + 60, 512 + 60,
  ),
  "collective-permute-start": _Form(
    "collective-permute",
    "f32[128]",
    "(f32[128], f32[128], u32[], u32[])"
    f" collective-permute-start(p0), {_PAIRS}",
    "f32[128]",
    1, 512, 512,
  ),
  "collective-permute-start without contexts": _Form(
    "collective-permute",
    "f32[128]",
    f"(f32[128], f32[128]) collective-permute-start(p0), {_PAIRS}",
    "f32[128]",
    1, 512, 512,
  ),
  "collective-permute-start of four": _Form(
    "collective-permute",
    "f32[128]",
    "((f32[128], f32[128], f32[128], f32[128]),"
    " (f32[128], f32[128], f32[128], f32[128]))"
    f" collective-permute-start(p0, p0, p0, p0), {_PAIRS}",
    "(f32[128], f32[128], f32[128], f32[128])",
    4, 4 * 512, 4 * 512,
  ),
  "reduce-scatter-start": _Form(
    "reduce-scatter",
    "f32[1024]",
    f"((f32[1024]), f32[128]) reduce-scatter-start(p0), {_SCATTER}",
    "f32[128]",
    1, 4096, 512,
  ),
  "reduce-scatter-start of two": _Form(
    "reduce-scatter",
    "f32[1024];f32[8]",
    "((f32[1024], f32[8]), (f32[128], f32[1]))"
    f" reduce-scatter-start(p0, p1), {_SCATTER}",
    "(f32[128], f32[1])",
    2, 4096 + 32, 512 + 4,
  ),
  "all-to-all-start": _Form(
    "all-to-all",
    "bf16[8,128]",
    "((bf16[8,128]), bf16[8,128])"
    f" all-to-all-start(p0), {_NO_IDS}, dimensions={{0}}",
    "bf16[8,128]",
    1, 2048, 2048,
  ),
  "ragged-all-to-all-start": _Form(
    "ragged-all-to-all",
    "f32[16,128];f32[32,128];s32[8]",
    "((f32[16,128], f32[32,128], s32[8], s32[8], s32[8], s32[8]),"
    " f32[32,128])"
    f" ragged-all-to-all-start(p0, p1, p2, p2, p2, p2), {_NO_IDS}",
    "f32[32,128]",
    1, 8192, 16384,
  ),
  "collective-broadcast-start": _Form(
    "collective-broadcast",
    "f32[8,128]",
    "((f32[8,128]), f32[8,128])"
    f" collective-broadcast-start(p0), {_NO_IDS}",
    "f32[8,128]",
    1, 4096, 4096,
  ),
  "async-start of a reduce-scatter": _Form(
    "reduce-scatter",
    "f32[1024]",
    "((f32[1024]), f32[128]) async-start(p0), calls=wrapped",
    "f32[128]",
    1, 4096, 512,
    f"""
      wrapped {{
        q = f32[1024] parameter(0)
        ROOT operation = f32[128] reduce-scatter(q), {_SCATTER}
      }}
    """,
  ),
  "async-start of an all-to-all of eight": _Form(
    "all-to-all",
    "f32[16]",
    f"((f32[16]), ({', '.join(['f32[16]'] * 8)}))"
    " async-start(p0), calls=wrapped",
    f"({', '.join(['f32[16]'] * 8)})",
    8, 8 * 64, 8 * 64,
    f"""
      wrapped {{
        q = f32[16] parameter(0)
        ROOT operation = ({', '.join(['f32[16]'] * 8)})
          all-to-all({', '.join('q' * 8)}), {_NO_IDS}
      }}
    """,
  ),
  "async-start of an all-gather": _Form(
    "all-gather",
    "f32[128]",
    "((f32[128]), f32[1024]) async-start(p0), calls=wrapped",
    "f32[1024]",
    1, 512, 4096,
    f"""
      wrapped {{
        q = f32[128] parameter(0)
        ROOT operation = f32[1024] all-gather(q), {_GATHER}
      }}
    """,
  ),
}  # fmt: skip


@pytest.fixture(params=_FORMS.values(), ids=list(_FORMS))
def form(request: pytest.FixtureRequest) -> _Form:
  return request.param


def test_an_async_pair_is_one_collective_with_the_bytes_of_its_arrays(
  form: _Form,
) -> None:
  module = hlo_text.load(form.body(), computations=form.computations)
  (collective,) = collectives.find(module)
  assert collective_text.counts(collective) == (
    form.kind,
    form.num_operands,
    form.operand_bytes,
    form.result_bytes,
  )
  assert collective.name == "begin"
  assert collective.form == "async"
  assert collective.computation == "main"
  assert collective.executions == 1
  by_id = module.entry.by_id
  assert by_id[collective.start_id].name == "begin"
  assert collective.done_id is not None
  assert by_id[collective.done_id].name == "end"
  num_devices = 4 if form.kind == "collective-permute" else 8
  assert collective.groups == (tuple(range(num_devices)),)
  assert (collective.group_size, collective.num_groups) == (num_devices, 1)
  moved = min if form.kind == "ragged-all-to-all" else max
  assert collective.nccl_bytes == moved(form.operand_bytes, form.result_bytes)


@pytest.mark.parametrize(
  "between", ["", "q = f32[] bitcast(zero)", "q = (f32[]) tuple(zero)"]
)
def test_a_pair_with_only_no_ops_between_is_sync(
  form: _Form, between: str
) -> None:
  body = form.body(between)
  assert (
    collective_text.only(body, computations=form.computations).form == "sync"
  )


def test_is_sync_and_is_pipelined_are_read_from_the_start() -> None:
  def written(config: dict[str, bool]) -> collectives.Collective:
    text = json.dumps({"collective_backend_config": config})
    form = _FORMS["all-reduce-start"]
    start = f"{form.start}, backend_config={text}"
    return collective_text.only(dataclasses.replace(form, start=start).body())

  assert written({"is_sync": False}).form == "async"
  assert written({"is_sync": True}).form == "sync"
  assert not written({"is_sync": True}).is_pipelined
  assert written({"is_pipelined": True}).is_pipelined


def test_a_pair_with_an_update_between_ends_at_its_done() -> None:
  form = _FORMS["async-start of a reduce-scatter"]
  module = hlo_text.load(
    """
      p = f32[1024] parameter(0)
      begin = ((f32[1024]), f32[128]) async-start(p), calls=wrapped
      busy = f32[1024] negate(p)
      update = ((f32[1024]), f32[128]) async-update(begin)
      more = f32[1024] negate(busy)
      ROOT end = f32[128] async-done(update)
    """,
    computations=form.computations,
  )
  (collective,) = collectives.find(module)
  assert collective.done_id is not None
  assert module.entry.by_id[collective.done_id].name == "end"

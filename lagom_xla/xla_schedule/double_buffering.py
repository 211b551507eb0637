# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA's double buffering of loops: bodies that hold two iterations.

Two bodies are put one after the other and the trips halved; an odd iteration
goes before the loop. XLA does this before it fuses and schedules; here it is
done to the dependences of the scheduled loop.
"""

from __future__ import annotations

from lagom_xla.passes import hlo
from lagom_xla.xla_schedule import around_loop
from lagom_xla.xla_schedule import editing
from lagom_xla.xla_schedule import loop_editing


def double_buffer(module: hlo.Module) -> hlo.Module:
  """Lets the loops that hold collectives run two iterations per body.

  Args:
    module: scheduled.
  """
  for caller_id, loop_id in loop_editing.each_loop(module):
    editor = editing.Editor(module)
    loop = loop_editing.Loop(editor, module.computations[caller_id], loop_id)
    if not loop.is_plain or not loop.collectives():
      continue
    loop.drop_copies()
    if loop.num_trips % 2:
      copies = around_loop.put_before(
        loop, loop.body, around_loop.state(loop), f".peeled{loop_id}"
      )
      around_loop.start_with(
        loop, [copies[id_] for id_ in loop.root.operand_ids]
      )
    between = loop.root
    made, copies = loop.copies(
      loop.body, list(between.operand_ids), f".double{loop_id}"
    )
    # XLA has what reads the state wait for the whole iteration before it.
    waiting = {copies.get(i.id) for i in loop.readers()}
    for copy in made:
      if copy.id in waiting:
        copy.control_predecessor_ids.append(between.id)
    loop.append(made, [copies[id_] for id_ in between.operand_ids])
    loop.set_trips(loop.num_trips // 2)
    module = editor.finish()
  return module

# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What one of the two hosts runs: every form of the step, in turns.

    python -m benchmarks.strands.wall_clock.host JSON

The JSON is a task of `table.py`. The last line of what is printed is JSON
too: {"seconds": form -> seconds of each round, "is_same": form -> whether it
gave the same bits as the first, "refused": form -> why it cannot be made}.
"""

from __future__ import annotations

import json
import time
from typing import Any

import jax

from benchmarks import shaped_hosts
from benchmarks.live.cpu import behind_products
from benchmarks.strands.wall_clock import train_step
from lagom_xla.compile import rewriting
from lagom_xla.passes import in_compile
from lagom_xla.passes import registry
from lagom_xla.passes.program import form as form_lib
from lagom_xla.passes.program.slices import chains as chains_lib

_MODULE = "jit_train_step"


def main() -> None:
  """Runs the forms, one step of each per round."""
  task = shaped_hosts.joined()
  sizes = train_step.Sizes(**task["sizes"])
  step, specs = train_step.train_step(jax.devices(), sizes)
  compiled, refused = {}, {}
  for name, form in task["forms"].items():
    made = _compiled(step.lower(*specs), **form)
    if isinstance(made, str):
      refused[name] = made
    else:
      compiled[name] = made
  arguments = jax.tree.map(train_step.filled, specs)

  def run(name: str) -> Any:
    return jax.block_until_ready(compiled[name](*arguments))

  outputs = {name: shaped_hosts.bits(run(name)) for name in compiled}
  first = next(iter(outputs.values()))
  seconds: dict[str, list[float]] = {name: [] for name in compiled}
  for name in shaped_hosts.in_turns(list(compiled), task["num_rounds"]):
    begin = time.perf_counter()
    run(name)
    seconds[name].append(time.perf_counter() - begin)
  is_same = {name: out == first for name, out in outputs.items()}
  found = {"seconds": seconds, "is_same": is_same, "refused": refused}
  print(json.dumps(found), flush=True)


def _compiled(
  lowered: jax.stages.Lowered,
  *,
  strands: form_lib.Strands,
  num_pieces: int,
  is_ordered: bool,
) -> jax.stages.Compiled | str:
  """The step in a form; or why it cannot have it."""
  form = form_lib.Form(strands=strands, slices=_slices(lowered, num_pieces))
  if num_pieces > 1 and not form.slices:
    return "the step has no chain that can be cut so"
  rewritten, outcome = rewriting.step(lowered, form)
  if not (form.is_as_written or outcome.actions):
    return rewriting.obstacle(form, outcome)
  if not is_ordered:
    return rewritten.compile()
  with in_compile.rewritten(
    _MODULE,
    behind_products.rewrite,
    registry.Stage.POST_SCHEDULER,
    platform="cpu",
  ):
    # An option that changes nothing: JAX would take the program's other order
    # from its memory.
    return rewritten.compile(
      compiler_options={"xla_embed_ir_in_executable": True}
    )


def _slices(lowered: jax.stages.Lowered, num_pieces: int) -> dict[str, int]:
  """Every chain that can be, cut in so many pieces."""
  if num_pieces == 1:
    return {}
  program: Any = lowered.compiler_ir("stablehlo")
  return {
    chain.label: num_pieces
    for chain in chains_lib.find(program)
    if num_pieces in chain.pieces
  }


if __name__ == "__main__":
  main()

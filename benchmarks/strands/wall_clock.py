# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Forms by wall clock: two hosts on one machine, joined by a slow link.

    python -m benchmarks.strands.wall_clock JSON

is what one of the hosts runs: each way of a task of `table` in turns. The last
line of what it prints is JSON too: {"seconds": way -> seconds of each round,
"is_same": way -> whether it gave the same bits as the first}.

The step runs over gloo. The link has a limited rate, so that there is something
to hide; and XLA:CPU hides it once a pass has put each collective behind a
product (`behind_products`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import json
import os
import time
from typing import Any

import jax

from benchmarks import shaped_hosts
from benchmarks import table as table_lib
from benchmarks.live.cpu import behind_products
from benchmarks.workloads import perceptrons
from lagom_xla.compile import rewriting
from lagom_xla.passes import in_compile
from lagom_xla.passes import registry
from lagom_xla.passes.program import form as form_lib
from lagom_xla.passes.program.slices import chains as chains_lib

_XLAS_ORDER = "XLA's order"
# The form, in how many pieces chains are cut, and whether collectives are put
# behind products; others are held to the first.
_WAYS: Mapping[str, tuple[str, int, bool]] = {
  "sequential": ("none", 1, True),
  _XLAS_ORDER: ("none", 1, False),
  "strands, paired": ("paired", 1, True),
  "strands, rotated": ("rotated", 1, True),
  "slices of 2": ("none", 2, True),
  "slices of 4": ("none", 4, True),
  "both, paired and 2": ("paired", 2, True),
}
# Tokens, and the rate of the link in Mb/s.
_SETTINGS = ((512, 200), (256, 400))
_NUM_LAUNCHES = 3
_NUM_ROUNDS = 10

_COLUMNS = table_lib.columns(
  setting="", form="", over="", ms=".0f", ratio=".3f", low=".3f", high=".3f",
  same_bits="", launches="d", rounds="d", load=".1f",
)  # fmt: skip


def table() -> table_lib.Table:
  """Measures all settings.

  Raises:
    LagomError: a host ended before it had measured.
  """
  rows: list[dict[str, Any]] = []
  for tokens, rate in _SETTINGS:
    launches = []
    for _ in range(_NUM_LAUNCHES):  # Each makes its own hosts.
      task = {"tokens": tokens, "num_rounds": _NUM_ROUNDS}
      hosts = shaped_hosts.run(
        "benchmarks.strands.wall_clock", task, mbit_per_s=rate
      )
      launches.append({"hosts": hosts, "load": os.getloadavg()[0]})
      table_lib.say(f"launched at a load of {launches[-1]['load']:.1f}")
    rows += rows_of(f"T {tokens}, {rate} Mb/s", launches)
  return table_lib.Table(
    name="wall_clock",
    title="Forms by wall clock: two hosts, TP 2, accumulation of 4",
    columns=_COLUMNS,
    rows=rows,
    notes=(
      shaped_hosts.MEASURED_ON,
      "Ratios are of medians over rounds in which all forms took turns, the"
      " slower host's; with 95 % bootstrap intervals over launches and rounds.",
      f"All but {_XLAS_ORDER} have collectives put behind products.",
      shaped_hosts.TO_BE_TRUSTED,
    ),
  )


def rows_of(
  setting: str, launches: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
  """A row per form.

  Args:
    setting: the step and the link.
    launches: of each "hosts", what they printed, and "load", the machine's load
      average over a minute when it was over.
  """
  seconds = [
    {
      form: [host["seconds"][form] for host in launch["hosts"]]
      for form in launch["hosts"][0]["seconds"]
    }
    for launch in launches
  ]
  over, *forms = seconds[0]
  rows = []
  for form in forms:
    ratio = shaped_hosts.ratio(seconds, form, over)
    are_same = all(
      host["is_same"][form] for launch in launches for host in launch["hosts"]
    )
    rows.append(
      {
        "setting": setting,
        "form": form,
        "over": over,
        "ms": 1e3 * shaped_hosts.median(seconds, form),
        "ratio": ratio.ratio,
        "low": ratio.low,
        "high": ratio.high,
        "same_bits": "yes" if are_same else "no",
        "launches": len(launches),
        "rounds": len(seconds[0][form][0]),
        "load": max(launch["load"] for launch in launches),
      }
    )
  return rows


def main() -> None:
  """Runs the ways on this host, one step of each per round."""
  task = shaped_hosts.joined()
  sizes = perceptrons.Sizes(tokens=task["tokens"], num_layers=2)
  step, specs = perceptrons.two_hosts_step(jax.devices(), sizes)
  compiled = {}
  for name, (strands, num_pieces, is_ordered) in _WAYS.items():
    made = _compiled(
      step.lower(*specs), strands, num_pieces, is_ordered=is_ordered
    )
    if isinstance(made, str):
      table_lib.say(f"no {name}: {made}")
    else:
      compiled[name] = made
  arguments = jax.tree.map(perceptrons.filled, specs)

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
  print(json.dumps({"seconds": seconds, "is_same": is_same}), flush=True)


def _compiled(
  lowered: jax.stages.Lowered,
  strands: Any,
  num_pieces: int,
  *,
  is_ordered: bool,
) -> jax.stages.Compiled | str:
  """The step in a form; or why it cannot have it."""
  program: Any = lowered.compiler_ir("stablehlo")
  slices = {
    chain.label: num_pieces
    for chain in chains_lib.find(program)
    if num_pieces in chain.pieces
  }
  if num_pieces > 1 and not slices:
    return "the step has no chain that can be cut so"
  form = form_lib.Form(strands=strands, slices=slices if num_pieces > 1 else {})
  rewritten, outcome = rewriting.step(lowered, form)
  if not (form.is_as_written or outcome.actions):
    return rewriting.obstacle(form, outcome)
  if not is_ordered:
    return rewritten.compile()
  with in_compile.rewritten(
    "jit_train_step",
    behind_products.rewrite,
    registry.Stage.POST_SCHEDULER,
    platform="cpu",
  ):
    # An option that changes nothing: JAX would take the program's other order
    # from its memory.
    return rewritten.compile(
      compiler_options={"xla_embed_ir_in_executable": True}
    )


if __name__ == "__main__":
  main()

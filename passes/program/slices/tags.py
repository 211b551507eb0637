# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tags on collectives: the chains that they are in, known when scheduled."""

from __future__ import annotations

from jaxlib.mlir import ir

from lagom_xla.passes.program import mlir
from lagom_xla.passes.program.slices import chains as chains_lib
from lagom_xla.passes.program.slices import implied
from lagom_xla.passes.program.slices import reach

# A frontend attribute: it stays with a collective until it is scheduled.
CHAIN = "lagom_chain"


def tag(module: ir.Module) -> None:
  """Marks the collectives of all chains with the labels of the chains.

  The frontend attribute `CHAIN` stays with a collective until it is scheduled.
  Calls are inlined.

  Args:
    module: a lowered program.
  """
  with module.context, ir.Location.unknown():
    shardings = chains_lib.prepare(module)
    labels: dict[int, list[str]] = {}
    collectives: dict[int, ir.Operation] = {}
    for located in chains_lib.locate(module, shardings):
      for link in located.links:
        if implied.kind(link.operation) in reach.COLLECTIVES:
          labels.setdefault(link.number, []).append(located.chain.label)
          collectives[link.number] = link.operation
    for number, of_chains in labels.items():
      of_all = ",".join(of_chains)
      mlir.set_frontend_attributes(collectives[number], {CHAIN: of_all})
    implied.remove_notes(module)

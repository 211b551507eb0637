# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The time that it takes to rewrite a program to each of its forms.

  python -m benchmarks.rewrite MODULE.hlo.xz...

Modules are those that XLA has partitioned and not optimized yet. A form that
cannot act is timed as well: deciding so is what most programs pay for.
"""

from __future__ import annotations

import argparse
import pathlib
import time
import typing

from jaxlib.mlir import ir

from lagom_xla.compile import unoptimized
from lagom_xla.passes import hlo
from lagom_xla.passes.program import form as form_lib
from lagom_xla.passes.program import rewrite
from lagom_xla.passes.program.slices import chains
from lagom_xla.passes.program.stablehlo import dependence


def _time(module: ir.Module, form: form_lib.Form, name: str) -> None:
  begin = time.perf_counter()
  _, outcome = rewrite.rewrite(module, form)
  seconds = time.perf_counter() - begin
  print(f"  {name:12} {seconds:6.2f} s  {len(outcome.actions):5} actions")


def _time_forms(path: pathlib.Path) -> None:
  module = unoptimized.stablehlo_of(hlo.load(path))
  num_operations = len(dependence.inner_operations(module.operation))
  print(f"{path.name}: {num_operations} operations")
  for strands in typing.get_args(form_lib.Strands):
    if strands != "none":
      _time(module, form_lib.Form(strands=strands), strands)
  begin = time.perf_counter()
  found = chains.find(module)
  seconds = time.perf_counter() - begin
  print(f"  {'find chains':12} {seconds:6.2f} s  {len(found):5} chains")
  pieces = {c.label: min(c.pieces) for c in found if c.pieces}
  _time(module, form_lib.Form(slices=pieces), "slices")


def main() -> None:
  """Times the forms of each module that is named."""
  parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
  parser.add_argument("modules", type=pathlib.Path, nargs="+")
  for path in parser.parse_args().modules:
    _time_forms(path)


if __name__ == "__main__":
  main()

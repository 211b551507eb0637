# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What is left of plans where the cost model is wrong, without a GPU.

    python -m benchmarks.robust [--data FOLDER] [--only=NAME,...]
        [--format=text|json] [--csv=FOLDER]

Tables: settings, joint, coverage. Every plan is replayed with each part of the
model at the ends of its spread (costs/fitted/errors.json). The joint search
leaves out modules that XLA takes half a minute to schedule; their settings on
XLA's default schedule are in the first table. Results of ours are in results/.
"""

from __future__ import annotations

import os
import pathlib

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from benchmarks import command_line
from benchmarks import table as table_lib
from benchmarks.robust import coverage
from benchmarks.robust import plans
from benchmarks.search import modules as modules_lib

# XLA takes half a minute to schedule these, once for each set of options.
_SLOW = ("llama-8b-1x8", "mixtral-2x8", "llama-70b-16x8")
_EXAMPLE = modules_lib.llama("llama-example", "1x8xh100")
_MODULES = (_EXAMPLE, *modules_lib.MODULES.values())
_NAMES = ("settings", "joint", "coverage")


def main() -> None:
  """The command."""
  parser = command_line.parser("benchmarks.robust", __doc__)
  parser.add_argument("--data", type=pathlib.Path)
  parser.add_argument("--only", default="")
  arguments = parser.parse_args()
  if arguments.data is not None and not arguments.data.is_dir():
    parser.error(f"there is no folder {arguments.data}")
  names = command_line.names(arguments.only)
  unknown = sorted(set(names) - set(_NAMES))
  if unknown:
    parser.error(
      f"--only={unknown[0]} is no table; choose from {', '.join(_NAMES)}"
    )
  shelf = modules_lib.Shelf(arguments.data)
  tables = []
  for name in names or _NAMES:
    if name == "settings":
      tables.append(plans.settings_table(shelf, _MODULES))
    elif name == "joint":
      quick = [m for m in _MODULES if m.name not in _SLOW]
      tables.append(plans.joint_table(shelf, quick))
    elif arguments.data is None:
      modules_lib.say("coverage left out: it needs --data FOLDER")
    else:
      tables.append(coverage.table(arguments.data))
  table_lib.show(tables, arguments.format, arguments.csv)


if __name__ == "__main__":
  main()

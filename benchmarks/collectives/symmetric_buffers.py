# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What symmetric buffers are predicted to gain, beside what others measured.

    python -m benchmarks.collectives.symmetric_buffers [--data FOLDER]

Lone collectives of eight H100s in bf16 are those of NVIDIA/Megatron-LM's pull
request 5596 (NCCL 2.29): the least of all ranks' times of NCCL's kernels and of
those for symmetric buffers. Nothing is fitted to any of these figures. With the
folder of `benchmarks.accuracy`, XLA's Llama 3.1 8B on 1x8 H100s is compiled
with and without the buffers, for which openxla/xla's pull requests 33613 and
36462 tell of 7 %.
"""

from __future__ import annotations

from collections.abc import Iterator
import pathlib

from benchmarks import table as table_lib
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import load
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs.nccl import symmetric
from lagom_xla.flags import collective_routes
from lagom_xla.search.xla import evaluation

_H100S = cluster_lib.parse("1x8xh100")
_MIB = 2**20
# Kind, MiB, us of NCCL's tuned kernel and of the symmetric one.
_LONE = (
  ("all-gather", 2, 20.2, 10.9),
  ("all-gather", 8, 43.4, 27.4),
  ("all-gather", 32, 118.9, 95.3),
  ("all-gather", 128, 385.3, 363.2),
  ("reduce-scatter", 2, 18.6, 10.8),
  ("reduce-scatter", 8, 47.0, 28.8),
  ("reduce-scatter", 32, 112.6, 100.5),
)
_STEP = "hlo/hlo_llama31_8b_bf16_1x8.hlo.xz"
_STEP_GAIN = 1.07


def lone() -> Iterator[table_lib.Row]:
  """Lone collectives: how many times faster, measured and predicted."""
  for kind, mib, tuned_us, symmetric_us in _LONE:
    key = collective_lib.TuningKey(
      kind=kind, num_ranks=8, num_nodes=1, num_bytes=mib * _MIB
    )
    setting = collective_lib.default_setting(key, _H100S)
    kernel = symmetric.kernel(
      _H100S,
      kind,
      key.num_ranks,
      key.num_bytes,
      reduces_in_switch=True,
      num_arrays=1,
      max_ctas=None,
    )
    predicted_us = collective_lib.predict(key, setting, _H100S).time_us
    yield {
      "what": f"{kind}, {mib} MiB",
      "measured_us": symmetric_us,
      "predicted_us": kernel.time_us,
      "ctas": kernel.num_ctas,
      "measured": tuned_us / symmetric_us,
      "predicted": predicted_us / kernel.time_us,
    }


def step(folder: pathlib.Path) -> Iterator[table_lib.Row]:
  """The whole step, as scheduled with and without the flag."""
  target = load.load(str(folder / _STEP), _H100S)
  times_us = []
  for options in ({}, {collective_routes.SYMMETRIC: True}):
    config = config_lib.XlaConfig(options=options)
    scheduled = evaluation.scheduled_step(target, config)
    times_us.append(scheduled.timeline(scheduled.default).step_time_us)
  yield {
    "what": "Llama 3.1 8B, bf16, a step",
    "measured_us": None,
    "predicted_us": times_us[1],
    "ctas": None,
    "measured": _STEP_GAIN,
    "predicted": times_us[0] / times_us[1],
  }


def main() -> None:
  """Prints the table."""
  parser = table_lib.parser("benchmarks.collectives.symmetric_buffers", __doc__)
  parser.add_argument("--data", metavar="FOLDER", type=table_lib.folder)
  arguments = parser.parse_args()
  rows = list(lone())
  if arguments.data is not None:
    rows += step(arguments.data)
  table = table_lib.Table(
    name="symmetric_buffers",
    title="Symmetric buffers: times and speedups, measured and predicted",
    columns=table_lib.columns(
      what="",
      measured_us=".1f",
      predicted_us=".1f",
      ctas="",
      measured=".3f",
      predicted=".3f",
    ),
    rows=rows,
  )
  table_lib.show([table], arguments.format, arguments.csv)


if __name__ == "__main__":
  main()

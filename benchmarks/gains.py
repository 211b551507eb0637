# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Gains of changes: measured by others, and predicted.

    python -m benchmarks.gains [--data FOLDER] [--only=PART,...]
        [--format=text|csv] [--csv=FOLDER]

Parts: symmetric, streams, forms. Nothing is fitted to these gains. XLA's
modules are compiled if --data (the folder of `benchmarks.accuracy`) has them;
this and streams take minutes. Strands and slices come from
benchmarks/strands/results/forms.csv, which `benchmarks.strands` computes in
hours. Rows without a prediction say why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
import csv
import pathlib

from benchmarks import table as table_lib
from benchmarks.strands import modules as strands_lib
from benchmarks.workloads import cases
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs.nccl import symmetric
from lagom_xla.flags import collective_routes
from lagom_xla.flags import options as options_lib
from lagom_xla.search.xla import evaluation
from lagom_xla.search.xla import knobs

_H100S = cluster_lib.parse("1x8xh100")
_MIB = 2**20

# Lone collectives of eight H100s in bf16: kind, MiB, and us of NCCL 2.29's
# usual kernels and of those for symmetric buffers, minima over ranks.
_LONE = (
  ("all-gather", 2, 20.2, 10.9),
  ("all-gather", 8, 43.4, 27.4),
  ("all-gather", 32, 118.9, 95.3),
  ("all-gather", 128, 385.3, 363.2),
  ("reduce-scatter", 2, 18.6, 10.8),
  ("reduce-scatter", 8, 47.0, 28.8),
  ("reduce-scatter", 32, 112.6, 100.5),
)
_LONE_SOURCE = "NVIDIA/Megatron-LM#5596"
# "Converges by around 256 MiB".
_LARGE = ("all-gather", 256, 1.0, "NVIDIA/Megatron-LM#5655")

# XLA's modules, on 1x8 H100s: name, gain, source.
_MODULES = (
  ("llama31_8b_bf16_1x8", 1.07, "openxla/xla#33613, #36462"),
  ("llama31_8b_fp8_1x8", 1.08, "openxla/xla#36462"),
)
# Llama 3 8B of examples/: cluster, sequences of 8,192 tokens, gain, source.
# TorchTitan used one sequence per GPU; PyTorch's batch size is unknown.
_LLAMAS = (
  ("1x4xgb200", 4, 1.023, "pytorch/torchtitan#3105, compiled"),
  ("1x4xgb200", 4, 1.011, "pytorch/torchtitan#3105, eager"),
  ("1x8xh100", 8, 1.024, "pytorch/pytorch#179937"),
)
_NO_SUCH_STEP = "no step here has its layers"

# The source gives neither the model's layers nor its kernels; 70B is our
# choice.
_STREAMS = "openxla/xla#36839"
_STREAMS_GAIN = 1.16
_TWO_FABRICS: Mapping[str, str] = {
  "model": "70b",
  "mesh": "fsdp:128,tp:8",
  "sequence_parallel": "true",
}

_FORMS = pathlib.Path(__file__).parent / "strands/results/forms.csv"


def _row(
  what: str,
  source: str,
  measured: float,
  predicted: float | None,
  why_not: str = "",
) -> table_lib.Row:
  return {
    "what": what,
    "source": source,
    "measured": measured,
    "predicted": predicted,
    "why_not": why_not,
  }


def _symmetric(data: pathlib.Path | None) -> Iterator[table_lib.Row]:
  """Rows of symmetric buffers: lone collectives, and steps."""
  for kind, mib, by_kernel_us, by_window_us in _LONE:
    measured = by_kernel_us / by_window_us
    yield _row(
      f"symmetric buffers, lone {kind} of {mib} MiB on 1x8xh100",
      _LONE_SOURCE,
      measured,
      _gain_alone(kind, mib),
    )
  kind, mib, measured, source = _LARGE
  yield _row(
    f"symmetric buffers, lone {kind} of {mib} MiB on 1x8xh100",
    source,
    measured,
    _gain_alone(kind, mib),
  )
  options = {collective_routes.SYMMETRIC: True}
  for name, measured, source in _MODULES:
    what = f"symmetric buffers, {name} on 1x8xh100"
    case = cases.of_file(name, f"hlo/hlo_{name}.hlo.xz", "1x8xh100")
    if data is None or not (data / case.file).is_file():
      why_not = f"--data has no {case.file}" if data else "it needs --data"
      yield _row(what, source, measured, None, why_not)
      continue
    yield _row(what, source, measured, _gain(case.load(data), {}, options))
  for cluster, batch_size, measured, source in _LLAMAS:
    llama = cases.of_example(
      "llama", "llama", cluster, model="8b", seq_len="8192",
      batch_size=str(batch_size),
    )  # fmt: skip
    yield _row(
      f"symmetric buffers, Llama 3 8B with FSDP on {cluster}",
      source,
      measured,
      _gain(llama.load(None), {}, options),
    )
  for model, compiled, eager in (
    ("Qwen3 32B", 1.024, 1.027),
    ("GPT-OSS 20B", 1.063, 1.034),
  ):
    for measured, how in ((compiled, "compiled"), (eager, "eager")):
      yield _row(
        f"symmetric buffers, {model} with FSDP on 1x4xgb200",
        f"pytorch/torchtitan#3105, {how}",
        measured,
        None,
        _NO_SUCH_STEP,
      )


def _gain_alone(kind: str, mib: int) -> float:
  """Speedup of a lone collective of eight H100s by symmetric buffers."""
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
  by_kernel = collective_lib.predict(key, setting, _H100S)
  return by_kernel.time_us / kernel.time_us


def _gain(
  target: target_lib.Target,
  before: knobs.XlaOptions,
  after: knobs.XlaOptions,
) -> float:
  """Predicted speedup of a step by other options."""
  before_us, after_us = (
    step.timeline(step.default).step_time_us
    for step in (
      evaluation.scheduled_step(target, config_lib.XlaConfig(options=options))
      for options in (before, after)
    )
  )
  return before_us / after_us


def _streams(_: pathlib.Path | None) -> Iterator[table_lib.Row]:
  """Rows of collectives on several streams; all are pipelined either way."""
  target = cases.of_example(
    "llama", "llama", "128x8xh100", **_TWO_FABRICS
  ).load(None)
  before = _as_installed(
    {
      **dict.fromkeys(knobs.PIPELINED.values(), True),
      "xla_gpu_enable_while_loop_double_buffering": True,
    }
  )
  assert before is not None
  step = evaluation.scheduled_step(target, config_lib.XlaConfig(options=before))
  for value in knobs.two_fabrics(step):
    options = _as_installed(value.options)
    yield _row(
      f"{value.label}, Llama 70B on 128x8xh100, FSDP between nodes",
      _STREAMS,
      _STREAMS_GAIN,
      None if options is None else _gain(target, before, {**before, **options}),
      "" if options else "JAX 0.12 has the option",
    )


def _as_installed(options: knobs.XlaOptions) -> knobs.XlaOptions | None:
  """Options of the installed jaxlib; None if it lacks one."""
  found: dict[str, bool | int | str] = {}
  for name, value in options.items():
    translated = options_lib.translate(name, value)
    if isinstance(translated, str):
      return None
    known, converted = translated
    assert not isinstance(converted, float)
    found[known] = converted
  return found


def _forms(_: pathlib.Path | None) -> Iterator[table_lib.Row]:
  """Rows of strands and slices."""
  with _FORMS.open(newline="", encoding="utf-8") as file:
    found = {line["module"]: line for line in csv.DictReader(file)}
  for name, anchor in strands_lib.PUBLISHED.items():
    hidden = found.get(name, {}).get("hidden")
    yield _row(
      anchor.what,
      anchor.source,
      anchor.gain,
      float(hidden) if hidden else None,
      "" if hidden else f"{_FORMS.name} has no {name}",
    )


_PARTS: Mapping[
  str, Callable[[pathlib.Path | None], Iterator[table_lib.Row]]
] = {
  "symmetric": _symmetric,
  "streams": _streams,
  "forms": _forms,
}


def table(
  data: pathlib.Path | None, parts: tuple[str, ...] = tuple(_PARTS)
) -> table_lib.Table:
  """The table of these parts."""
  rows = [row for part in parts for row in _PARTS[part](data)]
  return table_lib.Table(
    name="gains",
    title="Speedups of changes: measured by others, and predicted",
    columns=table_lib.columns(
      what="", source="", measured=".3f", predicted=".3f", why_not=""
    ),
    rows=rows,
  )


def main() -> None:
  """Prints the table."""
  parser = table_lib.parser("benchmarks.gains", __doc__)
  parser.add_argument("--data", metavar="FOLDER", type=table_lib.folder)
  parser.add_argument("--only", default="", metavar="PART,...")
  arguments = parser.parse_args()
  parts = table_lib.chosen(arguments.only, _PARTS, "part")
  try:
    found = table(arguments.data, parts)
  except errors.LagomError as error:
    raise SystemExit(f"gains: {error}") from None
  table_lib.show([found], arguments.format, arguments.csv)


if __name__ == "__main__":
  main()

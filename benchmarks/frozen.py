# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Records the output of commands, to check that a change does not alter it.

  python -m benchmarks.frozen record FOLDER [--data FOLDER] [--only=NAME,...]
  python -m benchmarks.frozen compare BEFORE AFTER

`record` runs each case as a user would, and stores the JSON that it prints and
the files of its plan, or its error if it fails. Cases with modules, traces and
logs need --data. `compare` prints the differences of two recordings field by
field, and fails if there are any, with one exception: times of a search (cases
named tune-...) may be up to 0.1 % longer, or shorter by any amount, and then
everything that follows from its choices may differ. Recordings of different
versions of JAX are not compared.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
import hashlib
import json
import lzma
import math
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any

import jax

from benchmarks import table

_CHECKED_FLAGS = (
  "--xla_gpu_enable_latency_hiding_scheduler=true"
  " --xla_gpu_all_gather_combine_threshold_bytes=1073741824"
  " --xla_gpu_enable_pipelined_all_gather=true --xla_gpu_no_such_flag=1"
)
_LLAMA = "examples/llama/train.py:train_step"
_MLP = "examples/mlp/train.py:train_step"
_MOE = "examples/moe/train.py:train_step"
_GPT = "examples/gpt/train.py:train_step"
_HLO = "{data}/hlo/hlo_"
_ONE_NODE, _TWO_NODES = "--cluster=1x8xh100", "--cluster=2x8xh100"
# Case -> the command line. {out} is its plan, {data} the data folder. A case
# that uses the plan of another one comes after it.
_CASES: Mapping[str, Sequence[str]] = {
  "inspect-mlp": ("inspect", _MLP, _ONE_NODE),
  "inspect-llama": ("inspect", _LLAMA, _TWO_NODES),
  "inspect-llama-b200": ("inspect", _LLAMA, "--cluster=1x8xb200"),
  "inspect-moe": ("inspect", _MOE, _ONE_NODE),
  "inspect-gpt": ("inspect", _GPT, _TWO_NODES),
  "inspect-context-parallel": (
    "inspect",
    f"{_HLO}llama3_8b_cp_bf16_1x4.hlo.xz",
    "--cluster=1x4xh100",
  ),
  "inspect-llama-70b": (
    "inspect",
    f"{_HLO}llama31_70b_bf16_16x8.hlo.xz",
    "--cluster=16x8xh100",
  ),
  "explain-llama": ("explain", _LLAMA, _TWO_NODES),
  "explain-moe": ("explain", _MOE, _ONE_NODE),
  "whatif-mlp": ("whatif", _MLP, "--cluster=1x8xh100,2x8xh100,2x8xa100"),
  "flags-check": ("flags", f"--check={_CHECKED_FLAGS}"),
  "tune-mlp": ("tune", _MLP, _TWO_NODES, "--out={out}"),
  "tune-moe": ("tune", _MOE, _ONE_NODE, "--in-process", "--out={out}"),
  "tune-llama": ("tune", _LLAMA, _ONE_NODE, "--out={out}"),
  "explain-plan": ("explain", "{tune-mlp}"),
  "verify-plan": ("verify", "{tune-mlp}", _MLP, _TWO_NODES),
  "flags-plan": ("flags", "{tune-mlp}"),
  "profile": ("profile", "{data}/traces/mi300x8_jax_conv_0.8.xplane.pb.xz"),
  "calibrate": (
    "calibrate",
    "{data}/../cases/calibrate_data_types/all_reduce.log",
    _TWO_NODES,
    "--out={out}.json",
  ),
}
_TUNE = "tune-"
_ROOT = pathlib.Path(__file__).parents[1]
_STEP_US = ".predicted.after.step_time_us"
_MOST_LONGER = 1e-3
_MOST_SHOWN = 12


# A field, and its values before and after; None if it is missing.
_Difference = tuple[str, Any, Any]


def record(
  folder: pathlib.Path, data: pathlib.Path | None, names: Sequence[str]
) -> None:
  """Runs cases, and writes a JSON file for each."""
  folder.mkdir(parents=True, exist_ok=True)
  plans = folder / "plans"
  for name in names:
    words = _CASES[name]
    if data is None and any("{data}" in word for word in words):
      print(f"{name}: skipped, it needs --data", file=sys.stderr)
      continue
    out = plans / name
    shutil.rmtree(out, ignore_errors=True)
    values = {name: plans / name for name in _CASES}
    values |= {"out": out, "data": data}
    words = [_unpacked(word.format(**values), folder) for word in words]
    recorded = _run(words)
    recorded["jax"] = jax.__version__
    recorded["files"] = _files(out)
    text = json.dumps(recorded, indent=1, sort_keys=True)
    # A recording must not contain the paths of its folder, data and code.
    for path, word in ((folder, "FOLDER"), (data, "DATA"), (_ROOT, "ROOT")):
      text = text.replace(str(path), word)
    (folder / f"{name}.json").write_text(text, encoding="utf-8")
    print(f"{name}: {recorded['status']}", flush=True)


def _unpacked(word: str, folder: pathlib.Path) -> str:
  """Unpacks a trace; commands read packed modules, but not packed traces."""
  if not word.endswith(".xplane.pb.xz"):
    return word
  packed = pathlib.Path(word)
  path = folder / packed.name.removesuffix(".xz")
  path.write_bytes(lzma.decompress(packed.read_bytes()))
  return str(path)


def _run(words: Sequence[str]) -> dict[str, Any]:
  done = subprocess.run(
    [sys.executable, "-m", "lagom_xla", *words, "--format=json"],
    capture_output=True,
    text=True,
    env={**os.environ, "LAGOM_XLA_CACHE": "off", "XLA_FLAGS": ""},
  )
  recorded: dict[str, Any] = {"status": done.returncode}
  try:
    recorded["printed"] = json.loads(done.stdout)
  except json.JSONDecodeError:
    recorded["printed"] = done.stdout
  if done.returncode:
    recorded["error"] = done.stderr
  return recorded


def _files(plan: pathlib.Path) -> dict[str, Any]:
  """The files of a plan that a job reads: text as it is, others as hashes."""
  found: dict[str, Any] = {}
  for path in sorted(plan.glob("*")):
    if path.name == "env.sh":
      found[path.name] = path.read_text(encoding="utf-8")
    elif path.name == "plan.json":
      found[path.name] = json.loads(path.read_text(encoding="utf-8"))
    elif path.suffix == ".bin":
      found[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
  return found


def compare(
  before: pathlib.Path, after: pathlib.Path
) -> dict[str, list[_Difference]]:
  """Differences of two recordings, by case; skips cases that only one has."""
  found = {}
  for path in sorted(before.glob("*.json")):
    other = after / path.name
    if not other.exists():
      continue
    old, new = (
      json.loads(p.read_text(encoding="utf-8")) for p in (path, other)
    )
    if old["jax"] != new["jax"]:
      found[path.stem] = [(".jax", old["jax"], new["jax"])]
      continue
    fields = dict(_leaves(old)), dict(_leaves(new))
    found[path.stem] = list(_differences(path.stem, *fields))
  return found


def _differences(
  name: str, old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[_Difference]:
  step_us = f".printed{_STEP_US}"
  if name.startswith(_TUNE) and step_us in old and step_us in new:
    if new[step_us] != old[step_us]:
      if new[step_us] > (1 + _MOST_LONGER) * old[step_us]:
        yield step_us, old[step_us], new[step_us]
      return
  for field in sorted(old.keys() | new.keys()):
    before, after = old.get(field), new.get(field)
    if not _is_same(before, after):
      yield field, before, after


def _is_same(one: Any, other: Any) -> bool:
  if isinstance(one, float) and isinstance(other, float):
    # Floats may have been added in another order.
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
  return one == other


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
  if isinstance(value, dict):
    for key, inner in value.items():
      yield from _leaves(inner, f"{path}.{key}")
  elif isinstance(value, list):
    yield f"{path}.length", len(value)
    for number, inner in enumerate(value):
      yield from _leaves(inner, f"{path}[{number}]")
  else:
    yield path, value


def main() -> None:
  """Runs the command."""
  parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
  commands = parser.add_subparsers(dest="command", required=True)
  recording = commands.add_parser("record")
  recording.add_argument("folder", type=pathlib.Path)
  recording.add_argument("--data", type=pathlib.Path)
  recording.add_argument("--only", type=table.names, default=tuple(_CASES))
  comparing = commands.add_parser("compare")
  comparing.add_argument("before", type=pathlib.Path)
  comparing.add_argument("after", type=pathlib.Path)
  arguments = parser.parse_args()
  if arguments.command == "record":
    unknown = [name for name in arguments.only if name not in _CASES]
    if unknown:
      parser.error(f"no such case: {', '.join(unknown)}; cases: {[*_CASES]}")
    data = arguments.data
    record(
      arguments.folder.resolve(),
      data.resolve() if data else None,
      arguments.only,
    )
    return
  found = compare(arguments.before, arguments.after)
  if not found:
    sys.exit("frozen: the recordings have no case in common")
  for name, differences in found.items():
    print(f"{name}: {'differs' if differences else 'the same'}")
    for field, before, after in differences[:_MOST_SHOWN]:
      print(f"    {field}: {before!r} -> {after!r}")
    if len(differences) > _MOST_SHOWN:
      print(f"    and {len(differences) - _MOST_SHOWN} more")
  if any(found.values()):
    sys.exit(1)


if __name__ == "__main__":
  main()

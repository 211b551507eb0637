# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Flax trainers are tuned on software GPUs, with candidates of every kind.

Proposals are fixed; other tests cover the results of searches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
import json
import pathlib
import re
import time
from typing import Any

import jax

from common import data
from common import step as step_lib
import fixed_proposals
from gpt import train as gpt
import lagom_xla
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import scheduler_profile
from lagom_xla.live import loop
from lagom_xla.live import timing
from lagom_xla.live import tuned
from lagom_xla.passes.program import form as form_lib
from llama import train as llama

# Matmuls are cuBLAS calls, which compile fast.
_FLAGS = "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false"
_LOG = "trials.jsonl"
# It takes half a minute on two idle cores.
_LONGEST_S = 300.0
_WAYS = {
  "in strands": config_lib.XlaConfig(program=form_lib.Form(strands="merged")),
  "by Triton": config_lib.XlaConfig(
    options={"xla_gpu_enable_triton_gemm": True}
  ),
  "in order": config_lib.XlaConfig(
    options={"xla_gpu_enable_latency_hiding_scheduler": False}
  ),
  "priced": config_lib.XlaConfig(
    scheduler_profile=scheduler_profile.encode({"all-reduce-start": 9000.0})
  ),
  "each alone": config_lib.XlaConfig(combine_groups=()),
}
_OF_LLAMA = ("in strands", "in order", "priced", "each alone")


def _proposed(step: Any, *names: str) -> Any:
  """A step with these proposals, at any cost to the run."""
  cluster = cluster_lib.parse(f"1x{jax.device_count()}xh100")
  tuned.LIMITS = loop.Limits(overhead_steps=1e9)
  # The minimum: all times are as configured.
  for name, value in (("NUM_BLOCKS", 2), ("_BLOCK_CALLS", (2, 4))):
    setattr(timing, name, value)
  tuned.PROPOSERS["gpu"] = lambda *unused: fixed_proposals.Proposer(
    cluster=cluster, configs={name: _WAYS[name] for name in names}
  )
  return lagom_xla.tune(step, log=_LOG, cache=False)


def _batches(like: Any) -> Iterator[Any]:
  batch_size, seq_len = like["inputs"].shape
  text = data.TEXT.read_bytes()
  for batch in data.byte_batches(text, batch_size=batch_size, seq_len=seq_len):
    yield data.placed(batch, like["inputs"].sharding)


def _train(
  step: Any, call: Callable[[Any, Any], Any], batches: Iterator[Any]
) -> None:
  """Trains until all proposals have results."""
  until_s = time.monotonic() + _LONGEST_S
  while "nothing is left" not in step.report():
    call(step, next(batches))
    assert time.monotonic() < until_s, step.report()
  print(step.report())


def llama_trains() -> None:
  step, (like, batch_like) = llama.train_step(
    jax.devices(), model="tiny", mesh="tp:2", batch_size=4, micro_batches=2
  )
  state = step_lib.init_state(
    llama.model_of, like, model="tiny", layers="scan", seed=0
  )

  def call(step: Any, batch: Any) -> None:
    nonlocal state
    state, _ = step(state, batch)

  _train(_proposed(step, *_OF_LLAMA), call, _batches(batch_like))


def gpt_trains() -> None:
  step, (model_like, optimizer_like, batch_like) = gpt.train_step(
    jax.devices(), model="tiny", batch_size=4
  )
  modules = gpt.init(
    (model_like, optimizer_like), model="tiny", learning_rate=1e-3, seed=0
  )
  _train(
    _proposed(step, "by Triton"),
    lambda step, batch: step(*modules, batch),
    _batches(batch_like),
  )


def _said(on_gpus: Callable[..., str], train: Callable[[], None]) -> str:
  """The output of a trainer if matmuls by Triton are faster.

  All take so long that other work on the host hardly matters.
  """
  return on_gpus(
    train,
    kernels="1000 gemm_fusion\n3000 gemm\n3000 nvjet\n",
    variables={"XLA_FLAGS": _FLAGS},
  )


def _trials(folder: pathlib.Path) -> dict[str, dict[str, Any]]:
  """The trials, by the names of proposals."""
  lines = (folder / _LOG).read_text().splitlines()
  return {it["proposal"]: it for it in map(json.loads, lines)}


def test_llama_tries_each_kind_of_candidate_and_adopts_the_fastest(
  on_gpus: Callable[..., str], tmp_path: pathlib.Path
) -> None:
  said = _said(on_gpus, llama_trains)
  trials = _trials(tmp_path)
  assert tuple(trials) == _OF_LLAMA, said
  assert trials["in strands"]["high"] < 1
  for name in ("in order", "priced"):
    assert trials[name]["ratio"] > 1, said
    assert not trials[name]["adopted"]
  # Donation is lost where JAX 0.10 compiles with groups.
  is_refused = "donates inputs" in trials["each alone"]["words"]
  assert is_refused is (jax.__version_info__ < (0, 11))
  assert is_refused or trials["each alone"]["ratio"] > 1
  assert re.search(
    r"ms now: 0\.\d+ of the time \(.*\), with in strands\n", said
  )


def test_an_nnx_step_adopts_a_faster_candidate(
  on_gpus: Callable[..., str], tmp_path: pathlib.Path
) -> None:
  said = _said(on_gpus, gpt_trains)
  trials = _trials(tmp_path)
  assert trials["by Triton"]["adopted"], said
  assert trials["by Triton"]["high"] < 1

# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The JSON objects of `lagom-xla inspect` and `lagom-xla tune`.

docs/formats.md describes them; other programs build on them.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from lagom_xla import tuning as tuning_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.costs.replay import timeline
from lagom_xla.flags import environment
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import overlap as overlap_lib
from lagom_xla.passes import rematerialization
from lagom_xla.passes import source_lines
from lagom_xla.report import arms
from lagom_xla.report import compared
from lagom_xla.report import instructions as instructions_lib
from lagom_xla.search.xla import candidates as candidates_lib
from lagom_xla.verify import verification as verification_lib


def inspection(step: step_lib.Step) -> dict[str, Any]:
  """What `lagom-xla inspect --format=json` prints."""
  analysis = step.analysis
  module = analysis.module
  told = instructions_lib.of_step(step)
  return {
    "module": {
      "name": module.name,
      "num_instructions": module.num_instructions,
      "num_partitions": collectives_lib.num_devices(module),
    },
    "xla_flags": environment.xla_flags(),
    "collectives": [
      {**_collective(step, c), **_source(told[c.name].source)}
      for c in analysis.collectives
    ],
    "host_copies": [
      {
        "name": copy.name,
        "to_host": copy.to_host,
        "computation": copy.computation,
        "num_bytes": copy.num_bytes,
        "executions": copy.executions,
      }
      for copy in analysis.host_copies.values()
    ],
    "totals": totals(analysis),
    "gemm_flops": gemm_flops(analysis),
    "overlaps": [
      {
        "collectives": [c.name for c in overlap.collectives],
        "kernels": [k.name for k in overlap.kernels],
        "executions": overlap.executions,
      }
      for overlap in analysis.overlaps
    ],
    "loops_of_unknown_length": list(module.loops_of_unknown_length),
  }


def totals(analysis: overlap_lib.Analysis) -> dict[str, dict[str, int]]:
  """By kind of collective: what a device moves in a step, loops counted."""
  by_kind: dict[str, dict[str, int]] = {}
  for collective in analysis.collectives:
    total = by_kind.setdefault(
      collective.kind,
      {
        "num_instructions": 0,
        "num_executions": 0,
        "operand_bytes": 0,
        "result_bytes": 0,
      },
    )
    times = collective.executions
    total["num_instructions"] += 1
    total["num_executions"] += times
    total["operand_bytes"] += times * collective.operand_bytes
    total["result_bytes"] += times * collective.result_bytes
  return dict(sorted(by_kind.items()))


def gemm_flops(analysis: overlap_lib.Analysis) -> int:
  """Operations of a device's matrix products in a step, loops counted."""
  return sum(
    kernel.executions * kernel.flops
    for kernel in analysis.kernels.values()
    if kernel.category == "gemm"
  )


def _collective(
  step: step_lib.Step, collective: collectives_lib.Collective
) -> dict[str, Any]:
  beside = step.analysis.kernels_beside[collective.start_id]
  return {
    "name": collective.name,
    "kind": collective.kind,
    "form": collective.form,
    "computation": collective.computation,
    "num_operands": collective.num_operands,
    "operand_bytes": collective.operand_bytes,
    "result_bytes": collective.result_bytes,
    "group_size": collective.group_size,
    "num_groups": collective.num_groups,
    "spans_nodes": any(
      step.cluster.num_nodes_of(group) > 1 for group in collective.groups
    ),
    "executions": collective.executions,
    "overlap": {
      "num_kernels": len(beside),
      "num_gemms": sum(kernel.category == "gemm" for kernel in beside),
    },
  }


def _source(line: source_lines.SourceLine) -> dict[str, Any]:
  frame = line.frames[0] if line.frames else None
  return {
    "source": str(line),
    "source_file": frame and frame.file,
    "source_line": frame and frame.line,
  }


def tuning(tuned: tuning_lib.Tuning) -> dict[str, Any]:
  """What `lagom-xla tune --format=json` prints."""
  return {
    "plan": tuned.plan.to_dict(),
    "predicted": {
      "before": _timeline(tuned.timeline_before, tuned.before),
      "after": _timeline(tuned.timeline_after, tuned.kept.runs),
      "lower_bound_us": tuned.lower_bound_us,
    },
    "peak_bytes": {
      "before": tuned.peak_bytes_before,
      "after": tuned.peak_bytes_after,
    },
    "effects": [dataclasses.asdict(effect) for effect in tuned.effects],
    "arms": arms.as_json(tuned.search),
    "candidates": [_candidate(c, tuned.search) for c in tuned.candidates],
    "recomputed": {
      "before": _num_recomputed(tuned.search.default),
      "after": _num_recomputed(tuned.kept),
    },
    "num_predicted": tuned.search.num_predicted,
    "num_trials": tuned.num_trials,
    "stopped": None if tuned.stopped is None else tuned.stopped.reason,
  }


def verification(verified: verification_lib.Verification) -> dict[str, Any]:
  """What `lagom-xla verify --format=json` prints."""
  prediction = verified.plan.prediction
  return {
    "module_name": verified.plan.module_name,
    "cluster": verified.plan.cluster.name,
    "xla_flags": environment.xla_flags(),
    "default_us": verified.default_us,
    "planned_us": verified.planned_us,
    "default_range_us": dataclasses.asdict(prediction.default_range_us),
    "gain_us": dataclasses.asdict(verified.plan.gain_us),
    "effects": [dataclasses.asdict(effect) for effect in verified.effects],
  }


def _candidate(
  candidate: candidates_lib.Candidate | candidates_lib.Refused,
  search: candidates_lib.Search,
) -> dict[str, Any]:
  config = candidate.config
  found = candidate if isinstance(candidate, candidates_lib.Candidate) else None
  refused = candidate if isinstance(candidate, candidates_lib.Refused) else None
  return {
    "program": {
      "strands": config.program.strands,
      "keyed": config.program.keyed,
      "slices": dict(config.program.slices),
    },
    "rewrites": list(found.outcome.actions) if found else [],
    "left_alone": [
      dataclasses.asdict(refusal)
      for refusal in (found.outcome.refusals if found else ())
    ],
    "xla_options": dict(config.options),
    "combine_groups": config.combine_groups,
    "has_scheduler_profile": config.scheduler_profile is not None,
    "reordered": sorted(config.orders),
    "failure": refused and refused.reason,
    "step_time_us": found and found.under_nccl_defaults.step_time_us,
    "tuned_step_time_us": found and compared.tuned_us(found),
    "gain_us": found and _gain_us(search.default, found),
    "obstacle": search.obstacle(found) if found else "refused",
    "num_trials": found.num_trials if found else 0,
  }


def _num_recomputed(candidate: candidates_lib.Candidate) -> int:
  module = candidate.runs.analysis.module
  return len(rematerialization.recomputed(module))


def _gain_us(
  default: candidates_lib.Candidate, found: candidates_lib.Candidate
) -> dict[str, float]:
  gain = uncertainty.gain(default.default_times, found.tuned_times)
  return {"low_us": gain.low, "high_us": gain.high}


def _timeline(
  replayed: timeline.Timeline, step: step_lib.Step
) -> dict[str, Any]:
  told = instructions_lib.of_step(step)
  return {
    "step_time_us": replayed.step_time_us,
    "kernel_us": replayed.kernel_us,
    "collective_us": replayed.collective_us,
    "exposed_us": replayed.total_exposed_us,
    "slowdown_us": replayed.total_slowdown_us,
    "delay_us": replayed.total_delay_us,
    "copy_us": replayed.copy_us,
    "copy_wait_us": replayed.total_copy_wait_us,
    "copy_slowdown_us": replayed.total_copy_slowdown_us,
    "exposed_us_by_collective": replayed.exposed_us,
    "source_by_collective": {
      collective.name: str(told[collective.name].source)
      for collective in step.analysis.collectives
    },
    "slowdown_us_by_pair": [
      {"kernel": kernel, "collective": collective, "slowdown_us": lost_us}
      for (kernel, collective), lost_us in replayed.slowdown_us.items()
    ],
  }

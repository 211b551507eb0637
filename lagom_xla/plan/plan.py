# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A plan: settings for a module on a cluster, and their predicted gain.

A plan is plain data. It records the module fingerprint, cluster and versions
that it was made for, so that it is refused for others, and the predicted gain
of each part, so that you can apply only some. `lagom_xla.apply` turns a plan
into settings; a plan does nothing by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
import dataclasses
import hashlib
import pathlib
from typing import Any, Final, Literal

import jax
import jaxlib

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla import validation
from lagom_xla.compile import config
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import nccl
from lagom_xla.costs import uncertainty
from lagom_xla.passes import hlo
from lagom_xla.passes import replica_groups
from lagom_xla.plan import beside

# The part of a plan that a job applies: XLA_FLAGS alone; also NCCL's
# environment variables; or all of it, with the NCCL tuner plugin.
Applied = Literal["flags", "env", "all"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Range:
  """The range that holds a figure 9 times in 10, in microseconds.

  Attributes:
    low_us: the lower end.
    high_us: the upper end.
    is_open: whether the figure may be far above `high_us`, because of calls of
      unknown work.
  """

  low_us: float
  high_us: float
  is_open: bool = False

  @classmethod
  def of(cls, estimate: uncertainty.Estimate) -> Range:
    """The range of an estimate in microseconds."""
    return cls(
      low_us=estimate.low, high_us=estimate.high, is_open=estimate.is_open
    )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
  """Predicted step times, in microseconds, each with more of a plan applied.

  Ranges come from the cost model's errors on measurements. Those of gains are
  for the difference from `default_us`, in which most errors cancel; below 0 the
  step gets longer.

  Attributes:
    default_us: with nothing applied.
    xla_us: with the XLA options.
    nccl_env_us: with the XLA options and the NCCL environment variables.
    nccl_settings_us: with all but the environment variables, which the NCCL
      settings replace; these need the NCCL tuner plugin. A plan with no
      settings and nothing that acts in the process keeps the variables.
    default_range_us: range of `default_us`.
    xla_gain_us: gain of the XLA options.
    nccl_env_gain_us: gain of the XLA options and the environment variables.
    nccl_settings_gain_us: gain of all but the environment variables.
  """

  default_us: validation.TimeUs
  xla_us: validation.TimeUs
  nccl_env_us: validation.TimeUs
  nccl_settings_us: validation.TimeUs
  default_range_us: Range
  xla_gain_us: Range
  nccl_env_gain_us: Range
  nccl_settings_gain_us: Range

  def step_us(self, applied: Applied) -> float:
    """The step time with the applied part, in microseconds."""
    return {
      "flags": self.xla_us,
      "env": self.nccl_env_us,
      "all": self.nccl_settings_us,
    }[applied]

  def gain_us(self, applied: Applied) -> Range:
    """The gain of the applied part, in microseconds."""
    return {
      "flags": self.xla_gain_us,
      "env": self.nccl_env_gain_us,
      "all": self.nccl_settings_gain_us,
    }[applied]


# Increased when a field changes its meaning, together with the type of
# `Plan.format_version`.
FORMAT_VERSION: Final = 6


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class NcclSetting:
  """The setting of a tuning key, and its default.

  Attributes:
    key: the tuning key, all that NCCL can tell collectives apart by.
    calls: the NCCL calls of its collectives, by which a tuner recognizes them;
      no two settings of a plan share a call.
    setting: the setting to run with.
    default: NCCL's own choice.
    gain_us: how much longer the step is predicted to take if only this key
      keeps its default.
    worst_gain_us: the least gain in any scenario of the cost model's errors;
      below 0 the setting costs time in that scenario.
    worst_if: that scenario, in words.
  """

  key: collective_lib.TuningKey
  calls: tuple[collective_lib.Call, ...]
  setting: nccl.Setting
  default: nccl.Setting
  gain_us: float
  worst_gain_us: float
  worst_if: validation.Line


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredRun:
  """The run whose profile a plan's costs come from.

  Attributes:
    name: name of the first process's profile.
    began_at: when the profile began, in UTC; None if it does not say.
    num_steps: number of whole steps in the trace, summed over devices.
    num_devices: number of traced GPUs.
    measured_shares: kind of kernel or collective -> the measured share of its
      time in the step with XLA's defaults, without contention. The rest is
      predicted, and scaled by the measured part.
  """

  name: validation.Line
  began_at: validation.Line | None
  num_steps: validation.Count
  num_devices: validation.Count
  measured_shares: Mapping[str, float]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
  """Settings for a module on a cluster, and their predicted gain.

  Attributes:
    format_version: increased when a field changes its meaning.
    module_name: name of the HLO module.
    module_fingerprint: hash of what the module computes, in which order, among
      which devices; taken before XLA combines and schedules, or of a scheduled
      module as it is.
    jax_version: version of JAX that compiled the module.
    jaxlib_version: version of jaxlib that compiled the module.
    xla_flags: XLA_FLAGS of that compile in one line, without dumps and the
      like. The plan is compared with these flags and comes on top of them.
    nccl_variables: NCCL's variables there that restrict its choices; all
      predictions are under them.
    compiler_options: other settings of that compile, from `jax.jit`'s
      compiler_options and JAX's settings: XLA option, or JAX's level → value.
    cluster: the whole cluster that it was made for.
    xla: the form of the program, and the XLA options and other inputs of its
      compile.
    nccl_env: NCCL environment variable → value, for the whole process.
    nccl_settings: a setting for each tuning key that should not keep its
      default.
    prediction: predicted times and gains.
    profile: the run that its costs were measured in; None if all are predicted.
    applied: the part of the plan that it was chosen for: `all`; `env`, its XLA
      options and NCCL environment variables; or `flags`, its XLA options alone.

  Raises:
    PlanError: a name is not valid for a shell variable, two NCCL settings are
      for the same calls, a chain is cut into fewer than two pieces, or a part
      would never be applied.
  """

  __pydantic_config__ = validation.STRICT

  format_version: Literal[6] = FORMAT_VERSION
  module_name: validation.Line
  module_fingerprint: validation.Line
  jax_version: validation.Line = jax.__version__
  jaxlib_version: validation.Line = jaxlib.__version__
  xla_flags: validation.Line = ""
  nccl_variables: Mapping[str, validation.Line] = dataclasses.field(
    default_factory=dict
  )
  compiler_options: Mapping[str, bool | int | float | str] = dataclasses.field(
    default_factory=dict
  )
  cluster: cluster_lib.Cluster
  xla: config.XlaConfig
  nccl_env: Mapping[str, str]
  nccl_settings: tuple[NcclSetting, ...]
  prediction: Prediction
  profile: MeasuredRun | None = None
  applied: Applied = "all"

  def __post_init__(self) -> None:
    _check_names("xla.options", self.xla.options)
    _check_names("nccl_env", self.nccl_env)
    _check_names("nccl_variables", self.nccl_variables)
    known = set()
    for entry in self.nccl_settings:
      for call in entry.calls:
        asked = entry.key.of_call(call.num_bytes)
        if asked in known:
          raise errors.PlanError(
            f"two of nccl_settings are for {entry.key.kind} calls of"
            f" {call.num_bytes} bytes; each size can have only one setting"
          )
        known.add(asked)
    for chain, num_slices in self.xla.program.slices.items():
      if num_slices < 2:
        raise errors.PlanError(
          f"xla.program.slices has {num_slices} for {validation.show(chain)}; a"
          " chain needs at least two pieces"
        )
    parts = {
      "NCCL settings": bool(self.nccl_settings),
      "parts for lagom_xla in the process": self.needs_process,
      "nccl_env": self.applied == "flags" and bool(self.nccl_env),
    }
    for part, is_there in parts.items():
      if self.applied != "all" and is_there:
        raise errors.PlanError(
          f'applied is "{self.applied}", so its {part} would never be applied'
        )

  @property
  def is_default(self) -> bool:
    """Whether it changes nothing."""
    return self.xla.is_default and not (self.nccl_env or self.nccl_settings)

  @property
  def needs_process(self) -> bool:
    """Whether a part of it needs lagom_xla in the training process."""
    return self.xla.needs_process

  @property
  def planned_us(self) -> float:
    """Predicted step time with the applied part, in microseconds."""
    return self.prediction.step_us(self.applied)

  @property
  def gain_us(self) -> Range:
    """Predicted gain of the applied part, in microseconds."""
    return self.prediction.gain_us(self.applied)

  def to_dict(self) -> dict[str, Any]:
    """The plan as JSON; `from_dict` reads it back."""
    return validation.write(self)


def _check_names(where: str, names: Iterable[str]) -> None:
  for name in names:
    if not (name.isidentifier() and name.isascii()):
      raise errors.PlanError(
        f"{where} has {validation.show(name)}, which is not a setting's name;"
        " names have only letters, digits and underscores"
      )


def from_dict(raw: Any, *, where: str) -> Plan:
  """Reads what `Plan.to_dict` wrote; errors call it `where`.

  Raises:
    PlanError: it is not a plan, or has another format version.
  """
  if not isinstance(raw, dict) or "format_version" not in raw:
    raise errors.PlanError(f"{where} is not a lagom_xla plan.")
  if raw["format_version"] == 5:
    raw = _of_version_5(raw)
  if raw["format_version"] != FORMAT_VERSION:
    raise errors.PlanError(
      f"{where} has format version {validation.show(raw['format_version'])};"
      f" this lagom_xla reads {FORMAT_VERSION}. Make the plan again."
    )
  try:
    return validation.read(Plan, raw)
  except validation.InvalidError as error:
    raise errors.PlanError(
      f"{where} is not a usable plan: {error}. Make the plan again."
    ) from error


# Fields that version 5 lacks, with the values that they would have. The key is
# the path of their dictionary: names of fields, or "*" for all.
_SINCE_VERSION_5: Mapping[tuple[str, ...], Mapping[str, Any]] = {
  (): {"nccl_variables": {}, "compiler_options": {}},
  ("cluster",): {"processes_per_node": 1},
  ("prediction", "*"): {"is_open": False},
  ("nccl_settings", "*", "key"): {"multicasts": True, "reduced": ""},
}


def _of_version_5(raw: dict[str, Any]) -> dict[str, Any]:
  for path, missing in _SINCE_VERSION_5.items():
    raw = _with(raw, path, missing)
  return {**raw, "format_version": FORMAT_VERSION}


def _with(raw: Any, path: tuple[str, ...], missing: Mapping[str, Any]) -> Any:
  """JSON with missing fields added in all dictionaries at a path."""
  if not path:
    return {**missing, **raw} if isinstance(raw, dict) else raw
  first, *rest = path
  if isinstance(raw, list):
    return [_with(each, tuple(rest), missing) for each in raw]
  if not isinstance(raw, dict):
    return raw
  return {
    name: _with(value, tuple(rest), missing) if first in ("*", name) else value
    for name, value in raw.items()
  }


def load(path: str | pathlib.Path) -> Plan:
  """Reads a plan from its folder or its plan.json.

  Raises:
    PlanError: there is no plan, or it cannot be read.
  """
  path = pathlib.Path(path)
  path = path / beside.PLAN if path.is_dir() else path
  try:
    raw = validation.read_file(path)
  except validation.InvalidError as error:
    raise errors.PlanError(f"{path} {error}.") from error
  return from_dict(raw, where=str(path))


def schema() -> dict[str, Any]:
  """The JSON schema of plan.json."""
  return validation.schema(Plan)


def fingerprint(module: hlo.Module) -> str:
  """A short hash of what a module computes, in what order, on what devices.

  It leaves out names, ids and source locations, which change with the path of a
  checkout, and the values of constants, which change no schedule.
  """
  digest = hashlib.sha256()
  for computation in module.computations.values():
    for instruction in computation.instructions:
      parts = (
        instruction.opcode,
        instruction.shape.SerializeToString(deterministic=True),
        [computation.position[i] for i in instruction.operand_ids],
        instruction.custom_call_target,
        instruction.dot_dimension_numbers.SerializeToString(),
        replica_groups.of(instruction, None),
      )
      precision = instruction.precision_config
      if any(precision.operand_precision) or precision.algorithm:
        parts += (precision.SerializeToString(),)
      digest.update(repr(parts).encode())
  return digest.hexdigest()[:16]

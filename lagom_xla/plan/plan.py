# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A plan: what to set, for which module and cluster, and what it should gain.

A plan is plain data. It says for what it was made (module fingerprint, cluster,
versions), so that using it for something else can be refused, and what each
part of it is predicted to gain, so that applying only a part is an informed
choice. `lagom_xla.apply` turns it into settings; nothing in a plan acts by
itself.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import hashlib
import json
import pathlib
from typing import Any

import jax
import jaxlib

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla import figures
from lagom_xla.compile import config as config_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import nccl
from lagom_xla.passes import combine
from lagom_xla.passes import hlo
from lagom_xla.passes import replica_groups

# Raised whenever a field changes its meaning.
FORMAT_VERSION = 2


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
  """Predicted step times, in microseconds, each applying more of a plan.

  Attributes:
    default_us: nothing of it.
    xla_us: the XLA options.
    nccl_env_us: the XLA options and the NCCL environment variables.
    nccl_settings_us: all of it: the XLA options, the combine groups if there
      are any, and NCCL settings per tuning key, which take a NCCL tuner plugin.
  """

  default_us: float
  xla_us: float
  nccl_env_us: float
  nccl_settings_us: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class NcclSetting:
  """What one tuning key should run with, and what it runs with by default.

  Attributes:
    key: the tuning key.
    calls: the calls of its collectives by which NCCL can be told to use it; no
      two settings of a plan have one in common.
    setting: what it should run with.
    default: what it runs with by default.
  """

  key: collective_lib.TuningKey
  calls: tuple[collective_lib.Call, ...]
  setting: nccl.Setting
  default: nccl.Setting


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
  """See the module's docstring.

  Attributes:
    module_name: name of the HLO module.
    module_fingerprint: of the module compiled with XLA's defaults.
    cluster: what it was made for.
    jax_version: what compiled the module.
    jaxlib_version: what compiled the module.
    xla_options: XLA option -> value.
    combine_groups: collectives that XLA should combine, by their labels
      (`passes/combine.py`), every other one alone; None leaves it to XLA.
    scheduler_profile: costs for XLA's scheduler (`apply/xla/fdo.py`); None
      leaves it its own.
    nccl_env: NCCL environment variable -> value, for the whole process.
    nccl_settings: a setting for each tuning key that should not have its
      default.
    prediction: what it should gain.
  """

  module_name: str
  module_fingerprint: str
  cluster: cluster_lib.Cluster
  jax_version: str = jax.__version__
  jaxlib_version: str = jaxlib.__version__
  xla: config_lib.XlaConfig
  nccl_env: Mapping[str, str]
  nccl_settings: tuple[NcclSetting, ...]
  prediction: Prediction

  @property
  def is_default(self) -> bool:
    """Whether it changes nothing."""
    return not (self.nccl_env or self.nccl_settings or not self.xla.is_default)

  @property
  def needs_process(self) -> bool:
    """Whether a part of it acts only through lagom_xla in the process."""
    return self.xla.needs_process

  @property
  def hash(self) -> str:
    """A short hash of all that it sets."""
    settings = {
      name: value
      for name, value in self.to_dict().items()
      if name != "prediction"
    }
    text = json.dumps(settings, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]

  def to_dict(self) -> dict[str, Any]:
    """As JSON has it; `from_dict` reads it back."""
    return {
      "format_version": FORMAT_VERSION,
      **{
        name: getattr(self, name)
        for name in (
          "module_name",
          "module_fingerprint",
          "jax_version",
          "jaxlib_version",
        )
      },
      "cluster": self.cluster.to_dict(),
      "xla": dataclasses.asdict(self.xla),
      "nccl_env": dict(self.nccl_env),
      "nccl_settings": [
        {
          **dataclasses.asdict(entry.key),
          "calls": list(map(dataclasses.asdict, entry.calls)),
          "setting": dataclasses.asdict(entry.setting),
          "default": dataclasses.asdict(entry.default),
        }
        for entry in self.nccl_settings
      ],
      "prediction": dataclasses.asdict(self.prediction),
    }


def fingerprint(module: hlo.Module) -> str:
  """A short hash of what a module computes, in which order, among whom.

  Names, ids and source locations are left out: they change with the path of a
  checkout. So are the values of constants, which change no schedule.
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
        replica_groups.of_instruction(instruction, None),
      )
      digest.update(repr(parts).encode())
  return digest.hexdigest()[:16]


def from_dict(raw: Any, *, where: str) -> Plan:
  """Reads a plan back.

  Args:
    raw: what `Plan.to_dict` wrote.
    where: what to call it in errors.

  Raises:
    PlanError: it is not a plan, or one of another format version.
  """
  if not isinstance(raw, dict) or "format_version" not in raw:
    raise errors.PlanError(f"{where} is not a lagom_xla plan.")
  if raw["format_version"] != FORMAT_VERSION:
    raise errors.PlanError(
      f"{where} has format version {raw['format_version']}; this lagom_xla"
      f" reads {FORMAT_VERSION}. Make the plan again."
    )
  try:
    return Plan(
      module_name=_line(raw["module_name"]),
      module_fingerprint=_line(raw["module_fingerprint"]),
      cluster=cluster_lib.from_dict(raw["cluster"], where="cluster"),
      jax_version=_line(raw["jax_version"]),
      jaxlib_version=_line(raw["jaxlib_version"]),
      xla=config_lib.XlaConfig(
        options=_variables(raw["xla"], "options", (bool, int, str)),
        combine_groups=_groups(raw["xla"]["combine_groups"]),
        scheduler_profile=_profile(raw["xla"]["scheduler_profile"]),
      ),
      nccl_env=_variables(raw, "nccl_env", (str,)),
      nccl_settings=_nccl_settings(_typed(raw, "nccl_settings", list)),
      prediction=_prediction(raw),
    )
  except KeyError as error:
    raise errors.PlanError(
      f"{where} is not a complete plan: {error} is missing. Make the plan"
      " again."
    ) from error
  except (TypeError, ValueError) as error:
    raise errors.PlanError(
      f"{where} is not a usable plan: {error}. Make the plan again."
    ) from error


def _line(value: Any) -> str:
  """Text that can stand in a comment of a shell script."""
  if not isinstance(value, str) or not value.isprintable():
    raise ValueError(f"{figures.show(value)} is not a line of text")
  return value


def _typed(raw: dict[str, Any], name: str, kind: type) -> Any:
  if not isinstance(raw[name], kind):
    rule = "a list" if kind is list else "an object"
    raise ValueError(f"{name} is {figures.show(raw[name])}; it must be {rule}")
  return raw[name]


def _variables(
  raw: dict[str, Any], field: str, types: tuple[type, ...]
) -> dict[str, Any]:
  """Options or variables with names that a shell takes."""
  variables = _typed(raw, field, dict)
  for name, value in variables.items():
    if not (name.isidentifier() and name.isascii()):
      raise ValueError(f"{figures.show(name)} is no name of a setting")
    if not isinstance(value, types):
      raise ValueError(f"{name} cannot be {figures.show(value)}")
  return variables


def _groups(raw: Any) -> combine.Groups | None:
  if raw is None:
    return None
  is_groups = isinstance(raw, list) and all(
    isinstance(group, list) and all(isinstance(label, str) for label in group)
    for group in raw
  )
  if not is_groups:
    raise ValueError(
      f"combine_groups is {figures.show(raw)}; it must be null or a list of"
      " lists of labels"
    )
  return tuple(map(tuple, raw))


def _nccl_settings(raw: list[Any]) -> tuple[NcclSetting, ...]:
  settings = tuple(map(_nccl_setting, raw))
  known = set()
  for entry in settings:
    for call in entry.calls:
      asked = dataclasses.replace(entry.key, num_bytes=call.num_bytes)
      if asked in known:
        raise ValueError(
          f"two of nccl_settings are for calls of {call.num_bytes} bytes of"
          f" {entry.key.kind}; a size has one setting"
        )
      known.add(asked)
  return settings


def _profile(raw: Any) -> str | None:
  if raw is not None and not isinstance(raw, str):
    raise ValueError(
      f"scheduler_profile is {figures.show(raw)}; it must be null or text"
    )
  return raw


def _nccl_setting(raw: Any) -> NcclSetting:
  if not isinstance(raw, dict):
    raise ValueError(f"nccl_settings holds {figures.show(raw)}")
  parts = ("calls", "setting", "default")
  key = {k: v for k, v in raw.items() if k not in parts}
  return NcclSetting(
    key=figures.decode(collective_lib.TuningKey, key),
    calls=tuple(
      figures.decode(collective_lib.Call, call, "calls")
      for call in _typed(raw, "calls", list)
    ),
    setting=figures.decode(nccl.Setting, raw["setting"], "setting"),
    default=figures.decode(nccl.Setting, raw["default"], "default"),
  )


def _prediction(raw: dict[str, Any]) -> Prediction:
  times_us = _typed(raw, "prediction", dict)
  names = [field.name for field in dataclasses.fields(Prediction)]
  return Prediction(**{name: float(times_us[name]) for name in names})


def load(path: str | pathlib.Path) -> Plan:
  """Reads a plan from its folder or its plan.json.

  Raises:
    PlanError: there is no readable plan.
  """
  path = pathlib.Path(path)
  path = path / "plan.json" if path.is_dir() else path
  try:
    raw = figures.read(path)
  except figures.FigureError as error:
    raise errors.PlanError(f"{path} {error}.") from error
  return from_dict(raw, where=str(path))

# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Samples: measured collectives of a cluster, with their predictions.

The model predicts NCCL's own choice of algorithm and protocol. Rows are not
trusted if they ran under another one, or measure host noise or launches instead
of links.

A thread of nccl-tests launches the parts of its GPUs (`-g`) in sequence, which
bounds the time between collectives. XLA has a thread per GPU, so its
collectives do not have this cost.

On 4 and 8 GPUs of any kind, times do not fall below 4 to 6 us per GPU. The
model uses the mean of public systems (benchmarks/collectives/fit_paths.py).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
import dataclasses
import functools

from lagom_xla import cluster as cluster_lib
from lagom_xla import costs
from lagom_xla import errors
from lagom_xla.calibrate import log
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import in_words
from lagom_xla.costs import nccl
from lagom_xla.costs import wire
from lagom_xla.passes import collectives as collectives_lib

# Assumed launch time of a slow host, relative to the mean.
_SLOW_HOST = 1.25


@functools.cache
def _launch_us() -> float:
  """Launch time of a thread per GPU, which bounds rows from below."""
  return float(costs.read_fitted("collective")["set_apart"]["launch_us"])


# Smaller rows measure launches and host noise.
LEAST_BYTES = 64 * 1024
# Variables that override NCCL's model.
_FORCING = (
  *("NCCL_ALGO", "NCCL_PROTO", "NCCL_NTHREADS", "NCCL_NVLS_ENABLE"),
  *("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"),
  *("NCCL_MIN_CTAS", "NCCL_MAX_CTAS"),
  *("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE"),
)
# Values that leave NCCL its default.
_UNFORCED = {"NCCL_NVLS_ENABLE": ("1", "2")}
_OFF = ("0",)
# nccl-tests' names of types and reductions -> HLO's.
_HLO_TYPES = {
  **dict.fromkeys(("half", "float16"), "f16"),
  **dict.fromkeys(("float", "float32"), "f32"),
  **dict.fromkeys(("double", "float64"), "f64"),
  **dict.fromkeys(("int", "int32"), "s32"),
  **{"bfloat16": "bf16", "uint32": "u32", "int64": "s64", "uint64": "u64"},
  **{"int8": "s8", "char": "s8", "uint8": "u8"},
  **{"f8e4m3": "f8e4m3fn", "f8e5m2": "f8e5m2"},
}
_HLO_REDUCTIONS = {
  **{"": "add", "sum": "add", "min": "minimum", "max": "maximum"},
}
# Bandwidths are printed with two decimals.
_DECIMAL = 0.01
_TOLERANCE = 0.002


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sample:
  """A measured collective.

  Attributes:
    where: its log and line.
    key: its tuning key.
    path: its path, from `wire.path_name`.
    measured_us: its measured time.
    floor_us: the time of its launches, a lower bound.
    predicted_us: its predicted time, uncalibrated.
    latency_us: the predicted time of one byte; at most `predicted_us`.
    setting: NCCL's predicted setting.
    is_apart: whether its type has its own factor: the type is unusual in
      training, and the logs also have usual types.
    doubt: why it is not trusted; "" if it is.
  """

  where: str
  key: collective_lib.TuningKey
  path: str
  measured_us: float
  floor_us: float
  predicted_us: float
  latency_us: float
  setting: collective_lib.Setting
  is_apart: bool = False
  doubt: str = ""


def of_run(
  run: log.Run,
  cluster: cluster_lib.Cluster,
  algorithms: Collection[str] = (),
) -> list[Sample]:
  """The samples of a run, without rows below `LEAST_BYTES`.

  `algorithms` limits NCCL's choice; empty for no limit.

  Raises:
    CalibrationError: XLA has no collective like the run's, or its ranks are
      neither the cluster's nor one node's.
  """
  kind = log.KINDS.get(run.program)
  if kind is None:
    known = ", ".join(f"{name}_perf" for name in log.KINDS)
    if run.program:
      raise errors.CalibrationError(
        f"{run.where}: XLA has no collective like {run.program}_perf; use"
        f" {known}"
      )
    raise errors.CalibrationError(
      f"{run.where}: the program is unknown; put its name into the file's name"
      f" ({known})"
    )
  reduces = kind in collectives_lib.REDUCTIONS
  num_ranks, num_nodes = _ranks(run, cluster)
  doubt = _doubt(run)
  nccl_nodes = cluster.num_nccl_nodes_of(
    [
      node * cluster.gpus_per_node + gpu
      for node in range(num_nodes)
      for gpu in range(num_ranks // num_nodes)
    ]
  )
  return [
    sample(
      cluster=cluster,
      key=collective_lib.TuningKey(
        kind=kind,
        num_ranks=num_ranks,
        num_nodes=nccl_nodes,
        num_bytes=row.num_bytes,
        multicasts=not reduces
        or nccl.switch_reduces(
          _HLO_TYPES.get(row.element_type, ""),
          _HLO_REDUCTIONS.get(row.reduction, ""),
        ),
        reduced=collective_lib.unusual_type(
          kind, _HLO_TYPES.get(row.element_type, row.element_type)
        ),
      ),
      algorithms=algorithms,
      measured_us=row.time_us,
      where=f"{run.source}:{row.line}",
      doubt="has wrong results" if row.num_wrong else doubt,
      choice=run.choices.get(row.num_bytes),
      # Usually one thread for all GPUs of a node, or a process per GPU between
      # nodes.
      gpus_per_thread=run.gpus_per_thread
      or (num_ranks if nccl_nodes == 1 else 1),
    )
    for row in run.rows
    if row.num_bytes >= LEAST_BYTES
  ]


def sample(
  *,
  cluster: cluster_lib.Cluster,
  key: collective_lib.TuningKey,
  measured_us: float,
  where: str,
  doubt: str = "",
  choice: tuple[str, str] | None = None,
  gpus_per_thread: int = 1,
  algorithms: Collection[str] = (),
) -> Sample:
  """A measurement with its prediction under NCCL's own choice.

  Ignores the cluster's calibration. `choice` is NCCL's logged algorithm and
  protocol. `algorithms` limits NCCL's choice; empty for no limit.
  """
  bare = dataclasses.replace(cluster, calibration=None)
  setting = collective_lib.default_setting(key, bare)
  if algorithms:
    setting = nccl.default_setting(
      *(bare, key.communicator, key.kind, key.num_bytes), algorithms=algorithms
    )
  us, latency_us = (
    wire.time_us(bare, key.communicator, key.kind, num_bytes, setting)
    for num_bytes in (key.num_bytes, 1)
  )
  floor_us = gpus_per_thread * _launch_us()
  foreseen = (setting.algorithm, setting.protocol)
  if not doubt and choice not in (None, foreseen):
    chosen = "/".join(choice or ())
    doubt = f"ran {chosen}, where {'/'.join(foreseen)} was predicted"
  if not doubt and measured_us < _SLOW_HOST * floor_us:
    doubt = (
      f"is bound by one thread's launches on {gpus_per_thread} GPUs; run one"
      " process per GPU"
    )
  return Sample(
    where=where,
    key=key,
    path=wire.path_name(bare, key.communicator, key.kind, setting),
    measured_us=measured_us,
    floor_us=floor_us,
    predicted_us=us,
    latency_us=min(latency_us, us),
    setting=setting,
    doubt=doubt,
  )


def _ranks(run: log.Run, cluster: cluster_lib.Cluster) -> tuple[int, int]:
  """The number of ranks of a run, and of their nodes.

  They must be all ranks of the cluster, or all of a node.
  """
  cluster_counts = (cluster.num_devices, cluster.num_nodes)
  node_counts = (cluster.gpus_per_node, 1)
  if run.ranks:
    counts = (len(run.ranks), len(set(run.ranks.values())))
    if counts in (cluster_counts, node_counts):
      if not _fits(run, counts[0]):
        expected = log.bus_share(run.program, counts[0])
        raise errors.CalibrationError(
          f"{run.where}: its bus bandwidth is {_share(run):.3f} of bytes over"
          f" time, but {run.program}_perf on {counts[0]} ranks prints"
          f" {expected:.3f}; the log is of another program or of fewer ranks"
        )
      return counts
    gave = _ranks_on(*counts, "rank", "host")
    if counts[0] == 1:
      gave += " (build nccl-tests with MPI=1 for several)"
  else:
    for num_ranks, num_nodes in (cluster_counts, node_counts):
      if _fits(run, num_ranks):
        return num_ranks, num_nodes
    gave = f"ranks whose bus bandwidth is {_share(run):.3f} of bytes over time"
  raise errors.CalibrationError(
    f"{run.where}: has {gave}, but {cluster.name} has"
    f" {_ranks_on(*cluster_counts, 'GPU', 'node')}; name the"
    " cluster that it ran on with --cluster"
  )


def _ranks_on(num_ranks: int, num_nodes: int, rank: str, node: str) -> str:
  """A count in words, such as "8 ranks on 1 host"."""
  return (
    f"{in_words.count(num_ranks, rank)} on {in_words.count(num_nodes, node)}"
  )


def _fits(run: log.Run, num_ranks: int) -> bool:
  """Whether a run's bus bandwidths match a number of ranks."""
  row = _precise(run.rows)
  expected = log.bus_share(run.program, num_ranks)
  off_gbps = abs(row.bus_gbps - expected * row.gbps)
  return off_gbps <= _DECIMAL * (1 + expected) + _TOLERANCE * row.bus_gbps


def _share(run: log.Run) -> float:
  row = _precise(run.rows)
  return row.bus_gbps / max(row.gbps, _DECIMAL)


def _precise(rows: Sequence[log.Row]) -> log.Row:
  return max(rows, key=lambda row: row.gbps)


def _doubt(run: log.Run) -> str:
  """A doubt for what overrides NCCL's model in a run; "" for none."""
  if run.num_grouped > 1:
    return f"ran {run.num_grouped} collectives in one group; run it without -m"
  for name in _FORCING:
    value = run.environment.get(name)
    unforced = _UNFORCED.get(name, _OFF if name.endswith("_DISABLE") else ())
    if value is not None and value not in unforced:
      return f"ran under {name}={value}"
  return ""

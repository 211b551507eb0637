# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""NCCL's own decisions: what it would choose for a collective, and why.

`graph` describes a node and finds rings and trees in it, `model` has the
latency and bandwidth of what runs on them, `launch` says in how many channels
and chunks, and for which arrays of a combined collective together, and `choice`
makes NCCL's decision from these. Other packages need only these names.
"""

from __future__ import annotations

from lagom_xla.costs.nccl.choice import Setting
from lagom_xla.costs.nccl.choice import bandwidth_gbps
from lagom_xla.costs.nccl.choice import candidates
from lagom_xla.costs.nccl.choice import default_setting
from lagom_xla.costs.nccl.choice import latency_us
from lagom_xla.costs.nccl.choice import predicted_time_us
from lagom_xla.costs.nccl.graph import Communicator
from lagom_xla.costs.nccl.launch import BUFFER_SLOTS
from lagom_xla.costs.nccl.launch import aggregates
from lagom_xla.costs.nccl.launch import chunk_grain_bytes
from lagom_xla.costs.nccl.launch import chunk_slots
from lagom_xla.costs.nccl.launch import max_channels
from lagom_xla.costs.nccl.launch import max_chunk_bytes
from lagom_xla.costs.nccl.model import EXCHANGES
from lagom_xla.costs.nccl.model import SEND_RECV

__all__ = [
  "BUFFER_SLOTS",
  "EXCHANGES",
  "SEND_RECV",
  "Communicator",
  "Setting",
  "aggregates",
  "bandwidth_gbps",
  "candidates",
  "chunk_grain_bytes",
  "chunk_slots",
  "default_setting",
  "latency_us",
  "max_channels",
  "max_chunk_bytes",
  "predicted_time_us",
]

# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""NCCL's own choice of settings for a collective, and its predicted times.

`graph` describes a node and finds its rings and trees. `model` has the latency
and bandwidth of algorithms on them. `launch` has the channels and chunks, and
the arrays of a combined collective that NCCL aggregates. `choice` makes NCCL's
decision from these. Other packages need only the names below.
"""

from __future__ import annotations

from lagom_xla.costs.nccl.choice import Setting as Setting
from lagom_xla.costs.nccl.choice import bandwidth_gbps as bandwidth_gbps
from lagom_xla.costs.nccl.choice import candidates as candidates
from lagom_xla.costs.nccl.choice import default_setting as default_setting
from lagom_xla.costs.nccl.choice import latency_us as latency_us
from lagom_xla.costs.nccl.choice import net_hop_us as net_hop_us
from lagom_xla.costs.nccl.choice import predicted_time_us as predicted_time_us
from lagom_xla.costs.nccl.graph import Communicator as Communicator
from lagom_xla.costs.nccl.launch import BUFFER_SLOTS as BUFFER_SLOTS
from lagom_xla.costs.nccl.launch import aggregates as aggregates
from lagom_xla.costs.nccl.launch import chunk_grain_bytes as chunk_grain_bytes
from lagom_xla.costs.nccl.launch import chunk_slots as chunk_slots
from lagom_xla.costs.nccl.launch import max_channels as max_channels
from lagom_xla.costs.nccl.launch import max_chunk_bytes as max_chunk_bytes
from lagom_xla.costs.nccl.model import EXCHANGES as EXCHANGES
from lagom_xla.costs.nccl.model import NEWEST as NEWEST
from lagom_xla.costs.nccl.model import SEND_RECV as SEND_RECV
from lagom_xla.costs.nccl.model import Version as Version
from lagom_xla.costs.nccl.model import crosses_cpus as crosses_cpus
from lagom_xla.costs.nccl.model import latency_share as latency_share
from lagom_xla.costs.nccl.model import launch_us as launch_us
from lagom_xla.costs.nccl.model import switch_reduces as switch_reduces

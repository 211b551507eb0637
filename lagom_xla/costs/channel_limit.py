# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Limits on the channels of communicators: what NCCL makes of settings there.

A communicator starts with the most channels that it may ever use: maxCTAs of
ncclConfig_t, which NCCL_MAX_CTAS overrules (src/init.cc). It bounds rings,
trees and NVLS alike, and the choice of algorithm and protocol does not know of
it. For sends and receives NCCL rounds it up to a power of two
(ncclTopoComputeP2pChannels in src/graph/paths.cc).

XLA sets maxCTAs by one option for the communicators of collectives, all-to-all
among them, and by another for those in which permutes, sends and receives run
(CommunicationId(1) in xla/backends/gpu/runtime/).
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses

from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import nccl

# A key's setting under a limit of so many channels.
Limit = Callable[[collective_lib.TuningKey, nccl.Setting, int], nccl.Setting]

# Half of each is a send and a receive, which have this kind of key, too.
_IN_OTHER_COMMUNICATORS = "collective-permute"


def by_variable(
  key: collective_lib.TuningKey, setting: nccl.Setting, max_channels: int
) -> nccl.Setting:
  """A setting under NCCL_MAX_CTAS, which holds in every communicator."""
  if key.kind in nccl.SEND_RECV:
    max_channels = 1 << (max_channels - 1).bit_length()
  if setting.num_channels <= max_channels:
    return setting
  return dataclasses.replace(setting, num_channels=max_channels)


def by_option(
  key: collective_lib.TuningKey, setting: nccl.Setting, max_channels: int
) -> nccl.Setting:
  """A setting under XLA's option for the communicators of collectives."""
  if key.kind == _IN_OTHER_COMMUNICATORS:
    return setting
  return by_variable(key, setting, max_channels)

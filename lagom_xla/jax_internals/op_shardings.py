# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Shardings as XLA serializes them: how many devices, and whose names."""

from __future__ import annotations

from jax._src.lib import xla_client


def num_devices_of_sharding(serialized: bytes) -> int:
  """Devices that a serialized OpSharding splits an array over; 1 for none."""
  proto = xla_client.OpSharding()
  proto.ParseFromString(serialized)
  parts = proto.tuple_shardings or [proto]
  kinds = xla_client.OpSharding.Type
  return max(
    xla_client.HloSharding.from_proto(part).num_devices()
    if part.type == kinds.OTHER
    else 1
    for part in parts
  )


def is_named_sharding(serialized: bytes) -> bool:
  """Whether a serialized OpSharding names the axes of a mesh, as of JAX 0.12.

  GSPMD aborts where it finds one.
  """
  proto = xla_client.OpSharding()
  proto.ParseFromString(serialized)
  return "mesh[" in str(xla_client.HloSharding.from_proto(proto))

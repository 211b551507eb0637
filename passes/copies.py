# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Copies of a module: what moves arrays on streams beside that of kernels."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from lagom_xla.passes import device_copies
from lagom_xla.passes import hlo
from lagom_xla.passes import host_copies

Copy = host_copies.HostCopy | device_copies.DeviceCopy


def find(module: hlo.Module, *, apart: Collection[int]) -> Mapping[int, Copy]:
  """The copies of a module that run, by the id of what starts them.

  Args:
    module: scheduled.
    apart: ids of instructions that start something else, such as collectives.
  """
  found = host_copies.find(module)
  apart = {*apart, *found}
  return {**found, **device_copies.find(module, apart=apart)}


def awaited(found: Mapping[int, Copy]) -> Mapping[int, Copy]:
  """Those that are waited for, by the id of the instruction that does."""
  return {c.done_id: c for c in found.values() if c.done_id is not None}

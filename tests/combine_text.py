# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A module with collectives that can and with some that cannot be combined."""

from __future__ import annotations

import hlo_text

HLO = hlo_text.text(
  """
  x = f32[8,64] parameter(0)
  y = f32[8,64] parameter(1)
  n = s32[8,64] parameter(2)
  gx = f32[64,64] all-gather(x), replica_groups={{0,1,2,3,4,5,6,7}},
    dimensions={0}, channel_id=1, use_global_device_ids=true
  gy = f32[64,64] all-gather(y), replica_groups={{0,1,2,3,4,5,6,7}},
    dimensions={0}, channel_id=2, use_global_device_ids=true
  half = f32[32,64] all-gather(y), replica_groups={{0,1,2,3},{4,5,6,7}},
    dimensions={0}, channel_id=3, use_global_device_ids=true
  sx = f32[8,64] all-reduce(x), replica_groups={{0,1,2,3,4,5,6,7}},
    channel_id=4, use_global_device_ids=true, to_apply=add
  sx2 = f32[8,64] add(sx, x)
  sy = f32[8,64] all-reduce(y), replica_groups={{0,1,2,3,4,5,6,7}},
    channel_id=5, use_global_device_ids=true, to_apply=add
  sy2 = f32[8,64] add(sy, y)
  my = f32[8,64] all-reduce(y), replica_groups={{0,1,2,3,4,5,6,7}},
    channel_id=6, use_global_device_ids=true, to_apply=larger
  ssx = f32[8,64] all-reduce(sx2), replica_groups={{0,1,2,3,4,5,6,7}},
    channel_id=7, use_global_device_ids=true, to_apply=add
  ssy = f32[8,64] all-reduce(sy2), replica_groups={{0,1,2,3,4,5,6,7}},
    channel_id=8, use_global_device_ids=true, to_apply=add
  both = (f32[8,64], f32[8,64]) all-reduce(x, sx2),
    replica_groups={{0,1,2,3,4,5,6,7}}, channel_id=9,
    use_global_device_ids=true, to_apply=add
  b0 = f32[8,64] get-tuple-element(both), index=0
  b1 = f32[8,64] get-tuple-element(both), index=1
  ns = f32[8,64] convert(n)
  nsum = f32[8,64] add(ns, b1)
  ROOT out = (f32[64,64], f32[64,64], f32[32,64], f32[8,64], f32[8,64],
    f32[8,64], f32[8,64], f32[8,64])
    tuple(gx, gy, half, my, ssx, ssy, b0, nsum)
""",
  computations="""
larger {
  a.1 = f32[] parameter(0)
  b.1 = f32[] parameter(1)
  ROOT larger.1 = f32[] maximum(a.1, b.1)
}
""",
  header="num_partitions=8",
)

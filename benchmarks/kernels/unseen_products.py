# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The fastest products that users found on GPUs, beside the model.

  python -m benchmarks.kernels.unseen_products

benchmarks/data/unseen/products.csv has, of each GPU, type and table, the shape
of the highest rate among thousands that mamf-finder tries, one product at a
time. Nothing was fitted to them. They are the best of what varies, so the model
should find them a little slower.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from benchmarks import data
from benchmarks import groups
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import gemm

# Whose lone products were fitted, or those of the same chip at its full power.
_NEAR = ("a100_80", "h100", "h200", "gh200", "b200", "gb200", "b300")


def compare() -> Iterator[groups.Group]:
  """Products on GPUs like those of the fits, and on the others."""
  found: dict[str, list[groups.Comparison]] = {}
  for row in data.rows("unseen/products"):
    name = "SXM and Superchips" if row["gpu"] in _NEAR else "V100 and cards"
    found.setdefault(name, []).append(_comparison(row))
  for name in sorted(found):
    yield groups.of_comparisons(f"unseen products: {name}", found[name])


def _comparison(row: Mapping[str, str]) -> groups.Comparison:
  gpu = cluster_lib.parse(f"1x1x{row['gpu']}").gpu
  m, n, k = (int(row[side]) for side in "mnk")
  element_type = row["type"]
  out_type = "f16" if element_type == "f16" else "bf16"
  types = (element_type, element_type, out_type)
  in_step_us = gemm.predict_us(gpu, (1, m, n, k), types)
  in_step = gemm.fitted(gpu, element_type, element_type).in_step
  return groups.Comparison(
    what=f"{row['gpu']}, {element_type} {m}x{n}x{k}, us",
    measured=2 * m * n * k / (1e6 * float(row["tflops"])),
    predicted=in_step_us / in_step,
  )


def main() -> None:
  """The command."""
  for group in compare():
    groups.show([group])
    for one in group.comparisons:
      off = one.predicted / one.measured - 1
      print(
        f"  {one.what}: {one.measured:.4g}, {one.predicted:.4g}, {off:+.1%}"
      )


if __name__ == "__main__":
  main()

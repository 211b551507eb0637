# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A plot of predicted over measured times, a panel per kind of measurement."""

from __future__ import annotations

from collections.abc import Sequence
import pathlib

import matplotlib.pyplot as plt

from benchmarks import groups as groups_lib

_PANELS = ("products", "collectives")


def draw(groups: Sequence[groups_lib.Group], file: pathlib.Path) -> None:
  """Writes the picture; groups are sorted into panels by their names."""
  figure, axes = plt.subplots(
    1, len(_PANELS), figsize=(11, 5.5), layout="constrained"
  )
  for axis, panel in zip(axes, _PANELS, strict=True):
    limits_us = [float("inf"), 0.0]
    for group in groups:
      if not group.name.startswith(panel):
        continue
      measured = [c.measured for c in group.comparisons]
      predicted = [c.predicted for c in group.comparisons]
      axis.scatter(
        measured,
        predicted,
        s=4,
        label=group.name.removeprefix(f"{panel}: "),
      )
      limits_us[0] = min(limits_us[0], *measured)
      limits_us[1] = max(limits_us[1], *measured)
    axis.plot(limits_us, limits_us, color="black", linewidth=0.8)
    axis.set(
      title=f"Lone {panel}",
      xscale="log",
      yscale="log",
      xlabel="measured, us",
      ylabel="predicted, us",
    )
    axis.legend(fontsize="x-small", markerscale=3)
  figure.savefig(file, dpi=110)

# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Figures as text: times, sizes, counts and NCCL's settings.

All output formats its figures here, so they look the same everywhere: times in
ms, sizes in powers of ten.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  from lagom_xla.costs import nccl

# From here on, ends of ranges (ms), sizes (MB) and percents have no fraction.
_WHOLE_FROM_MS = 100
_WHOLE_FROM_MB = 100
_WHOLE_FROM_PERCENT = 10
# Times below this have three digits after the point.
_SHORT_MS = 0.1
_SUFFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def milliseconds(us: float) -> str:
  """A time in milliseconds, with its unit."""
  return f"{ms(us)} ms"


def ms(us: float) -> str:
  """A time in milliseconds without the unit, for columns with a unit."""
  time_ms = us / 1e3
  digits = 3 if 5e-4 <= abs(time_ms) < _SHORT_MS else 2
  return f"{time_ms:,.{digits}f}"


def rounded_ms(us: float) -> str:
  """A time in milliseconds without the unit, rounded as in a range."""
  return f"{us / 1e3:,.0f}" if us >= _WHOLE_FROM_MS * 1e3 else ms(us)


def ms_range(low_us: float, high_us: float, joint: str = " to ") -> str:
  """A range of milliseconds without the unit, with `joint` in the middle."""
  if min(low_us, high_us) >= _WHOLE_FROM_MS * 1e3:
    return f"{rounded_ms(low_us)}{joint}{rounded_ms(high_us)}"
  return f"{ms(low_us)}{joint}{ms(high_us)}"


def megabytes(num_bytes: int) -> str:
  """Bytes in MB (1e6), kB or B, with the unit."""
  if num_bytes >= 1e6:
    return f"{mb(num_bytes)} MB"
  return f"{num_bytes / 1e3:.1f} kB" if num_bytes >= 1e3 else f"{num_bytes} B"


def mb(num_bytes: int) -> str:
  """Bytes in MB (1e6) without the unit, for columns with a unit."""
  size = num_bytes / 1e6
  return f"{size:,.{0 if size >= _WHOLE_FROM_MB else 1}f}"


def gigabytes(num_bytes: float) -> str:
  """Bytes in GB (1e9), with the unit."""
  return f"{num_bytes / 1e9:,.1f} GB"


def short(value: float) -> str:
  """A number with three digits, such as 312k."""
  for size, suffix in _SUFFIXES:
    if value >= 0.9995 * size:
      return f"{_three_digits(value / size)}{suffix}"
  return _three_digits(value)


def _three_digits(value: float) -> str:
  digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
  return f"{value:,.{digits}f}"


def count(
  items: int | Collection[object], noun: str, plural: str | None = None
) -> str:
  """A count with its noun in the singular or plural, such as 2 nodes."""
  number = items if isinstance(items, int) else len(items)
  return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def some(names: Sequence[str], most: int = 3) -> str:
  """The first `most` names, and the number of others."""
  shown = list(names[:most])
  if len(names) > most:
    shown.append(f"{len(names) - most:,} more")
  *others, last = shown or [""]
  return f"{', '.join(others)} and {last}" if others else last


def option(name: str, value: str) -> str:
  """An XLA option's value; byte counts also in MB."""
  if name.endswith("_bytes") and value.isdecimal() and int(value):
    return f"{value} ({megabytes(int(value))})"
  if value in ("True", "False"):
    return value.lower()
  return value or "nothing"


def setting(chosen: nccl.Setting, *, num_arrays: int = 1) -> str:
  """An NCCL setting; the arrays of a combined collective share its channels."""
  channels = count(chosen.num_channels, "channel")
  if num_arrays > 1:
    channels += f" over {num_arrays} arrays"
  return (
    f"{chosen.algorithm}/{chosen.protocol}, {channels}, chunks of"
    f" {megabytes(chosen.chunk_bytes)}"
  )


def tuning_key(
  kind: str, num_bytes: int, num_ranks: int, platform: str = "GPU"
) -> str:
  """A tuning key, such as all-gather of 35.0 MB over 8 GPUs."""
  return f"{kind} of {megabytes(num_bytes)} over {num_ranks} {platform}s"


# Replacements for kernels that NCCL tunes, in words.
_RUN_BY = {
  "XLA kernel": "an XLA kernel",
  "copy engines": "copy engines",
  "symmetric kernel": "a symmetric kernel",
}


def run_by(by: str) -> str:
  """A `routes.RunBy` in words."""
  return _RUN_BY.get(by, by)


def run_otherwise(found: Iterable[tuple[str, str, int]]) -> str:
  """Counts of collectives, with what runs them and their SMs; "" for none.

  `found` has (kind, `routes.RunBy`, number of SMs) of each collective.
  """
  sms: dict[tuple[str, str], list[int]] = {}
  for kind, by, num_sms in found:
    sms.setdefault((by, kind), []).append(num_sms)
  return " and ".join(
    f"{count(len(taken), kind)} by {run_by(by)}"
    f"{' each' if taken[1:] and by.endswith('kernel') else ''}"
    f" ({sm_range(taken)})"
    for (by, kind), taken in sorted(sms.items())
  )


def sm_range(taken: Collection[int]) -> str:
  """The range of numbers of SMs, such as 4 to 16 SMs."""
  low, high = min(taken), max(taken)
  if not high:
    return "no SM"
  return count(high, "SM") if low == high else f"{low} to {high} SMs"


def off_by(factor: float) -> str:
  """A time over the predicted one, such as "14 % less time than predicted"."""
  if factor >= 2:
    return f"{factor:.1f} times as long as predicted"
  percent = 100 * abs(factor - 1)
  return (
    f"{percent:.{0 if percent >= _WHOLE_FROM_PERCENT else 1}f} %"
    f" {'less' if factor < 1 else 'more'} time than predicted"
  )


def version(numbers: Iterable[int]) -> str:
  """A version in the usual form, such as 2.30.7."""
  return ".".join(map(str, numbers))


def nccl_version(code: int) -> str:
  """NCCL_VERSION_CODE as a version: 22907 is 2.29.7 (nccl.h, from 2.9 on)."""
  major, rest = divmod(code, 10_000)
  return f"{major}.{rest // 100}.{rest % 100}"

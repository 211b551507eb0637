# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Network of a host: what an array and a byte of a collective take.

By default XLA:CPU reduces all gradients in one collective, which gloo runs
array by array and of which a trace shows nothing but the whole: n arrays of B
bytes took T. Any latency a and time of a byte b with n a + B b = T would do. So
both are taken to be in the range of hosts and networks that there are, as
likely in one octave as in the next, and the latency is the mean of what T
leaves possible. What is slower than that is so for its latency: an array waits
until the processes at both ends have a core, and on hosts that others use, too,
that has no bound, where links have one.
"""

from __future__ import annotations

import math

# An all-reduce of one number between two processes of one machine took that at
# best, of forty.
LEAST_ARRAY_S = 186e-6
# An array of 97 in one all-reduce, on two shaped hosts at a load of fourteen on
# two cores: what putting them end to end saved, by the row "many small
# gradients" at 1 Gb/s of benchmarks/live/results/live.csv.
MOST_ARRAY_S = 2.1e-3
# 4 MiB between two processes of one machine, at best; and 100 Mb/s Ethernet.
LEAST_BYTE_S = 1 / 1e9
MOST_BYTE_S = 8 / 100e6


def split(
  num_arrays: float, num_bytes: float, seconds: float
) -> tuple[float, float]:
  """Seconds of an array and of a byte, of collectives that took so long.

  Args:
    num_arrays: of all collectives; one at least.
    num_bytes: that a host sends of them.
    seconds: that they took.
  """
  waited_s = _waited_s(num_arrays, num_bytes, seconds)
  return waited_s / num_arrays, (seconds - waited_s) / max(num_bytes, 1)


def _waited_s(num_arrays: float, num_bytes: float, seconds: float) -> float:
  """What of collectives' seconds was latency."""
  least_s = num_arrays * LEAST_ARRAY_S
  low = max(least_s, seconds - num_bytes * MOST_BYTE_S)
  high = min(num_arrays * MOST_ARRAY_S, seconds - num_bytes * LEAST_BYTE_S)
  if low >= high:
    # Quicker than anything known, in both to the same degree; or slower.
    is_quick = low == least_s
    quick_s = seconds * least_s / (least_s + num_bytes * LEAST_BYTE_S)
    return quick_s if is_quick else low
  # Of x, the mean: with T its density is 1 / (x (T - x)), from low to high.
  rest_low, rest_high = seconds - high, seconds - low
  return (
    seconds
    * math.log(rest_high / rest_low)
    / (math.log(high / low) + math.log(rest_high / rest_low))
  )

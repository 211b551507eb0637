# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Donated inputs: whether a rewrite may be handed to XLA without losing them.

An executable that donates writes its results over its inputs. JAX 0.10.2
forgets which inputs those are as soon as a pass returns a module, changed or
not, and the step then needs memory for both the old and the new state. So a
rewrite of a module that donates is refused there, before it costs anything.
"""

from __future__ import annotations

import jax

from lagom_xla import errors
from lagom_xla.passes import hlo
from lagom_xla.passes import registry


def check(module: hlo.Module, rewrite: str) -> None:
  """Checks that inputs stay donated in a module that a pass returns.

  Args:
    module: what the pass was shown.
    rewrite: what the pass does, such as "sets combine groups".

  Raises:
    DonationLostError: it donates, and this JAX would forget that.
  """
  proto = module.proto
  donates = proto.input_output_alias.entries or proto.buffer_donor.entries
  if donates and not registry.keeps_donation():
    raise errors.DonationLostError(
      f"{module.name} donates inputs, and JAX {jax.__version__} forgets that"
      f" where a pass {rewrite}: its executable would need memory for both the"
      " old and the new state. Use JAX 0.11 or newer (Python 3.12)."
    )

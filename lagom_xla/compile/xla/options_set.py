# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Options that are set for a compile, by the user or for it alone.

Some have XLA write or read files, or run passes, that a compile with a part
left out has otherwise: where they are set, XLA compiles as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable
import os

# What the names of options begin with that have XLA write files.
DUMPS = "xla_dump_"
# Which modules it writes, of all that it compiles.
DUMPED_MODULES = "xla_dump_hlo_module_re"


def may_name(words: Iterable[str], options: Iterable[str]) -> bool:
  """Whether an option that is set may have one of these words in its name.

  Args:
    words: parts of names.
    options: names of the options of the compile, beside XLA_FLAGS.
  """
  flags = os.environ.get("XLA_FLAGS", "").strip()
  if flags and not flags.startswith("--"):
    return True  # They are in a file.
  set_anywhere = [*options, flags]
  return any(word in text for word in words for text in set_anywhere)

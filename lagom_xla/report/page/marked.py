# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sentences as HTML: code and flags as code, flags in a row as a list."""

from __future__ import annotations

import re
from typing import Final

# A flag ends before the punctuation of its sentence.
_END = r"(?=[.,;:)]*(?:\s|$))"
_FLAG = rf"--[a-z][\w-]*(?:=\S*?)?{_END}"
_CODE: Final = re.compile(
  rf"`([^`]+)`|(?<![\w-])({_FLAG}(?:\s{_FLAG})*)([.,;:)]*)"
)


def html(text: str) -> str:
  """A sentence as safe HTML."""
  import markupsafe

  told, end = markupsafe.Markup(), 0
  for found in _CODE.finditer(text):
    told += text[end : found.start()]
    end = found.end()
    code, flags, stop = found.groups("")
    words = [code] if code else flags.split()
    spans = [markupsafe.Markup("<code>{}</code>").format(w) for w in words]
    spans[-1] += stop
    if len(spans) > 1:
      line = markupsafe.Markup('<span class="line">{}</span>')
      spans = [line.format(span) for span in spans]
    told += markupsafe.Markup().join(spans)
  return told + text[end:]

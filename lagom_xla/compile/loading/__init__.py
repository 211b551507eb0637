# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Loading: what a user names on the command line, found, called and lowered."""

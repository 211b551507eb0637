# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What strands and slices are worth: predicted on GPUs, measured on CPUs."""

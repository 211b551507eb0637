// Copyright 2026 The lagom_xla Authors.
// SPDX-License-Identifier: Apache-2.0
//
// A custom call for XLA:CPU that imitates a busy device. It sleeps for the time
// in its attribute "microseconds", without using a core or holding Python's
// lock. Its result is its operand, in place.

#include <errno.h>
#include <stdint.h>
#include <stddef.h>
#include <time.h>

#include "xla/ffi/api/c_api.h"

XLA_FFI_Error* lagom_xla_device(XLA_FFI_CallFrame* frame) {
  // The type of extension_start has different names in the headers of jaxlib
  // 0.10 and 0.12, but the same members, so it is not named here.
  if (frame->extension_start != NULL &&
      frame->extension_start->type == XLA_FFI_Extension_Metadata) {
    XLA_FFI_Metadata* told =
        ((XLA_FFI_Metadata_Extension*)frame->extension_start)->metadata;
    told->api_version.major_version = XLA_FFI_API_MAJOR;
    told->api_version.minor_version = XLA_FFI_API_MINOR;
    told->traits = 0;
    told->state_type_id = (XLA_FFI_TypeId){0};  // Unknown: it has no state.
    return NULL;
  }
  const XLA_FFI_Scalar* scalar = frame->attrs.attrs[0];
  const int64_t microseconds = *(const int64_t*)scalar->value;
  struct timespec left = {.tv_sec = microseconds / 1000000,
                          .tv_nsec = microseconds % 1000000 * 1000};
  while (nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
  return NULL;
}

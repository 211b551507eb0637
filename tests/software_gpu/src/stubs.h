// Generated from the headers by cuda_libraries.py: each function of the driver,
// and the CUDA version from which its name means it.
#pragma once
typedef struct {
  const char *name;
  int version;
  void *function;
} StubVersion;
extern const StubVersion stub_versions[];
extern const int num_stub_versions;

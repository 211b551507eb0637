// What build.py makes of the headers: each function of the driver, as of which
// version of CUDA it is meant by its name.
#pragma once
typedef struct {
  const char *name;
  int version;
  void *function;
} StubVersion;
extern const StubVersion stub_versions[];
extern const int num_stub_versions;

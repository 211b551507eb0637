// Copyright 2026 The lagom_xla Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Times calls of the NCCL tuner plugin; plugin_call.py runs this.
//
//   plugin_call PLUGIN RANKS NODES KIND BYTES ALGORITHM PROTOCOL
//
// Prints, for each of 50 batches, the mean nanoseconds of a getCollInfo and of
// a getChunkSize through the v6 interface.

#define _POSIX_C_SOURCE 200809L

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { NUM_BATCHES = 50, NUM_CALLS = 20000 };

struct TunerV6 {
  const char* name;
  int (*init)(void**, uint64_t, size_t, size_t, void*, void*, void*);
  int (*get_coll_info)(void*, int, size_t, int, float**, int, int, int, int*);
  int (*finalize)(void*);
  int (*get_chunk_size)(void*, int, size_t, int, int, int, size_t*);
};

static double now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

int main(int argc, char** argv) {
  if (argc != 8) return 2;
  void* library = dlopen(argv[1], RTLD_NOW);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  const struct TunerV6* tuner = dlsym(library, "ncclTunerPlugin_v6");
  int kind = atoi(argv[4]), algorithm = atoi(argv[6]), protocol = atoi(argv[7]);
  size_t num_bytes = strtoull(argv[5], NULL, 10);
  void* context = NULL;
  tuner->init(&context, 1, strtoull(argv[2], NULL, 10),
              strtoull(argv[3], NULL, 10), NULL, NULL, NULL);
  float costs[7][3];
  for (int i = 0; i < 21; ++i) costs[i / 3][i % 3] = 100.0f;
  for (int batch = 0; batch < NUM_BATCHES; ++batch) {
    double start = now_ns();
    for (int i = 0; i < NUM_CALLS; ++i) {
      int num_channels = 0;
      tuner->get_coll_info(context, kind, num_bytes, 1, (float**)costs, 7, 3,
                           0, &num_channels);
    }
    double middle = now_ns();
    for (int i = 0; i < NUM_CALLS; ++i) {
      size_t chunk_bytes = 524288;
      tuner->get_chunk_size(context, kind, num_bytes / 8, algorithm, protocol,
                            1, &chunk_bytes);
    }
    double end = now_ns();
    printf("%.2f %.2f\n", (middle - start) / NUM_CALLS,
           (end - middle) / NUM_CALLS);
  }
  tuner->finalize(context);
  return 0;
}

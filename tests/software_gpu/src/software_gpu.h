// The driver's interface for the other libraries.
#pragma once
#include <cuda.h>
#include <stdatomic.h>
#include <stdint.h>

#define DEVICE_NAME "NVIDIA H100 80GB HBM3 (software GPU)"

// --- for CUPTI

typedef struct {
  enum { RECORD_KERNEL, RECORD_COPY, RECORD_SET } kind;
  const char *name;
  uint64_t start_ns, end_ns;
  uint32_t device, context, stream, correlation, graph;
  uint64_t node;
  unsigned grid[3], block[3], shared_bytes;
  uint64_t num_bytes;
  int copy_kind, from_kind, to_kind;  // CUPTI's numbers.
} SoftwareRecord;
typedef void (*SoftwareSink)(const SoftwareRecord *record);
// Before (is_exit = 0) and after a call of the driver that CUPTI traces.
typedef void (*SoftwareHook)(int is_exit, uint32_t callback_id,
                             const char *function, const void *parameters,
                             CUcontext context, uint32_t context_id,
                             uint32_t correlation, const char *symbol,
                             uint64_t *data, CUresult *result);
void software_gpu_trace(SoftwareSink sink, SoftwareHook hook);

// --- for NCCL

// The meeting point of a communicator's ranks, in memory shared by processes: a
// collective takes the next slot, and proceeds when all ranks have arrived.
#define SOFTWARE_NUM_MEETINGS 4096
typedef struct {
  int num_ranks;
  struct {
    _Atomic uint64_t num_arrived, latest_ns;
  } meetings[SOFTWARE_NUM_MEETINGS];
} SoftwareRanks;

// A collective of one rank.
typedef struct {
  SoftwareRanks *ranks;
  _Atomic uint64_t *num_met;  // Collectives that this rank has reached.
  int num_channels;
  double time_ns;  // After all ranks have arrived.
} SoftwareCollective;
// Launches a collective; keeps the pointer to it.
CUresult software_gpu_collective(CUstream stream, const char *kernel,
                                 unsigned num_threads,
                                 const SoftwareCollective *collective);

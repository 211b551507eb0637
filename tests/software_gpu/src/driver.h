// Shared declarations of the driver's parts.
#pragma once
#define __CUDA_API_VERSION_INTERNAL 1
#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "software_gpu.h"

#define API __attribute__((visibility("default")))
#define MAX_DEVICES 16
// Of an H100 SXM5.
#define NUM_SMS 132

// --- device.c: configuration, devices, contexts.

// From environment variables; see README.md.
typedef struct {
  int num_devices, first_device;
  uint64_t memory_bytes;
  double kernel_us, wave_us, copy_gbps;
  int log;
} Settings;
extern Settings settings;
// Logs at a level: 1 for missing functions, 2 for loaded code.
void say(int level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
// Called by stubs of missing functions.
CUresult missing(const char *name);

struct CUctx_st {
  int device;
  uint32_t id;
  CUstream legacy;
};
CUcontext primary_context(int device);
CUcontext current_context(void);
int current_device(void);

// --- memory.c: devices' memory is the host's.

typedef enum { MEMORY_DEVICE, MEMORY_HOST, MEMORY_MAPPED } MemoryKind;
typedef struct {
  uintptr_t base;
  size_t size;
  int device;
  MemoryKind kind;
  uint64_t id;
  void *handle;  // The handle of mapped memory.
} Memory;
// The allocation of an address; false if there is none.
bool find_memory(uintptr_t address, Memory *found);
CUresult allocate(int device, size_t size, CUdeviceptr *out);
CUresult deallocate(CUdeviceptr address);

// --- module.c: code that never runs.

struct CUfunc_st {
  char *name;
  CUmodule module;
  CUfunction next;
  int max_dynamic_shared_bytes;
  double given_ns;  // Its time by name; below 0, the time depends on its work.
  bool fails;
};

// --- task.c: tasks and their times.

typedef enum {
  TASK_MARKER,  // Nothing: a point in time.
  TASK_KERNEL,
  TASK_COPY,
  TASK_SET,
  TASK_HOST,
  TASK_FREE,
  TASK_WRITE,
  TASK_WAIT_VALUE,
} TaskKind;

// The work of a task; also of a graph's node.
typedef struct {
  TaskKind kind;
  int device;
  uint32_t stream, correlation, graph;
  uint64_t node;
  union {
    struct {
      CUfunction function;
      unsigned grid[3], block[3], shared_bytes;
      const SoftwareCollective *collective;  // NULL for kernels.
    } kernel;
    CUDA_MEMCPY3D copy;
    struct {
      CUdeviceptr to;
      uint64_t value;
      unsigned element_bytes;
      size_t width, height, pitch;
    } set;
    struct {
      CUhostFn call;
      void *data;
    } host;
    struct {
      CUdeviceptr at;
      uint64_t value;
      unsigned num_bytes, flags;
    } value;
    CUdeviceptr freed;
  };
} Work;

typedef struct Task Task;
// A task that starts when those before it have ended (NULL is none); the caller
// owns one reference.
Task *submit(const Work *work, Task *const *before, size_t num_before);
void retain(Task *task);
void release(Task *task);
bool has_ended(Task *task);
// The time of its end; 0 before that.
uint64_t end_ns(Task *task);
void wait_for(Task *task);

// --- stream.c: streams, events, launches, copies.

struct CUstream_st {
  CUcontext context;
  uint32_t id;
  int priority;
  unsigned flags;
  Task *last;
  // The captured graph, and the predecessors of its next node.
  CUgraph capture;
  CUgraphNode *leaves;
  size_t num_leaves;
  CUstream next;
};
struct CUevent_st {
  Task *recorded;
  CUgraph capture;
  CUgraphNode *leaves;
  size_t num_leaves;
};
// The stream of a handle.
CUstream stream_of(CUstream handle);
CUresult enqueue(CUstream stream, Work work);
// Streams that joined a capture by an event leave it.
void end_captures(CUgraph graph);

// --- graph.c

struct CUgraphNode_st {
  CUgraphNodeType type;
  Work work;
  CUgraph child;
  CUgraphNode *before;
  size_t num_before;
  CUgraphNode originals[2];  // Its original, and that one's original.
  bool is_disabled;
  Task *task;  // While the graph is launched.
  CUDA_KERNEL_NODE_PARAMS kernel_parameters;
};
struct CUgraph_st {
  uint32_t id;
  CUgraphNode *nodes;
  size_t num_nodes, capacity;
};
struct CUgraphExec_st {
  CUgraph graph;
};
CUgraphNode add_node(CUgraph graph, CUgraphNodeType type, const Work *work,
                     const CUgraphNode *before, size_t num_before);
// The last task of a launch.
Task *launch_graph(CUgraph graph, Task *before, uint32_t stream, int device,
                   uint32_t correlation);
CUresult capture(CUstream stream, const Work *work);

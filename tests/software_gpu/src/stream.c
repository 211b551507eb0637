// Streams, events, launches, copies.
#include "cupti_driver_cbid.h"
#include "driver.h"
#include "generated_cuda_meta.h"

// Lock of the last tasks of streams and of events' tasks: held from reading
// them until their successor is added.
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static CUstream streams;
static uint32_t next_stream = 7, next_correlation = 1;
static SoftwareHook hook;

void trace_tasks(SoftwareSink sink);
API void software_gpu_trace(SoftwareSink sink, SoftwareHook new_hook) {
  trace_tasks(sink);
  hook = new_hook;
}

// A call, reported to CUPTI before and after. `correlation` is its number.
#define TRACED(name, parameters, symbol, call)                               \
  ({                                                                         \
    uint32_t correlation =                                                   \
        __atomic_fetch_add(&next_correlation, 1, __ATOMIC_RELAXED);          \
    uint64_t data_ = 0;                                                      \
    CUresult result_ = CUDA_SUCCESS;                                         \
    CUcontext context_ = current_context();                                  \
    SoftwareHook hook_ = hook;                                               \
    for (int exit_ = 0; exit_ < 2; exit_++) {                                \
      if (hook_)                                                             \
        hook_(exit_, CUPTI_DRIVER_TRACE_CBID_##name, #name, parameters,      \
              context_, context_ ? context_->id : 0, correlation, symbol,    \
              &data_, &result_);                                             \
      if (!exit_) result_ = (call);                                          \
    }                                                                        \
    result_;                                                                 \
  })

// --- streams

static CUstream new_stream(CUcontext context, unsigned flags, int priority) {
  CUstream stream = calloc(1, sizeof *stream);
  stream->context = context;
  stream->flags = flags;
  stream->priority = priority;
  pthread_mutex_lock(&mutex);
  stream->id = next_stream++;
  stream->next = streams;
  streams = stream;
  pthread_mutex_unlock(&mutex);
  return stream;
}

CUstream stream_of(CUstream handle) {
  if (handle && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD)
    return handle;
  CUcontext context = current_context();
  if (!context) context = primary_context(0);
  if (!context->legacy) context->legacy = new_stream(context, 0, 0);
  return context->legacy;
}

// Takes over the reference to a task, and drops that to the previous one.
static void put(Task **place, Task *task) {
  release(*place);
  *place = task;
}

// The current task, with a new reference.
static Task *get(Task *const *place) {
  pthread_mutex_lock(&mutex);
  Task *task = *place;
  retain(task);
  pthread_mutex_unlock(&mutex);
  return task;
}

// Also records an event there, unless it is NULL.
static CUresult enqueue_and_record(CUstream stream, Work work, CUevent event) {
  if (stream->capture) return capture(stream, &work);
  work.device = stream->context->device;
  work.stream = stream->id;
  pthread_mutex_lock(&mutex);
  put(&stream->last, submit(&work, &stream->last, 1));
  if (event) {
    retain(stream->last);
    put(&event->recorded, stream->last);
  }
  pthread_mutex_unlock(&mutex);
  return CUDA_SUCCESS;
}
CUresult enqueue(CUstream handle, Work work) {
  return enqueue_and_record(stream_of(handle), work, NULL);
}

static CUresult wait_for_now(Task *const *place) {
  Task *task = get(place);
  wait_for(task);
  release(task);
  return CUDA_SUCCESS;
}
static CUresult query(Task *const *place) {
  Task *task = get(place);
  bool is_over = has_ended(task);
  release(task);
  return is_over ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

API CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags,
                                        int priority) {
  CUcontext context = current_context();
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  *stream = new_stream(context, flags, priority);
  return CUDA_SUCCESS;
}
API CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
  return cuStreamCreateWithPriority(stream, flags, 0);
}
API CUresult cuStreamDestroy_v2(CUstream stream) {
  pthread_mutex_lock(&mutex);
  CUstream *place = &streams;
  while (*place && *place != stream) place = &(*place)->next;
  if (*place) *place = stream->next;
  pthread_mutex_unlock(&mutex);
  release(stream->last);
  free(stream->leaves);
  free(stream);
  return CUDA_SUCCESS;
}
API CUresult cuStreamSynchronize(CUstream stream) {
  stream = stream_of(stream);
  if (stream->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return wait_for_now(&stream->last);
}
API CUresult cuStreamQuery(CUstream stream) {
  return query(&stream_of(stream)->last);
}
API CUresult cuStreamGetCtx(CUstream stream, CUcontext *context) {
  *context = stream_of(stream)->context;
  return CUDA_SUCCESS;
}
API CUresult cuStreamGetDevice(CUstream stream, CUdevice *device) {
  *device = stream_of(stream)->context->device;
  return CUDA_SUCCESS;
}
API CUresult cuStreamGetFlags(CUstream stream, unsigned *flags) {
  *flags = stream_of(stream)->flags;
  return CUDA_SUCCESS;
}
API CUresult cuStreamGetPriority(CUstream stream, int *priority) {
  *priority = stream_of(stream)->priority;
  return CUDA_SUCCESS;
}
API CUresult cuStreamGetId(CUstream stream, unsigned long long *id) {
  *id = stream_of(stream)->id;
  return CUDA_SUCCESS;
}
API CUresult cuCtxSynchronize(void) {
  CUcontext context = current_context();
  size_t num = 0, capacity = 0;
  Task **last = NULL;
  pthread_mutex_lock(&mutex);
  for (CUstream s = streams; s; s = s->next) {
    if (s->context != context || !s->last) continue;
    if (num == capacity)
      last = realloc(last, (capacity = 2 * capacity + 8) * sizeof *last);
    retain(last[num++] = s->last);
  }
  pthread_mutex_unlock(&mutex);
  for (size_t i = 0; i < num; i++) {
    wait_for(last[i]);
    release(last[i]);
  }
  free(last);
  return CUDA_SUCCESS;
}
void end_captures(CUgraph graph) {
  pthread_mutex_lock(&mutex);
  for (CUstream s = streams; s; s = s->next)
    if (s->capture == graph) {
      s->capture = NULL;
      s->num_leaves = 0;
    }
  pthread_mutex_unlock(&mutex);
}

// --- events

API CUresult cuEventCreate(CUevent *event, unsigned flags) {
  (void)flags;
  *event = calloc(1, sizeof **event);
  return CUDA_SUCCESS;
}
API CUresult cuEventDestroy_v2(CUevent event) {
  release(event->recorded);
  free(event->leaves);
  free(event);
  return CUDA_SUCCESS;
}
API CUresult cuEventRecord(CUevent event, CUstream handle) {
  CUstream stream = stream_of(handle);
  event->capture = stream->capture;
  if (stream->capture) {
    size_t size = (stream->num_leaves + 1) * sizeof *event->leaves;
    event->leaves = realloc(event->leaves, size);
    if (stream->num_leaves)
      memcpy(event->leaves, stream->leaves, size - sizeof *event->leaves);
    event->num_leaves = stream->num_leaves;
    return CUDA_SUCCESS;
  }
  return enqueue_and_record(stream, (Work){.kind = TASK_MARKER}, event);
}
API CUresult cuEventRecordWithFlags(CUevent event, CUstream stream,
                                    unsigned flags) {
  (void)flags;
  return cuEventRecord(event, stream);
}
API CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags) {
  (void)flags;
  CUstream stream = stream_of(handle);
  if (event->capture) {
    if (!stream->capture) {
      stream->capture = event->capture;
      stream->num_leaves = 0;
    }
    stream->leaves =
        realloc(stream->leaves, (stream->num_leaves + event->num_leaves + 1) *
                                    sizeof *stream->leaves);
    for (size_t i = 0; i < event->num_leaves; i++) {
      size_t k = 0;
      while (k < stream->num_leaves && stream->leaves[k] != event->leaves[i])
        k++;
      if (k == stream->num_leaves)
        stream->leaves[stream->num_leaves++] = event->leaves[i];
    }
    return CUDA_SUCCESS;
  }
  if (!event->recorded || stream->capture) return CUDA_SUCCESS;
  Work work = {.kind = TASK_MARKER, .device = stream->context->device};
  pthread_mutex_lock(&mutex);
  Task *before[] = {stream->last, event->recorded};
  put(&stream->last, submit(&work, before, 2));
  pthread_mutex_unlock(&mutex);
  return CUDA_SUCCESS;
}
API CUresult cuEventQuery(CUevent event) {
  return query(&event->recorded);
}
API CUresult cuEventSynchronize(CUevent event) {
  return wait_for_now(&event->recorded);
}
API CUresult cuEventElapsedTime_v2(float *ms, CUevent from, CUevent to) {
  if (!from->recorded || !to->recorded) return CUDA_ERROR_INVALID_HANDLE;
  uint64_t from_ns = end_ns(from->recorded), to_ns = end_ns(to->recorded);
  if (!from_ns || !to_ns) return CUDA_ERROR_NOT_READY;
  *ms = (int64_t)(to_ns - from_ns) / 1e6;
  return CUDA_SUCCESS;
}
API CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to) {
  return cuEventElapsedTime_v2(ms, from, to);
}

// --- launches

static CUresult launch(CUfunction function, const unsigned grid[3],
                       const unsigned block[3], unsigned shared_bytes,
                       CUstream stream, uint32_t correlation,
                       const SoftwareCollective *collective) {
  if (function->fails) return CUDA_ERROR_LAUNCH_FAILED;
  Work work = {.kind = TASK_KERNEL, .correlation = correlation};
  work.kernel.function = function;
  work.kernel.collective = collective;
  work.kernel.shared_bytes = shared_bytes;
  memcpy(work.kernel.grid, grid, sizeof work.kernel.grid);
  memcpy(work.kernel.block, block, sizeof work.kernel.block);
  return enqueue(stream, work);
}
API CUresult cuLaunchKernel(CUfunction f, unsigned grid_x, unsigned grid_y,
                            unsigned grid_z, unsigned block_x, unsigned block_y,
                            unsigned block_z, unsigned shared_bytes,
                            CUstream stream, void **arguments, void **extra) {
  cuLaunchKernel_params p = {f,       grid_x,  grid_y,       grid_z,
                             block_x, block_y, block_z,      shared_bytes,
                             stream,  arguments, extra};
  unsigned grid[] = {grid_x, grid_y, grid_z};
  unsigned block[] = {block_x, block_y, block_z};
  return TRACED(
      cuLaunchKernel, &p, f->name,
      launch(f, grid, block, shared_bytes, stream, correlation, NULL));
}
API CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f,
                              void **arguments, void **extra) {
  cuLaunchKernelEx_params p = {c, f, arguments, extra};
  unsigned grid[] = {c->gridDimX, c->gridDimY, c->gridDimZ};
  unsigned block[] = {c->blockDimX, c->blockDimY, c->blockDimZ};
  return TRACED(cuLaunchKernelEx, &p, f->name,
                launch(f, grid, block, c->sharedMemBytes, c->hStream,
                       correlation, NULL));
}
API CUresult software_gpu_collective(CUstream stream, const char *kernel,
                                     unsigned num_threads,
                                     const SoftwareCollective *collective) {
  static CUmodule module;
  CUfunction f;
  if (!module) cuModuleLoadData(&module, "collectives");
  cuModuleGetFunction(&f, module, kernel);
  unsigned grid[] = {collective->num_channels, 1, 1};
  unsigned block[] = {num_threads, 1, 1};
  CUlaunchConfig c = {.gridDimX = grid[0], .gridDimY = 1, .gridDimZ = 1,
                      .blockDimX = block[0], .blockDimY = 1, .blockDimZ = 1,
                      .hStream = stream};
  cuLaunchKernelEx_params p = {&c, f, NULL, NULL};
  return TRACED(cuLaunchKernelEx, &p, f->name,
                launch(f, grid, block, 0, stream, correlation, collective));
}
API CUresult cuLaunchHostFunc(CUstream stream, CUhostFn call, void *data) {
  return enqueue(stream, (Work){.kind = TASK_HOST, .host = {call, data}});
}
API CUresult cuLaunchHostFunc_v2(CUstream stream, CUhostFn call, void *data,
                                 unsigned mode) {
  (void)mode;
  return cuLaunchHostFunc(stream, call, data);
}
static CUresult launch_exec(CUgraphExec exec, CUstream handle,
                            uint32_t correlation) {
  CUstream stream = stream_of(handle);
  if (stream->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  pthread_mutex_lock(&mutex);
  put(&stream->last, launch_graph(exec->graph, stream->last, stream->id,
                                  stream->context->device, correlation));
  pthread_mutex_unlock(&mutex);
  return CUDA_SUCCESS;
}
API CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  cuGraphLaunch_params p = {exec, stream};
  return TRACED(cuGraphLaunch, &p, NULL,
                launch_exec(exec, stream, correlation));
}

// --- copies and sets

static CUresult copy(const void *to, const void *from, size_t num_bytes,
                     CUstream stream, uint32_t correlation) {
  Work work = {.kind = TASK_COPY, .correlation = correlation};
  work.copy = (CUDA_MEMCPY3D){.dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                              .dstDevice = (CUdeviceptr)to,
                              .srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                              .srcDevice = (CUdeviceptr)from,
                              .WidthInBytes = num_bytes,
                              .Height = 1,
                              .Depth = 1};
  return enqueue(stream, work);
}
static CUresult copy_now(const void *to, const void *from, size_t num_bytes,
                         uint32_t correlation) {
  CUresult result = copy(to, from, num_bytes, NULL, correlation);
  return result ? result : cuStreamSynchronize(NULL);
}
#define ADDRESS(p) ((const void *)(p))

API CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t n,
                           CUstream stream) {
  cuMemcpyAsync_params p = {to, from, n, stream};
  return TRACED(cuMemcpyAsync, &p, NULL,
                copy(ADDRESS(to), ADDRESS(from), n, stream, correlation));
}
API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t n,
                                  CUstream stream) {
  cuMemcpyHtoDAsync_v2_params p = {to, from, n, stream};
  return TRACED(cuMemcpyHtoDAsync_v2, &p, NULL,
                copy(ADDRESS(to), from, n, stream, correlation));
}
API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t n,
                                  CUstream stream) {
  cuMemcpyDtoHAsync_v2_params p = {to, from, n, stream};
  return TRACED(cuMemcpyDtoHAsync_v2, &p, NULL,
                copy(to, ADDRESS(from), n, stream, correlation));
}
API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t n,
                                  CUstream stream) {
  cuMemcpyDtoDAsync_v2_params p = {to, from, n, stream};
  return TRACED(cuMemcpyDtoDAsync_v2, &p, NULL,
                copy(ADDRESS(to), ADDRESS(from), n, stream, correlation));
}
API CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context,
                               CUdeviceptr from, CUcontext from_context,
                               size_t n, CUstream stream) {
  (void)to_context, (void)from_context;
  return cuMemcpyDtoDAsync_v2(to, from, n, stream);
}
API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t n) {
  cuMemcpyHtoD_v2_params p = {to, from, n};
  return TRACED(cuMemcpyHtoD_v2, &p, NULL,
                copy_now(ADDRESS(to), from, n, correlation));
}
API CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t n) {
  cuMemcpyDtoH_v2_params p = {to, from, n};
  return TRACED(cuMemcpyDtoH_v2, &p, NULL,
                copy_now(to, ADDRESS(from), n, correlation));
}
API CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t n) {
  return copy_now(ADDRESS(to), ADDRESS(from), n, 0);
}

static CUresult set(CUdeviceptr to, uint64_t value, unsigned element_bytes,
                    size_t width, CUstream stream, uint32_t correlation) {
  Work work = {.kind = TASK_SET, .correlation = correlation};
  work.set.to = to;
  work.set.value = value;
  work.set.element_bytes = element_bytes;
  work.set.width = width;
  return enqueue(stream, work);
}
API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t n,
                             CUstream stream) {
  cuMemsetD8Async_params p = {to, value, n, stream};
  return TRACED(cuMemsetD8Async, &p, NULL,
                set(to, value, 1, n, stream, correlation));
}
API CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t n,
                              CUstream stream) {
  cuMemsetD32Async_params p = {to, value, n, stream};
  return TRACED(cuMemsetD32Async, &p, NULL,
                set(to, value, 4, n, stream, correlation));
}
API CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t n) {
  CUresult result = set(to, value, 1, n, NULL, 0);
  return result ? result : cuStreamSynchronize(NULL);
}
API CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t n) {
  CUresult result = set(to, value, 4, n, NULL, 0);
  return result ? result : cuStreamSynchronize(NULL);
}

// --- values in memory

static CUresult value(TaskKind kind, CUdeviceptr at, uint64_t value,
                      unsigned num_bytes, unsigned flags, CUstream stream) {
  Work work = {.kind = kind};
  work.value.at = at;
  work.value.value = value;
  work.value.num_bytes = num_bytes;
  work.value.flags = flags;
  return enqueue(stream, work);
}
API CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr at,
                                     cuuint32_t v, unsigned flags) {
  return value(TASK_WRITE, at, v, 4, flags, stream);
}
API CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr at,
                                     cuuint64_t v, unsigned flags) {
  return value(TASK_WRITE, at, v, 8, flags, stream);
}
API CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr at,
                                    cuuint32_t v, unsigned flags) {
  return value(TASK_WAIT_VALUE, at, v, 4, flags, stream);
}
API CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr at,
                                    cuuint64_t v, unsigned flags) {
  return value(TASK_WAIT_VALUE, at, v, 8, flags, stream);
}

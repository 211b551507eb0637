// CUPTI on our driver: callbacks for its calls, and records of kernels, copies
// and sets.
//
// Allows one subscriber at a time, like CUPTI; SOFTWARE_GPU_CUPTI=taken means
// that another profiler is the subscriber.
#include <cuda.h>
#include <cupti.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "software_gpu.h"

#define API __attribute__((visibility("default")))
#define NUM_CALLBACKS 1024
#define NUM_KINDS 256

typedef union {
  CUpti_Activity any;
  KERNEL_RECORD kernel;
  COPY_RECORD copy;
  SET_RECORD set;
} Record;

static CUpti_CallbackFunc callback;
static void *user_data;
static bool is_called[NUM_CALLBACKS], is_recorded[NUM_KINDS];
static CUpti_BuffersCallbackRequestFunc request;
static CUpti_BuffersCallbackCompleteFunc complete;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static Record *records;
static size_t num_records, capacity;

CUptiResult missing(const char *name) {
  if (getenv("SOFTWARE_GPU_LOG"))
    fprintf(stderr, "software GPU: missing: %s\n", name);
  return CUPTI_ERROR_NOT_SUPPORTED;
}

static size_t record_size(CUpti_ActivityKind kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_MEMCPY: return sizeof(COPY_RECORD);
    case CUPTI_ACTIVITY_KIND_MEMSET: return sizeof(SET_RECORD);
    default: return sizeof(KERNEL_RECORD);
  }
}

#define COMMON(to, from)                            \
  (to).start = (from)->start_ns;                    \
  (to).end = (from)->end_ns;                        \
  (to).deviceId = (from)->device;                   \
  (to).contextId = (from)->context;                 \
  (to).streamId = (from)->stream;                   \
  (to).correlationId = (from)->correlation;         \
  (to).graphId = (from)->graph;                     \
  (to).graphNodeId = (from)->node

static void keep(const SoftwareRecord *from) {
  Record record;
  memset(&record, 0, sizeof record);
  switch (from->kind) {
    case RECORD_KERNEL:
      record.kernel.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
      COMMON(record.kernel, from);
      record.kernel.completed = from->end_ns;
      record.kernel.name = from->name;
      record.kernel.gridX = from->grid[0];
      record.kernel.gridY = from->grid[1];
      record.kernel.gridZ = from->grid[2];
      record.kernel.blockX = from->block[0];
      record.kernel.blockY = from->block[1];
      record.kernel.blockZ = from->block[2];
      record.kernel.dynamicSharedMemory = from->shared_bytes;
      record.kernel.registersPerThread = 32;
      record.kernel.gridId = from->correlation;
      break;
    case RECORD_COPY:
      record.copy.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
      COMMON(record.copy, from);
      record.copy.bytes = from->num_bytes;
      record.copy.copyKind = from->copy_kind;
      record.copy.srcKind = from->from_kind;
      record.copy.dstKind = from->to_kind;
      break;
    case RECORD_SET:
      record.set.kind = CUPTI_ACTIVITY_KIND_MEMSET;
      COMMON(record.set, from);
      record.set.bytes = from->num_bytes;
      record.set.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
      break;
  }
  pthread_mutex_lock(&mutex);
  if (is_recorded[record.any.kind]) {
    if (num_records == capacity)
      records =
          realloc(records, (capacity = 2 * capacity + 4096) * sizeof *records);
    records[num_records++] = record;
  }
  pthread_mutex_unlock(&mutex);
}

static void call_back(int is_exit, uint32_t id, const char *function,
                      const void *parameters, CUcontext context,
                      uint32_t context_id, uint32_t correlation,
                      const char *symbol, uint64_t *data, CUresult *result) {
  if (!callback || id >= NUM_CALLBACKS || !is_called[id]) return;
  CUpti_CallbackData call = {
      .callbackSite = is_exit ? CUPTI_API_EXIT : CUPTI_API_ENTER,
      .functionName = function,
      .functionParams = parameters,
      .functionReturnValue = result,
      .symbolName = symbol,
      .context = context,
      .contextUid = context_id,
      .correlationData = data,
      .correlationId = correlation};
  callback(user_data, CUPTI_CB_DOMAIN_DRIVER_API, id, &call);
}

static void connect_driver(void) {
  bool is_any = false;
  for (int i = 0; i < NUM_KINDS; i++) is_any |= is_recorded[i];
  software_gpu_trace(is_any ? keep : NULL, callback ? call_back : NULL);
}

API CUptiResult cuptiGetVersion(uint32_t *version) {
  *version = CUPTI_API_VERSION;
  return CUPTI_SUCCESS;
}
API CUptiResult cuptiGetResultString(CUptiResult result, const char **text) {
  *text = result == CUPTI_SUCCESS ? "CUPTI_SUCCESS"
          : result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
              ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
              : "an error of the software GPU's CUPTI";
  return CUPTI_SUCCESS;
}
API CUptiResult cuptiGetTimestamp(uint64_t *ns) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  *ns = t.tv_sec * 1000000000ull + t.tv_nsec;
  return CUPTI_SUCCESS;
}
API CUptiResult cuptiSubscribe(CUpti_SubscriberHandle *subscriber,
                               CUpti_CallbackFunc new_callback, void *data) {
  const char *setting = getenv("SOFTWARE_GPU_CUPTI");
  if (callback || (setting && !strcmp(setting, "taken")))
    return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  callback = new_callback;
  user_data = data;
  *subscriber = (CUpti_SubscriberHandle)1;
  connect_driver();
  return CUPTI_SUCCESS;
}
API CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle subscriber) {
  (void)subscriber;
  callback = NULL;
  connect_driver();
  return CUPTI_SUCCESS;
}
API CUptiResult cuptiEnableCallback(uint32_t is_on,
                                    CUpti_SubscriberHandle subscriber,
                                    CUpti_CallbackDomain domain,
                                    CUpti_CallbackId id) {
  (void)subscriber;
  if (domain == CUPTI_CB_DOMAIN_DRIVER_API && id < NUM_CALLBACKS)
    is_called[id] = is_on;
  return CUPTI_SUCCESS;
}
API CUptiResult cuptiEnableDomain(uint32_t is_on,
                                  CUpti_SubscriberHandle subscriber,
                                  CUpti_CallbackDomain domain) {
  for (CUpti_CallbackId id = 0; id < NUM_CALLBACKS; id++)
    cuptiEnableCallback(is_on, subscriber, domain, id);
  return CUPTI_SUCCESS;
}
API CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  if (kind < NUM_KINDS) is_recorded[kind] = true;
  connect_driver();
  return CUPTI_SUCCESS;
}
API CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  if (kind < NUM_KINDS) is_recorded[kind] = false;
  connect_driver();
  return CUPTI_SUCCESS;
}
API CUptiResult cuptiActivityRegisterCallbacks(
    CUpti_BuffersCallbackRequestFunc new_request,
    CUpti_BuffersCallbackCompleteFunc new_complete) {
  request = new_request;
  complete = new_complete;
  return CUPTI_SUCCESS;
}
API CUptiResult cuptiActivityFlushAll(uint32_t flag) {
  (void)flag;
  pthread_mutex_lock(&mutex);
  Record *taken = records;
  size_t num = num_records;
  records = NULL;
  num_records = capacity = 0;
  pthread_mutex_unlock(&mutex);
  for (size_t i = 0; i < num && request;) {
    uint8_t *buffer = NULL;
    size_t size = 0, most = 0, used = 0;
    request(&buffer, &size, &most);
    if (!buffer || size < sizeof(Record)) break;
    for (size_t k = 0; i < num && (!most || k < most); i++, k++) {
      size_t record_bytes = record_size(taken[i].any.kind);
      if (used + record_bytes > size) break;
      memcpy(buffer + used, &taken[i], record_bytes);
      used += record_bytes;
    }
    complete(NULL, 0, buffer, size, used);
  }
  free(taken);
  return CUPTI_SUCCESS;
}
API CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid_bytes,
                                           CUpti_Activity **record) {
  uint8_t *next =
      *record ? (uint8_t *)*record + record_size((*record)->kind) : buffer;
  if (next >= buffer + valid_bytes) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = (CUpti_Activity *)next;
  return CUPTI_SUCCESS;
}
API CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context,
                                                  uint32_t stream,
                                                  size_t *num) {
  (void)context, (void)stream;
  *num = 0;
  return CUPTI_SUCCESS;
}
API CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute which,
                                          size_t *size, void *value) {
  (void)which, (void)size, (void)value;
  return CUPTI_SUCCESS;
}
API CUptiResult cuptiSetThreadIdType(CUpti_ActivityThreadIdType type) {
  (void)type;
  return CUPTI_SUCCESS;
}
API CUptiResult cuptiFinalize(void) {
  callback = NULL;
  memset(is_recorded, 0, sizeof is_recorded);
  connect_driver();
  return CUPTI_SUCCESS;
}
API CUptiResult cuptiGetDeviceId(CUcontext context, uint32_t *id) {
  CUdevice device = 0;
  cuCtxPushCurrent(context);
  cuCtxGetDevice(&device);
  cuCtxPopCurrent(NULL);
  *id = device;
  return CUPTI_SUCCESS;
}
API CUptiResult cuptiGetContextId(CUcontext context, uint32_t *id) {
  unsigned long long number = 0;
  cuCtxGetId(context, &number);
  *id = number;
  return CUPTI_SUCCESS;
}
API CUptiResult cuptiGetStreamIdEx(CUcontext context, CUstream stream,
                                   uint8_t is_per_thread, uint32_t *id) {
  (void)context, (void)is_per_thread;
  unsigned long long number = 0;
  cuStreamGetId(stream, &number);
  *id = number;
  return CUPTI_SUCCESS;
}
API CUptiResult cuptiGetGraphId(CUgraph graph, uint32_t *id) {
  (void)graph;
  *id = 0;
  return CUPTI_SUCCESS;
}
API CUptiResult cuptiGetGraphNodeId(CUgraphNode node, uint64_t *id) {
  (void)node;
  *id = 0;
  return CUPTI_SUCCESS;
}

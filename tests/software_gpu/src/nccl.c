// A small collectives library with NCCL's documented calls, on our driver.
//
// It is not NCCL, and its version text says so. A collective is one kernel with
// a name like NCCL's, which moves nothing: it holds its channels for a time
// that depends on bytes, channels and protocol. Ranks meet in shared memory
// named after the communicator's id, so all processes must be on one host.
//
// Like NCCL, it asks a tuner plugin (v4 to v7) before each collective, or once
// for those of similar size in a group, and follows NCCL_ALGO, NCCL_PROTO,
// NCCL_NVLS_ENABLE, NCCL_MIN_CTAS, NCCL_MAX_CTAS, NCCL_MAX_NCHANNELS and a
// communicator's config.
#include <cuda.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "software_gpu.h"

#define API __attribute__((visibility("default")))
// Numbers of NCCL's headers.
typedef enum {
  ncclSuccess,
  ncclUnhandledCudaError,
  ncclSystemError,
  ncclInternalError,
  ncclInvalidArgument,
  ncclInvalidUsage,
} ncclResult_t;
enum { VERSION = 23007 };  // 2.30.7
enum { NUM_ALGORITHMS = 7, NUM_PROTOCOLS = 3, NUM_CHANNELS = 24 };
enum { RING = 1, TREE = 0, NVLS = 4 };
enum { LL, LL128, SIMPLE };
enum { BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, SEND_RECV };
static const char *const algorithm_names[] = {
    "Tree", "Ring", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "PAT"};
static const char *const kernel_algorithms[] = {
    "TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN",
    "NVLS", "NVLS_TREE", "PAT"};
static const char *const protocol_names[] = {"LL", "LL128", "Simple"};
static const char *const kernel_protocols[] = {"LL", "LL128", "SIMPLE"};
static const char *const kernel_kinds[] = {
    "Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"};
static const char *const operations[] = {"Sum", "Prod", "Max", "Min", "Avg"};
static const struct {
  const char *name;
  int num_bytes;
} types[] = {{"i8", 1},  {"u8", 1},  {"i32", 4}, {"u32", 4}, {"i64", 8},
             {"u64", 8}, {"f16", 2}, {"f32", 4}, {"f64", 8}, {"bf16", 2},
             {"f8e4m3", 1}, {"f8e5m2", 1}};

typedef struct {
  char internal[128];
} ncclUniqueId;
typedef struct {
  size_t size;
  unsigned magic, version;
  int blocking, cga_cluster_size, min_ctas, max_ctas;
} ncclConfig_t;

// --- the tuner plugin, from nccl/plugin/nccl_tuner.h

typedef void (*Log)(int level, unsigned long flags, const char *file, int line,
                    const char *format, ...);
typedef struct {
  const char *name;
  int (*init)(size_t num_ranks, size_t num_nodes, Log log, void **context);
  int (*get_coll_info)(void *context, int kind, size_t num_bytes,
                       int num_pipe_ops, float **costs, int num_algorithms,
                       int num_protocols, int is_registered, int *num_channels);
  int (*finalize)(void *context);
} TunerV4;
typedef struct {
  const char *name;
  int (*init)(void **context, uint64_t communicator, size_t num_ranks,
              size_t num_nodes, Log log, void *nvlink_domain, void *constants);
  int (*get_coll_info)(void *context, int kind, size_t num_bytes,
                       int num_pipe_ops, float **costs, int num_algorithms,
                       int num_protocols, int is_registered, int *num_channels);
  int (*finalize)(void *context);
  // Since v6.
  int (*get_chunk_size)(void *context, int kind, size_t num_bytes,
                        int algorithm, int protocol, int num_channels,
                        size_t *chunk_bytes);
} TunerV6;

static struct {
  const TunerV4 *v4;
  const TunerV6 *since_v5;
  bool has_chunks;
} tuner;

static void say(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...) {
  const char *debug = getenv("NCCL_DEBUG");
  if (!debug || (strcasecmp(debug, "INFO") && strcasecmp(debug, "TRACE"))) return;
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  fprintf(stderr, "NCCL INFO %s\n", text);  // One call, as ranks are threads.
}
static void log_for_plugin(int level, unsigned long flags, const char *file,
                           int line, const char *format, ...) {
  (void)level, (void)flags, (void)file, (void)line;
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  say("%s", text);
}

static void load_tuner(void) {
  const char *name = getenv("NCCL_TUNER_PLUGIN");
  if (!name || !strcasecmp(name, "none")) return;
  char file[PATH_MAX];
  void *library = dlopen(name, RTLD_NOW);
  if (!library) {
    snprintf(file, sizeof file, "libnccl-tuner-%s.so", name);
    library = dlopen(file, RTLD_NOW);
  }
  if (!library) {
    say("TUNER/Plugin: Could not find: %s", name);
    return;
  }
  if ((tuner.since_v5 = dlsym(library, "ncclTunerPlugin_v7")) ||
      (tuner.since_v5 = dlsym(library, "ncclTunerPlugin_v6")))
    tuner.has_chunks = true;
  else if (!(tuner.since_v5 = dlsym(library, "ncclTunerPlugin_v5")))
    tuner.v4 = dlsym(library, "ncclTunerPlugin_v4");
  say("TUNER/Plugin: Using %s",
      tuner.since_v5 ? tuner.since_v5->name
      : tuner.v4     ? tuner.v4->name
                     : "no plugin, for want of a known interface");
}

// --- communicators

// Shared among the processes of a communicator.
enum { NUM_SPLITS = 256, MAX_RANKS = 64 };
typedef struct {
  SoftwareRanks ranks;
  _Atomic int num_joined;
  struct {
    _Atomic int num_said;
    int colors[MAX_RANKS], keys[MAX_RANKS];
  } splits[NUM_SPLITS];
} Shared;

typedef struct Known {
  SoftwareCollective collective;
  struct Known *next;
} Known;
typedef struct ncclComm {
  ncclUniqueId id;
  Shared *shared;
  int rank, num_ranks, device;
  int min_ctas, max_ctas;
  _Atomic uint64_t num_met;
  int num_splits;
  void *tuner_context;
  Known *known;
} *ncclComm_t;

static int limit(const char *name, int configured, int otherwise) {
  const char *value = getenv(name);
  if (value) return atoi(value);
  return configured > 0 ? configured : otherwise;
}

static ncclResult_t join(ncclComm_t *out, int num_ranks, ncclUniqueId id,
                         int rank, const ncclConfig_t *config) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, load_tuner);
  if (num_ranks > MAX_RANKS || rank < 0 || rank >= num_ranks)
    return ncclInvalidArgument;
  int file = shm_open(id.internal, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, sizeof(Shared))) return ncclSystemError;
  Shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                        MAP_SHARED, file, 0);
  close(file);
  if (shared == MAP_FAILED) return ncclSystemError;
  shared->ranks.num_ranks = num_ranks;
  if (++shared->num_joined == num_ranks) shm_unlink(id.internal);
  ncclComm_t comm = calloc(1, sizeof *comm);
  comm->id = id;
  comm->shared = shared;
  comm->rank = rank;
  comm->num_ranks = num_ranks;
  cuCtxGetDevice(&comm->device);
  comm->min_ctas = limit("NCCL_MIN_CTAS", config ? config->min_ctas : 0, 1);
  comm->max_ctas =
      limit("NCCL_MAX_CTAS", config ? config->max_ctas : 0, NUM_CHANNELS);
  int most = limit("NCCL_MAX_NCHANNELS", 0, NUM_CHANNELS);
  if (comm->max_ctas > most) comm->max_ctas = most;
  if (tuner.since_v5)
    tuner.since_v5->init(&comm->tuner_context, (uint64_t)(uintptr_t)comm,
                         num_ranks, 1, log_for_plugin, NULL, NULL);
  else if (tuner.v4)
    tuner.v4->init(num_ranks, 1, log_for_plugin, &comm->tuner_context);
  say("software GPU: rank %d of %d on device %d", rank, num_ranks,
      comm->device);
  *out = comm;
  return ncclSuccess;
}

API ncclResult_t ncclGetVersion(int *version) {
  *version = VERSION;
  return ncclSuccess;
}
API const char *ncclGetErrorString(ncclResult_t result) {
  return result ? "an error of the software GPU's collectives" : "no error";
}
API const char *ncclGetLastError(ncclComm_t comm) {
  (void)comm;
  return "";
}
API ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  static _Atomic unsigned next;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  memset(id, 0, sizeof *id);
  snprintf(id->internal, sizeof id->internal, "/software_gpu_%d_%ld%09ld_%u",
           getpid(), (long)now.tv_sec, now.tv_nsec, next++);
  return ncclSuccess;
}
API ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int num_ranks,
                                        ncclUniqueId id, int rank,
                                        ncclConfig_t *config) {
  return join(comm, num_ranks, id, rank, config);
}
API ncclResult_t ncclCommInitRank(ncclComm_t *comm, int num_ranks,
                                  ncclUniqueId id, int rank) {
  return join(comm, num_ranks, id, rank, NULL);
}
API ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int num_ranks,
                                          int rank, int num_ids,
                                          ncclUniqueId *ids,
                                          ncclConfig_t *config) {
  (void)num_ids;
  return join(comm, num_ranks, ids[0], rank, config);
}
API ncclResult_t ncclCommInitAll(ncclComm_t *comms, int num_devices,
                                 const int *devices) {
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  if (cuInit(0)) return ncclUnhandledCudaError;
  for (int rank = 0; rank < num_devices; rank++) {
    CUcontext context;
    if (cuDevicePrimaryCtxRetain(&context, devices ? devices[rank] : rank))
      return ncclInvalidArgument;
    cuCtxPushCurrent(context);
    ncclResult_t result = join(&comms[rank], num_devices, id, rank, NULL);
    cuCtxPopCurrent(NULL);
    if (result) return result;
  }
  return ncclSuccess;
}
API ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (tuner.since_v5)
    tuner.since_v5->finalize(comm->tuner_context);
  else if (tuner.v4)
    tuner.v4->finalize(comm->tuner_context);
  comm->tuner_context = NULL;
  return ncclSuccess;  // Graphs may still hold its collectives.
}
API ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return ncclCommDestroy(comm);
}
API ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  (void)comm;
  return ncclSuccess;
}
API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result) {
  (void)comm;
  *result = ncclSuccess;
  return ncclSuccess;
}
API ncclResult_t ncclCommCount(ncclComm_t comm, int *num) {
  *num = comm->num_ranks;
  return ncclSuccess;
}
API ncclResult_t ncclCommUserRank(ncclComm_t comm, int *rank) {
  *rank = comm->rank;
  return ncclSuccess;
}
API ncclResult_t ncclCommCuDevice(ncclComm_t comm, int *device) {
  *device = comm->device;
  return ncclSuccess;
}
API ncclResult_t ncclCommRegister(ncclComm_t comm, void *address, size_t size,
                                  void **handle) {
  (void)comm, (void)size;
  *handle = address;
  return ncclSuccess;
}
API ncclResult_t ncclCommDeregister(ncclComm_t comm, void *handle) {
  (void)comm, (void)handle;
  return ncclSuccess;
}
API ncclResult_t ncclMemAlloc(void **address, size_t size) {
  return cuMemAlloc((CUdeviceptr *)address, size) ? ncclUnhandledCudaError
                                                  : ncclSuccess;
}
API ncclResult_t ncclMemFree(void *address) {
  return cuMemFree((CUdeviceptr)address) ? ncclUnhandledCudaError
                                         : ncclSuccess;
}

// --- collectives

// Parameters of a collective's kernel by protocol: the least time of a message,
// and a channel's share of the link. Similar to NCCL's, but not fitted.
static const double latency_us[] = {6, 8, 12};
static const double channel_shares[] = {0.014, 0.045, 0.056};
static double link_gbps = 360;

__attribute__((constructor)) static void begin(void) {
  const char *value = getenv("SOFTWARE_GPU_LINK_GBPS");
  if (value) link_gbps = atof(value);
}

static bool is_named(const char *list, const char *name) {
  if (!list || !*list) return true;
  bool is_excluded = *list == '^';
  char copy[256];
  snprintf(copy, sizeof copy, "%s", list + is_excluded);
  bool is_found = false;
  for (char *rest = copy, *word; (word = strsep(&rest, ",;"));)
    is_found |= !strcasecmp(word, name);
  return is_found != is_excluded;
}

static bool is_available(int kind, int algorithm, int protocol) {
  if (!is_named(getenv("NCCL_ALGO"), algorithm_names[algorithm]) ||
      !is_named(getenv("NCCL_PROTO"), protocol_names[protocol]))
    return false;
  switch (algorithm) {
    case RING: return true;
    case TREE: return kind == ALL_REDUCE;
    case NVLS:
      return kind >= ALL_GATHER && protocol == SIMPLE &&
             limit("NCCL_NVLS_ENABLE", 0, 1);
    default: return false;
  }
}

static double wire_bytes(int kind, double num_bytes, int num_ranks) {
  double passes = kind == ALL_REDUCE ? 2 : 1;
  return num_bytes * passes * (num_ranks - 1) / num_ranks;
}

static double time_us(const struct ncclComm *comm, int kind, double num_bytes,
                      int algorithm, int protocol, int num_channels) {
  double share = num_channels * channel_shares[protocol];
  double bytes = wire_bytes(kind, num_bytes, comm->num_ranks);
  if (algorithm == NVLS) bytes /= 1.25;
  double gbps = link_gbps * (share < 1 ? share : 1);
  return latency_us[protocol] + bytes / gbps / 1e3;
}

// A collective to choose settings for and launch at the end of a group.
typedef struct {
  ncclComm_t comm;
  CUstream stream;
  int kind, type, operation;
  double num_bytes;
} Task;
typedef struct {
  ncclComm_t comm;
  CUstream stream;
  char kernel[96];
  int num_channels, num_threads;
  double time_us;
} Launch;
// A communicator to create at the end of a group.
typedef struct {
  ncclComm_t parent, *out;
  int number, color;
  ncclConfig_t config;
} Split;
static _Thread_local int group_depth;
static _Thread_local Task *tasks;
static _Thread_local Launch *launches;
static _Thread_local Split *splits;
static _Thread_local size_t num_tasks, num_launches, num_splits;

static ncclResult_t launch(const Launch *l) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&mutex);
  Known *known = l->comm->known;
  while (known && (known->collective.num_channels != l->num_channels ||
                   known->collective.time_ns != 1e3 * l->time_us))
    known = known->next;
  if (!known) {
    known = malloc(sizeof *known);
    known->collective =
        (SoftwareCollective){.ranks = &l->comm->shared->ranks,
                             .num_met = &l->comm->num_met,
                             .num_channels = l->num_channels,
                             .time_ns = 1e3 * l->time_us};
    known->next = l->comm->known;
    l->comm->known = known;
  }
  pthread_mutex_unlock(&mutex);
  CUcontext context;
  cuDevicePrimaryCtxRetain(&context, l->comm->device);
  cuCtxPushCurrent(context);
  CUresult result = software_gpu_collective(l->stream, l->kernel,
                                            l->num_threads, &known->collective);
  cuCtxPopCurrent(NULL);
  return result ? ncclUnhandledCudaError : ncclSuccess;
}

static ncclResult_t split(const Split *s) {
  Shared *shared = s->parent->shared;
  int slot = s->number % NUM_SPLITS;
  while (shared->splits[slot].num_said < s->parent->num_ranks)
    usleep(100);
  if (s->color < 0) {
    *s->out = NULL;
    return ncclSuccess;
  }
  int num_ranks = 0, rank = 0, key = shared->splits[slot].keys[s->parent->rank];
  for (int i = 0; i < s->parent->num_ranks; i++) {
    if (shared->splits[slot].colors[i] != s->color) continue;
    int other = shared->splits[slot].keys[i];
    num_ranks++;
    rank += other < key || (other == key && i < s->parent->rank);
  }
  ncclUniqueId id = s->parent->id;
  size_t used = strlen(id.internal);
  snprintf(id.internal + used, sizeof id.internal - used, "_%d_%d", s->number,
           s->color);
  return join(s->out, num_ranks, id, rank, &s->config);
}

static void add_launch(Launch l) {
  launches = realloc(launches, (num_launches + 1) * sizeof *launches);
  launches[num_launches++] = l;
}

// Chooses for arrays of similar size together, which share the result.
static ncclResult_t choose(const Task *task, int num_arrays) {
  ncclComm_t comm = task->comm;
  int kind = task->kind, most = comm->max_ctas;
  float table[NUM_ALGORITHMS][NUM_PROTOCOLS], *costs = &table[0][0];
  for (int a = 0; a < NUM_ALGORITHMS; a++)
    for (int p = 0; p < NUM_PROTOCOLS; p++)
      table[a][p] = is_available(kind, a, p)
                        ? time_us(comm, kind, task->num_bytes, a, p, most)
                        : -1;
  int num_channels = 0;
  if (comm->tuner_context) {
    int (*ask)(void *, int, size_t, int, float **, int, int, int, int *) =
        tuner.since_v5 ? tuner.since_v5->get_coll_info
                       : tuner.v4->get_coll_info;
    ask(comm->tuner_context, kind, task->num_bytes, 1, (float **)costs,
        NUM_ALGORITHMS, NUM_PROTOCOLS, 0, &num_channels);
  }
  int algorithm = -1, protocol = -1;
  for (int a = 0; a < NUM_ALGORITHMS; a++)
    for (int p = 0; p < NUM_PROTOCOLS; p++)
      if (table[a][p] >= 0 &&
          (algorithm < 0 || table[a][p] < table[algorithm][protocol]))
        algorithm = a, protocol = p;
  if (algorithm < 0) return ncclInvalidUsage;  // NCCL_ALGO excludes all.
  num_channels *= num_arrays;
  if (num_channels <= 0 || num_channels > most) num_channels = most;
  if (num_channels < comm->min_ctas) num_channels = comm->min_ctas;
  size_t chunk_bytes = 0;
  if (comm->tuner_context && tuner.has_chunks)
    tuner.since_v5->get_chunk_size(comm->tuner_context, kind,
                                   task->num_bytes / num_channels, algorithm,
                                   protocol, num_channels, &chunk_bytes);
  say("%s: %.0f Bytes -> Algo %s proto %s channel{Lo..Hi}={0..%d} chunk %zu",
      kernel_kinds[kind], task->num_bytes, algorithm_names[algorithm],
      protocol_names[protocol], num_channels - 1, chunk_bytes);
  Launch l = {.comm = comm, .stream = task->stream,
              .num_channels = num_channels,
              .num_threads = protocol == LL128 ? 640 : 512,
              .time_us = time_us(comm, kind, task->num_bytes, algorithm,
                                 protocol, num_channels)};
  bool reduces = kind != ALL_GATHER && kind != BROADCAST;
  if (reduces)
    snprintf(l.kernel, sizeof l.kernel, "ncclDevKernel_%s_%s_%s_%s_%s",
             kernel_kinds[kind], operations[task->operation],
             types[task->type].name, kernel_algorithms[algorithm],
             kernel_protocols[protocol]);
  else
    snprintf(l.kernel, sizeof l.kernel, "ncclDevKernel_%s_%s_%s",
             kernel_kinds[kind], kernel_algorithms[algorithm],
             kernel_protocols[protocol]);
  add_launch(l);
  return ncclSuccess;
}
static int by_size(const void *one, const void *other) {
  double a = ((const Task *)one)->num_bytes;
  double b = ((const Task *)other)->num_bytes;
  return (a > b) - (a < b);
}
// Runs of arrays less than four times as large as the run's first.
static ncclResult_t choose_all(void) {
  ncclResult_t result = ncclSuccess;
  if (num_tasks > 1) qsort(tasks, num_tasks, sizeof *tasks, by_size);
  for (size_t i = 0; i < num_tasks; i++) {
    Task run = tasks[i];
    if (!run.comm) continue;
    int num_arrays = 1;
    for (size_t k = i + 1; k < num_tasks; k++) {
      Task *other = &tasks[k];
      if (other->comm != run.comm || other->stream != run.stream ||
          other->kind != run.kind || other->type != run.type ||
          other->operation != run.operation ||
          other->num_bytes >= 4 * tasks[i].num_bytes)
        continue;
      run.num_bytes += other->num_bytes;
      num_arrays++;
      other->comm = NULL;
    }
    ncclResult_t each = choose(&run, num_arrays);
    if (each) result = each;
  }
  num_tasks = 0;
  return result;
}

API ncclResult_t ncclGroupStart(void) {
  group_depth++;
  return ncclSuccess;
}
API ncclResult_t ncclGroupEnd(void) {
  if (!group_depth) return ncclInvalidUsage;
  if (--group_depth) return ncclSuccess;
  ncclResult_t result = choose_all();
  // One kernel for each communicator and stream.
  for (size_t i = 0; i < num_launches; i++) {
    Launch *l = &launches[i];
    if (!l->comm) continue;
    for (size_t k = i + 1; k < num_launches; k++) {
      if (launches[k].comm != l->comm || launches[k].stream != l->stream)
        continue;
      l->time_us += launches[k].time_us;
      if (launches[k].num_channels > l->num_channels)
        l->num_channels = launches[k].num_channels;
      launches[k].comm = NULL;
    }
    ncclResult_t each = launch(l);
    if (each) result = each;
  }
  for (size_t i = 0; i < num_splits; i++) {
    ncclResult_t each = split(&splits[i]);
    if (each) result = each;
  }
  num_launches = num_splits = 0;
  return result;
}
API ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key,
                               ncclComm_t *out, ncclConfig_t *config) {
  ncclGroupStart();
  int number = comm->num_splits++, slot = number % NUM_SPLITS;
  comm->shared->splits[slot].colors[comm->rank] = color;
  comm->shared->splits[slot].keys[comm->rank] = key;
  comm->shared->splits[slot].num_said++;
  splits = realloc(splits, (num_splits + 1) * sizeof *splits);
  ncclConfig_t own = {.min_ctas = comm->min_ctas, .max_ctas = comm->max_ctas};
  splits[num_splits++] =
      (Split){comm, out, number, color, config ? *config : own};
  return ncclGroupEnd();
}

static ncclResult_t collective(int kind, size_t count, int type, int operation,
                               ncclComm_t comm, CUstream stream) {
  double num_bytes = (double)count * types[type].num_bytes;
  if (kind == ALL_GATHER || kind == REDUCE_SCATTER)
    num_bytes *= comm->num_ranks;
  ncclGroupStart();
  tasks = realloc(tasks, (num_tasks + 1) * sizeof *tasks);
  tasks[num_tasks++] =
      (Task){comm, stream, kind, type, operation, num_bytes};
  return ncclGroupEnd();
}
API ncclResult_t ncclAllReduce(const void *from, void *to, size_t count,
                               int type, int operation, ncclComm_t comm,
                               CUstream stream) {
  (void)from, (void)to;
  return collective(ALL_REDUCE, count, type, operation, comm, stream);
}
API ncclResult_t ncclReduce(const void *from, void *to, size_t count, int type,
                            int operation, int root, ncclComm_t comm,
                            CUstream stream) {
  (void)from, (void)to, (void)root;
  return collective(REDUCE, count, type, operation, comm, stream);
}
API ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count,
                                   int type, int operation, ncclComm_t comm,
                                   CUstream stream) {
  (void)from, (void)to;
  return collective(REDUCE_SCATTER, count, type, operation, comm, stream);
}
API ncclResult_t ncclAllGather(const void *from, void *to, size_t count,
                               int type, ncclComm_t comm, CUstream stream) {
  (void)from, (void)to;
  return collective(ALL_GATHER, count, type, 0, comm, stream);
}
API ncclResult_t ncclBroadcast(const void *from, void *to, size_t count,
                               int type, int root, ncclComm_t comm,
                               CUstream stream) {
  (void)from, (void)to, (void)root;
  return collective(BROADCAST, count, type, 0, comm, stream);
}
static ncclResult_t send(size_t count, int type, ncclComm_t comm,
                         CUstream stream) {
  double bytes = (double)count * types[type].num_bytes;
  Launch l = {.comm = comm, .stream = stream, .num_channels = 4,
              .num_threads = 512, .kernel = "ncclDevKernel_SendRecv",
              .time_us = bytes / link_gbps / 1e3};
  ncclGroupStart();
  add_launch(l);
  return ncclGroupEnd();
}
API ncclResult_t ncclSend(const void *from, size_t count, int type, int peer,
                          ncclComm_t comm, CUstream stream) {
  (void)from, (void)peer;
  return send(count, type, comm, stream);
}
API ncclResult_t ncclRecv(void *to, size_t count, int type, int peer,
                          ncclComm_t comm, CUstream stream) {
  (void)to, (void)peer, (void)count;
  return send(0, type, comm, stream);
}
API ncclResult_t ncclAlltoAll(const void *from, void *to, size_t count,
                              int type, ncclComm_t comm, CUstream stream) {
  (void)from, (void)to;
  return send(count * comm->num_ranks, type, comm, stream);
}

// --- symmetric memory, for XLA's own kernels

API ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *address,
                                        size_t size, void **window,
                                        int flags) {
  (void)comm, (void)size, (void)flags;
  *window = address;
  return ncclSuccess;
}
// Kernels read nothing, so a peer's memory may be the caller's own.
API ncclResult_t ncclGetPeerDevicePointer(void *window, size_t offset, int peer,
                                          void **address) {
  (void)peer;
  *address = (char *)window + offset;
  return ncclSuccess;
}
API ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, void *window) {
  (void)comm, (void)window;
  return ncclSuccess;
}

// --- unsupported functions

#define MISSING(name)                                   \
  API ncclResult_t name(void) {                         \
    if (getenv("SOFTWARE_GPU_LOG"))                     \
      fputs("software GPU: missing: " #name "\n", stderr); \
    return ncclInvalidUsage;                            \
  }
MISSING(ncclCommQueryProperties)
MISSING(ncclDevCommCreate)
MISSING(ncclDevCommDestroy)
MISSING(ncclGetLsaDevicePointer)
MISSING(ncclGetLsaMultimemDevicePointer)
MISSING(ncclCommShrink)
MISSING(ncclRedOpCreatePreMulSum)
MISSING(ncclRedOpDestroy)

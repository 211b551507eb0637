// Tasks in device time.
//
// Everything in a stream or a graph is a task. It starts when the tasks before
// it have ended, but not before it was submitted. Device time is wall time:
// each submission or query simulates it up to now, and so does a thread while
// anything runs. So starts and ends are exact, whenever they are simulated. A
// second thread calls host functions.
//
// A kernel takes its time on all SMs. While collectives hold some of them, it
// runs more slowly. A collective holds its channels from its start, and takes
// its time from the start of its last rank.
#include <math.h>
#include <time.h>

#include "driver.h"

struct Task {
  Work work;
  int references;
  size_t num_missing;  // Tasks before it that have not ended.
  Task **after;        // Tasks that wait for it.
  size_t num_after, after_capacity;
  uint64_t start_ns, end_ns;
  bool is_over;
  double left_ns;     // Of a kernel, on all SMs, at `since_ns`.
  uint64_t since_ns;
  uint64_t meeting;  // Of a collective.
  bool has_met;
  Task *next;  // In a queue.
};

#define UNKNOWN UINT64_MAX
// Ends within this time are simulated together. Also the interval for polling
// other processes and the host.
#define POLL_NS 100000

typedef struct {
  Task *first, *last;
} Queue;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;  // A task ended.
static pthread_cond_t runs = PTHREAD_COND_INITIALIZER;  // A task started.
static pthread_cond_t called = PTHREAD_COND_INITIALIZER;  // A host function is.
static uint64_t simulated_ns;
static Task **running;
static size_t num_running, capacity;
static Queue ready, host;
static int channels[MAX_DEVICES];
static bool has_threads;

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void push(Queue *queue, Task *task) {
  task->next = NULL;
  if (queue->last) queue->last->next = task; else queue->first = task;
  queue->last = task;
}

static Task *pop(Queue *queue) {
  Task *task = queue->first;
  if (task && !(queue->first = task->next)) queue->last = NULL;
  return task;
}

// --- work of tasks

static void *end_of(CUmemorytype type, const void *host_end, CUdeviceptr end) {
  return type == CU_MEMORYTYPE_HOST ? (void *)host_end : (void *)end;
}

// From CUpti_ActivityMemoryKind: pageable, pinned, device.
static int memory_kind(const void *address) {
  Memory memory;
  if (!find_memory((uintptr_t)address, &memory)) return 1;
  return memory.kind == MEMORY_HOST ? 2 : 3;
}

// Skips large copies within devices, which would fill the host's memory with
// meaningless numbers.
#define MOST_BYTES (16u << 20)

static size_t copy(const CUDA_MEMCPY3D *c, SoftwareRecord *record) {
  char *to = end_of(c->dstMemoryType, c->dstHost, c->dstDevice);
  char *from = end_of(c->srcMemoryType, c->srcHost, c->srcDevice);
  size_t height = c->Height ? c->Height : 1, depth = c->Depth ? c->Depth : 1;
  size_t num_bytes = c->WidthInBytes * height * depth;
  record->from_kind = memory_kind(from);
  record->to_kind = memory_kind(to);
  bool to_device = record->to_kind == 3, from_device = record->from_kind == 3;
  // From CUpti_ActivityMemcpyKind: within a device, or from or to the host.
  record->copy_kind = from_device ? to_device ? 8 : 2 : to_device ? 1 : 9;
  if (from_device && to_device && num_bytes > MOST_BYTES) return num_bytes;
  size_t to_pitch = c->dstPitch ? c->dstPitch : c->WidthInBytes;
  size_t from_pitch = c->srcPitch ? c->srcPitch : c->WidthInBytes;
  size_t to_slice = to_pitch * (c->dstHeight ? c->dstHeight : height);
  size_t from_slice = from_pitch * (c->srcHeight ? c->srcHeight : height);
  to += c->dstXInBytes + c->dstY * to_pitch + c->dstZ * to_slice;
  from += c->srcXInBytes + c->srcY * from_pitch + c->srcZ * from_slice;
  for (size_t z = 0; z < depth; z++)
    for (size_t y = 0; y < height; y++)
      memmove(to + z * to_slice + y * to_pitch,
              from + z * from_slice + y * from_pitch, c->WidthInBytes);
  return num_bytes;
}

static size_t set(const Work *w) {
  size_t height = w->set.height ? w->set.height : 1;
  size_t num_bytes = w->set.width * w->set.element_bytes * height;
  if (num_bytes > MOST_BYTES) return num_bytes;
  for (size_t y = 0; y < height; y++) {
    char *row = (char *)w->set.to + y * w->set.pitch;
    if (w->set.element_bytes == 1) memset(row, w->set.value, w->set.width);
    else if (w->set.element_bytes == 2)
      for (size_t x = 0; x < w->set.width; x++)
        ((uint16_t *)row)[x] = w->set.value;
    else
      for (size_t x = 0; x < w->set.width; x++)
        ((uint32_t *)row)[x] = w->set.value;
  }
  return num_bytes;
}

static bool is_there(const Work *w) {
  uint64_t value = 0, wanted = w->value.value;
  memcpy(&value, (void *)w->value.at, w->value.num_bytes);
  bool is_long = w->value.num_bytes == 8;
  int64_t over = is_long ? (int64_t)(value - wanted)
                         : (int32_t)((uint32_t)value - (uint32_t)wanted);
  switch (w->value.flags & 3) {
    case CU_STREAM_WAIT_VALUE_GEQ: return over >= 0;
    case CU_STREAM_WAIT_VALUE_EQ: return over == 0;
    case CU_STREAM_WAIT_VALUE_AND: return (value & wanted) != 0;
    default: return (is_long ? ~(value | wanted)
                             : (uint32_t)~(value | wanted)) != 0;
  }
}

static double kernel_ns(const Work *w) {
  CUfunction f = w->kernel.function;
  if (f->given_ns >= 0) return f->given_ns;
  double num_blocks = 1;
  for (int i = 0; i < 3; i++) num_blocks *= w->kernel.grid[i];
  double num_waves = ceil(num_blocks / NUM_SMS);
  return 1e3 * (settings.kernel_us + num_waves * settings.wave_us);
}

static SoftwareSink sink;
void trace_tasks(SoftwareSink new_sink) { sink = new_sink; }

static void tell(const Task *task, SoftwareRecord record) {
  const Work *w = &task->work;
  if (!sink) return;
  record.start_ns = task->start_ns;
  record.end_ns = task->end_ns;
  record.device = w->device;
  record.context = primary_context(w->device)->id;
  record.stream = w->stream;
  record.correlation = w->correlation;
  record.graph = w->graph;
  record.node = w->node;
  if (w->kind == TASK_KERNEL) {
    record.kind = RECORD_KERNEL;
    record.name = w->kernel.function->name;
    memcpy(record.grid, w->kernel.grid, sizeof record.grid);
    memcpy(record.block, w->kernel.block, sizeof record.block);
    record.shared_bytes = w->kernel.shared_bytes;
  }
  sink(&record);
}

// --- time

static bool is_plain_kernel(const Task *task) {
  return task->work.kind == TASK_KERNEL && !task->work.kernel.collective;
}

// The share of a device's SMs that collectives leave to kernels.
static double share_left(int device) {
  int held = channels[device] < NUM_SMS ? channels[device] : NUM_SMS - 1;
  return 1 - (double)held / NUM_SMS;
}

// Changes the number of held channels on a device from now on.
static void hold_channels(int device, int more) {
  for (size_t i = 0; i < num_running; i++) {
    Task *task = running[i];
    if (task->work.device != device || !is_plain_kernel(task)) continue;
    double rate = share_left(device);
    task->left_ns -= (simulated_ns - task->since_ns) * rate;
    if (task->left_ns < 0) task->left_ns = 0;
    task->since_ns = simulated_ns;
  }
  channels[device] += more;
  for (size_t i = 0; i < num_running; i++) {
    Task *task = running[i];
    if (task->work.device != device || !is_plain_kernel(task)) continue;
    double rate = share_left(device);
    if (isfinite(task->left_ns))
      task->end_ns = simulated_ns + (uint64_t)(task->left_ns / rate);
  }
}

static void start(Task *task) {
  const Work *w = &task->work;
  SoftwareRecord record = {0};
  double takes_ns = 0;
  task->start_ns = simulated_ns;
  task->end_ns = UNKNOWN;
  switch (w->kind) {
    case TASK_MARKER:
      break;
    case TASK_KERNEL:
      if (w->kernel.collective) {
        const SoftwareCollective *c = w->kernel.collective;
        SoftwareRanks *ranks = c->ranks;
        task->meeting = atomic_fetch_add(c->num_met, 1);
        size_t slot = task->meeting % SOFTWARE_NUM_MEETINGS;
        _Atomic uint64_t *latest_ns = &ranks->meetings[slot].latest_ns;
        uint64_t before_ns = *latest_ns;
        while (before_ns < simulated_ns &&
               !atomic_compare_exchange_weak(latest_ns, &before_ns,
                                             simulated_ns)) {}
        atomic_fetch_add(&ranks->meetings[slot].num_arrived, 1);
        hold_channels(w->device, c->num_channels);
        takes_ns = INFINITY;
      } else {
        task->left_ns = kernel_ns(w);
        task->since_ns = simulated_ns;
        takes_ns = task->left_ns / share_left(w->device);
      }
      break;
    case TASK_COPY:
      record.kind = RECORD_COPY;
      record.num_bytes = copy(&w->copy, &record);
      takes_ns = record.num_bytes / settings.copy_gbps;
      break;
    case TASK_SET:
      record.kind = RECORD_SET;
      record.num_bytes = set(w);
      break;
    case TASK_HOST:
      push(&host, task);
      takes_ns = INFINITY;
      break;
    case TASK_FREE:
      deallocate(w->freed);
      break;
    case TASK_WRITE:
      memcpy((void *)w->value.at, &w->value.value, w->value.num_bytes);
      break;
    case TASK_WAIT_VALUE:
      takes_ns = is_there(w) ? 0 : INFINITY;
      break;
  }
  if (isfinite(takes_ns)) task->end_ns = simulated_ns + (uint64_t)takes_ns;
  if (w->kind == TASK_COPY || w->kind == TASK_SET) tell(task, record);
  if (num_running == capacity)
    running = realloc(running,
                      (capacity = capacity ? 2 * capacity : 64) *
                          sizeof *running);
  running[num_running++] = task;
}

static void end(size_t position) {
  Task *task = running[position];
  running[position] = running[--num_running];
  task->is_over = true;
  task->end_ns = simulated_ns;
  if (task->work.kind == TASK_KERNEL) {
    const SoftwareCollective *c = task->work.kernel.collective;
    if (c) hold_channels(task->work.device, -c->num_channels);
    tell(task, (SoftwareRecord){0});
  }
  for (size_t i = 0; i < task->num_after; i++)
    if (!--task->after[i]->num_missing) push(&ready, task->after[i]);
  free(task->after);
  task->after = NULL;
  task->num_after = 0;
}

// Sets the end of collectives whose ranks have all arrived, and of waits for
// values that have been written.
static void meet(void) {
  for (size_t i = 0; i < num_running; i++) {
    Task *task = running[i];
    const Work *w = &task->work;
    if (w->kind == TASK_WAIT_VALUE && task->end_ns == UNKNOWN && is_there(w))
      task->end_ns = simulated_ns;
    if (w->kind != TASK_KERNEL || !w->kernel.collective || task->has_met)
      continue;
    const SoftwareCollective *c = w->kernel.collective;
    SoftwareRanks *ranks = c->ranks;
    size_t slot = task->meeting % SOFTWARE_NUM_MEETINGS;
    uint64_t round = task->meeting / SOFTWARE_NUM_MEETINGS;
    if (ranks->meetings[slot].num_arrived < (round + 1) * ranks->num_ranks)
      continue;
    task->has_met = true;
    uint64_t ends_ns =
        ranks->meetings[slot].latest_ns + (uint64_t)c->time_ns;
    task->end_ns = ends_ns > simulated_ns ? ends_ns : simulated_ns;
  }
}

static size_t first_to_end(void) {
  size_t first = num_running;
  for (size_t i = 0; i < num_running; i++)
    if (running[i]->end_ns != UNKNOWN &&
        (first == num_running || running[i]->end_ns < running[first]->end_ns))
      first = i;
  return first;
}

static void simulate(void) {
  uint64_t until_ns = now_ns();
  bool has_changed = false;
  for (;;) {
    for (Task *task; (task = pop(&ready));) start(task);
    meet();
    size_t first = first_to_end();
    if (first == num_running || running[first]->end_ns > until_ns) break;
    Task *task = running[first];
    if (task->end_ns > simulated_ns) simulated_ns = task->end_ns;
    end(first);
    release(task);
    has_changed = true;
  }
  if (until_ns > simulated_ns) simulated_ns = until_ns;
  if (has_changed) pthread_cond_broadcast(&changed);
  if (host.first) pthread_cond_signal(&called);
  if (num_running) pthread_cond_signal(&runs);
}

// Time until the next poll of other processes or the host. A wait for a
// collective's ranks may notice the last one late, by a part of the
// collective's time.
static uint64_t next_look_ns(void) {
  uint64_t soonest_ns = UNKNOWN;
  for (size_t i = 0; i < num_running; i++) {
    const Work *w = &running[i]->work;
    if (running[i]->end_ns != UNKNOWN || w->kind == TASK_HOST) continue;
    uint64_t look_ns = POLL_NS;
    if (w->kind == TASK_KERNEL && w->kernel.collective)
      look_ns = (uint64_t)w->kernel.collective->time_ns / 4;
    if (look_ns < soonest_ns) soonest_ns = look_ns;
  }
  return soonest_ns == UNKNOWN ? UNKNOWN : simulated_ns + soonest_ns;
}

static void *keep_simulating(void *unused) {
  (void)unused;
  pthread_mutex_lock(&mutex);
  for (;;) {
    simulate();
    size_t first = first_to_end();
    uint64_t next_ns = next_look_ns();
    if (first < num_running && running[first]->end_ns < next_ns)
      next_ns = running[first]->end_ns;
    if (next_ns != UNKNOWN) {
      if (next_ns < simulated_ns + POLL_NS) next_ns = simulated_ns + POLL_NS;
      struct timespec t = {next_ns / 1000000000ull, next_ns % 1000000000ull};
      pthread_mutex_unlock(&mutex);
      clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &t, NULL);
      pthread_mutex_lock(&mutex);
    } else {
      pthread_cond_wait(&runs, &mutex);
    }
  }
  return NULL;
}

static void *call_host_functions(void *unused) {
  (void)unused;
  pthread_mutex_lock(&mutex);
  for (;;) {
    Task *task = pop(&host);
    if (!task) {
      pthread_cond_wait(&called, &mutex);
      continue;
    }
    pthread_mutex_unlock(&mutex);
    task->work.host.call(task->work.host.data);
    pthread_mutex_lock(&mutex);
    simulate();
    task->end_ns = simulated_ns;
    simulate();
  }
  return NULL;
}

static void start_thread(void *(*run)(void *)) {
  pthread_t thread;
  pthread_create(&thread, NULL, run, NULL);
  pthread_detach(thread);
}

// --- interface

void retain(Task *task) {
  if (task) __atomic_add_fetch(&task->references, 1, __ATOMIC_SEQ_CST);
}

void release(Task *task) {
  if (task && !__atomic_sub_fetch(&task->references, 1, __ATOMIC_SEQ_CST))
    free(task);
}

Task *submit(const Work *work, Task *const *before, size_t num_before) {
  Task *task = calloc(1, sizeof *task);
  task->work = *work;
  task->references = 2;  // The caller's, and its own until it ends.
  pthread_mutex_lock(&mutex);
  simulate();
  for (size_t i = 0; i < num_before; i++) {
    Task *other = before[i];
    if (!other || other->is_over) continue;
    task->num_missing++;
    if (other->num_after == other->after_capacity)
      other->after = realloc(
          other->after, (other->after_capacity = 2 * other->after_capacity + 2) *
                            sizeof *other->after);
    other->after[other->num_after++] = task;
  }
  if (!task->num_missing) {
    push(&ready, task);
    simulate();
  }
  if (!has_threads) {
    has_threads = true;
    start_thread(keep_simulating);
    start_thread(call_host_functions);
  }
  pthread_mutex_unlock(&mutex);
  return task;
}

bool has_ended(Task *task) { return !task || end_ns(task); }

uint64_t end_ns(Task *task) {
  pthread_mutex_lock(&mutex);
  simulate();
  uint64_t ns = task->is_over ? task->end_ns : 0;
  pthread_mutex_unlock(&mutex);
  return ns;
}

void wait_for(Task *task) {
  if (!task) return;
  pthread_mutex_lock(&mutex);
  for (simulate(); !task->is_over; simulate())
    pthread_cond_wait(&changed, &mutex);
  pthread_mutex_unlock(&mutex);
}

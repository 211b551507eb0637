// Copyright 2026 The lagom_xla Authors.
// SPDX-License-Identifier: Apache-2.0
//
// A NCCL tuner plugin that follows a table of rules.
//
// NCCL asks a tuner before each collective. This one looks the answer up in a
// file mapped into memory, in which table.py writes rules: (ranks, nodes,
// collective, range of bytes) -> algorithm, protocol, channels, chunk size. The
// answer depends on nothing else, so all ranks with the same table answer
// alike; ranks that do not would hang. If no rule matches, or the table is
// missing, foreign, torn or truncated, NCCL makes its own choice. No call ever
// returns an error.
//
// One library serves four interfaces: v4 (NCCL 2.24), v5 (2.28), v6 (2.30.3,
// the first that lets a tuner set the chunk size) and v7 (2.32.6, which is v6
// but passes init the constants of one more GPU architecture). The types below
// follow NCCL's src/include/plugin/tuner/tuner_v{4,5,6,7}.h; the build needs
// neither NCCL nor CUDA.
//
// Environment, read when the first communicator starts:
//   LAGOM_XLA_NCCL_TABLE     the table's path; without it nothing is tuned
//   LAGOM_XLA_NCCL_CHECKSUM  refuse tables with another checksum (16 hex
//                            digits), such as an old copy on one node
//   LAGOM_XLA_NCCL_LOG       1: log each choice through NCCL (NCCL_DEBUG=INFO)
//
// The file, little-endian, in pages of 4096 bytes:
//   page 0      magic u64, format u32, capacity u32, version u64; at byte 64
//               two slots of (version u64, number of rules u64, checksum u64)
//   then        two slots of `capacity` rules of 32 bytes (struct Rule)
//   next page   two slots of `capacity` counters (struct Counter), kept here
// The lowest bit of `version` selects the valid slot. A writer fills the other
// slot and then stores the next version, so a reader finds the old table or the
// new one, and can detect a mixture.

#define _POSIX_C_SOURCE 200809L
#define _DEFAULT_SOURCE  // MAP_ANONYMOUS

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

// NCCL's numbers (src/include/nccl_common.h, plugin/nccl_tuner.h).
enum { SUCCESS = 0 };
enum { LOG_WARN = 2, LOG_INFO = 3 };
enum { SUBSYSTEMS = 1 | 64 };  // INIT, shown by default, and TUNING.
enum { BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, NUM_KINDS };
enum { TREE, RING, NVLS = 4, NVLS_TREE, PAT };
enum { LL, LL128, SIMPLE, NUM_PROTOCOLS };
enum { MAX_CHANNELS = 64 };

typedef void (*LogFunction)(int level, unsigned long flags, const char* file,
                            int line, const char* format, ...);

// The file.
enum { PAGE = 4096, SLOTS_AT = 64, FORMAT = 1, MAX_CAPACITY = 4096 };
#define MAGIC UINT64_C(0x636e616d6f67616c)  // "lagomanc" as bytes.

typedef struct {
  uint64_t magic;
  uint32_t format;
  uint32_t capacity;
  uint64_t version;
} Header;

typedef struct {
  uint64_t version;
  uint64_t num_rules;
  uint64_t checksum;
} Slot;

typedef struct {
  uint32_t num_ranks;
  uint32_t num_nodes;
  uint64_t min_bytes;
  uint64_t max_bytes;
  uint8_t kind;
  uint8_t algorithm;
  uint8_t protocol;
  uint8_t num_channels;  // 0: NCCL's own.
  uint32_t chunk_bytes;  // 0: NCCL's own.
} Rule;

typedef struct {
  uint64_t num_applied;
  uint64_t num_unavailable;  // NCCL cannot or must not run the pair.
  uint64_t num_chunks;       // Chunk sizes set, several for each collective.
} Counter;

enum { RULE_WORDS = sizeof(Rule) / sizeof(uint64_t) };
_Static_assert(sizeof(Rule) == 32, "as table.py writes it");
_Static_assert(sizeof(Counter) == 24, "as table.py reads it");

// The mapped table, which all communicators of the process share.
static struct {
  pthread_mutex_t lock;
  int num_users;
  char* base;
  size_t size;
  uint32_t capacity;
  Counter* counters;  // In the file, or private where it cannot be written.
  int has_private_counters;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

// The decision for a collective whose chunk size NCCL will still ask for.
typedef struct {
  uint64_t num_bytes;
  uint32_t chunk_bytes;
  uint8_t algorithm;
  uint8_t protocol;
  Counter* counter;
} Decision;

enum { MAX_DECISIONS = 16 };

typedef struct {
  Decision decisions[MAX_DECISIONS];
  unsigned num_decisions;
  int is_launched;
} Group;

// A communicator. NCCL calls it from one thread at a time.
typedef struct {
  size_t num_ranks;
  size_t num_nodes;
  LogFunction log;
  int logs_choices;
  uint64_t version;  // Of the table that `rules` come from.
  uint32_t num_rules;
  Rule* rules;          // Those for this communicator, by kind and bytes.
  Counter** counters;   // Of each of them.
  Group groups[NUM_KINDS];
} Tuner;

#define LOG(tuner, level, ...)                                       \
  do {                                                               \
    if ((tuner)->log != NULL)                                        \
      (tuner)->log(level, SUBSYSTEMS, "lagom_xla", __LINE__,         \
                   "TUNER/lagom_xla: " __VA_ARGS__);                 \
  } while (0)

static const char* const kKinds[] = {"broadcast", "reduce", "all-gather",
                                     "reduce-scatter", "all-reduce"};
static const char* const kAlgorithms[] = {"tree", "ring",     "", "",
                                          "nvls", "nvlstree", "pat"};
static const char* const kProtocols[] = {"ll", "ll128", "simple"};

// Survives a file that is truncated while it is mapped.

static struct sigaction previous_action;

// Replaces the lost pages by zeros, which are not a table.
static void on_bus_error(int number, siginfo_t* info, void* context) {
  int error = errno;
  char* base = __atomic_load_n(&table.base, __ATOMIC_ACQUIRE);
  size_t offset = (uintptr_t)info->si_addr - (uintptr_t)base;
  if (base != NULL && offset < table.size &&
      mmap(base, table.size, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED) {
    errno = error;
    return;
  }
  errno = error;
  if (previous_action.sa_flags & SA_SIGINFO) {
    previous_action.sa_sigaction(number, info, context);
  } else if (previous_action.sa_handler != SIG_DFL &&
             previous_action.sa_handler != SIG_IGN) {
    previous_action.sa_handler(number);
  } else {
    sigaction(number, &previous_action, NULL);
    raise(number);
  }
}

// The library is never unloaded (-z nodelete), so the handler may stay.
static void guard_mapping(void) {
  static int is_guarded = 0;
  if (is_guarded) return;
  struct sigaction action = {.sa_sigaction = on_bus_error,
                             .sa_flags = SA_SIGINFO | SA_ONSTACK};
  sigemptyset(&action.sa_mask);
  is_guarded = sigaction(SIGBUS, &action, &previous_action) == 0;
}

// Reading the file.

static uint64_t load(const uint64_t* word) {
  return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static uint64_t table_version(void) {
  if (table.base == NULL) return 0;
  return __atomic_load_n(&((Header*)table.base)->version, __ATOMIC_ACQUIRE);
}

static const Slot* slot_of(uint64_t version) {
  return (const Slot*)(table.base + SLOTS_AT) + (version & 1);
}

static size_t pages(size_t num_bytes) {
  return (num_bytes + PAGE - 1) / PAGE * PAGE;
}

static size_t counters_offset(size_t capacity) {
  return PAGE + pages(2 * capacity * sizeof(Rule));
}

// Each step is invertible, so that a change of one word always shows.
static uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
  return hash ^ hash >> 32;
}

static int is_usable(const Rule* rule) {
  const unsigned algorithms = 1u << TREE | 1u << RING | 1u << NVLS |
                              1u << NVLS_TREE | 1u << PAT;
  return rule->kind < NUM_KINDS && rule->algorithm <= PAT &&
         (algorithms >> rule->algorithm & 1) &&
         rule->protocol < NUM_PROTOCOLS &&
         rule->num_channels <= MAX_CHANNELS && rule->min_bytes > 0 &&
         rule->min_bytes <= rule->max_bytes;
}

// Whether a rule comes after another one and shares no size with it.
static int is_after(const Rule* rule, const Rule* last) {
  if (rule->num_ranks != last->num_ranks)
    return rule->num_ranks > last->num_ranks;
  if (rule->num_nodes != last->num_nodes)
    return rule->num_nodes > last->num_nodes;
  if (rule->kind != last->kind) return rule->kind > last->kind;
  return rule->min_bytes > last->max_bytes;
}

// Copies this communicator's rules; returns whether the slot is complete.
static int copy_rules(Tuner* tuner, uint64_t version) {
  const Slot* slot = slot_of(version);
  const uint64_t* words =
      (const uint64_t*)(table.base + PAGE) +
      (version & 1) * table.capacity * RULE_WORDS;
  uint64_t num_rules = load(&slot->num_rules);
  tuner->num_rules = 0;
  if (load(&slot->version) != version || num_rules > table.capacity) return 0;
  uint64_t hash = mix(mix(0, version), num_rules);
  Rule last = {0};
  for (uint64_t i = 0; i < num_rules; ++i) {
    uint64_t copy[RULE_WORDS];
    Rule rule;
    for (int j = 0; j < RULE_WORDS; ++j) {
      copy[j] = load(words++);
      hash = mix(hash, copy[j]);
    }
    memcpy(&rule, copy, sizeof(rule));
    if (!is_usable(&rule) || (i > 0 && !is_after(&rule, &last))) return 0;
    last = rule;
    if (rule.num_ranks != tuner->num_ranks) continue;
    if (rule.num_nodes != tuner->num_nodes) continue;
    tuner->rules[tuner->num_rules] = rule;
    tuner->counters[tuner->num_rules++] =
        table.counters == NULL
            ? NULL
            : table.counters + (version & 1) * table.capacity + i;
  }
  return hash == load(&slot->checksum);
}

// Reads the current table, if it changed since the last time.
static void follow(Tuner* tuner) {
  uint64_t version = table_version();
  if (version == tuner->version) return;
  int is_whole = 0;
  for (int attempt = 0; attempt < 8; ++attempt) {
    is_whole = version != 0 && copy_rules(tuner, version);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    uint64_t now = table_version();
    if (now == version) break;
    version = now;
    is_whole = 0;
  }
  if (!is_whole) tuner->num_rules = 0;
  tuner->version = version;
  if (is_whole) {
    LOG(tuner, LOG_INFO,
        "table version %llu has %u rules for %zu ranks on %zu nodes",
        (unsigned long long)version, tuner->num_rules, tuner->num_ranks,
        tuner->num_nodes);
  } else {
    LOG(tuner, LOG_WARN, "the table is damaged; NCCL uses its own choices");
  }
}

// Returns why a file is not a table for this process, or NULL.
static const char* defect(size_t size) {
  const Header* header = (const Header*)table.base;
  if (header->magic != MAGIC) return "it is not a table of lagom_xla";
  if (header->format != FORMAT) return "another version of lagom_xla wrote it";
  uint32_t capacity = __atomic_load_n(&header->capacity, __ATOMIC_RELAXED);
  if (capacity == 0 || capacity > MAX_CAPACITY ||
      size != counters_offset(capacity) +
                  pages(2 * capacity * sizeof(Counter))) {
    return "its size does not match its header";
  }
  table.capacity = capacity;
  const char* expected = getenv("LAGOM_XLA_NCCL_CHECKSUM");
  if (expected != NULL && *expected != '\0') {
    char checksum[17];
    snprintf(checksum, sizeof(checksum), "%016llx",
             (unsigned long long)load(&slot_of(table_version())->checksum));
    if (strcmp(checksum, expected) != 0)
      return "its checksum differs from LAGOM_XLA_NCCL_CHECKSUM";
  }
  return NULL;
}

static void unmap_table(void) {
  char* base = table.base;
  __atomic_store_n(&table.base, NULL, __ATOMIC_RELEASE);
  if (base != NULL) munmap(base, table.size);
  if (table.has_private_counters) free(table.counters);
  table.counters = NULL;
  table.has_private_counters = 0;
}

// Maps the file; returns what is wrong with it, or NULL.
static const char* map_table(const char* path) {
  int is_writable = 1;
  int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) {
    is_writable = 0;
    file = open(path, O_RDONLY | O_CLOEXEC);
  }
  if (file < 0) return strerror(errno);
  off_t size = lseek(file, 0, SEEK_END);
  if (size < PAGE) {
    close(file);
    return "it is too short to be a table";
  }
  char* base = mmap(NULL, (size_t)size,
                    is_writable ? PROT_READ | PROT_WRITE : PROT_READ,
                    MAP_SHARED, file, 0);
  close(file);
  if (base == MAP_FAILED) return "it cannot be mapped";
  table.size = (size_t)size;
  __atomic_store_n(&table.base, base, __ATOMIC_RELEASE);
  guard_mapping();
  const char* reason = defect((size_t)size);
  if (reason != NULL) {
    unmap_table();
    return reason;
  }
  table.has_private_counters = !is_writable;
  table.counters = is_writable
                       ? (Counter*)(base + counters_offset(table.capacity))
                       : calloc(2 * table.capacity, sizeof(Counter));
  return NULL;
}

static void open_table(Tuner* tuner) {
  const char* path = getenv("LAGOM_XLA_NCCL_TABLE");
  if (path == NULL || *path == '\0') {
    LOG(tuner, LOG_INFO,
        "LAGOM_XLA_NCCL_TABLE is not set; NCCL uses its own choices");
    return;
  }
  const char* reason = map_table(path);
  if (reason != NULL) {
    LOG(tuner, LOG_WARN, "%s is not used: %s; NCCL uses its own choices", path,
        reason);
  } else {
    LOG(tuner, LOG_INFO, "using %s", path);
  }
}

// A communicator's life.

static int finalize(void* context);

static int init(void** context, size_t num_ranks, size_t num_nodes,
                LogFunction log) {
  if (context == NULL) return SUCCESS;
  Tuner* tuner = calloc(1, sizeof(Tuner));
  *context = tuner;
  if (tuner == NULL) return SUCCESS;
  tuner->num_ranks = num_ranks;
  tuner->num_nodes = num_nodes;
  tuner->log = log;
  const char* logs = getenv("LAGOM_XLA_NCCL_LOG");
  tuner->logs_choices = logs != NULL && strcmp(logs, "1") == 0;

  pthread_mutex_lock(&table.lock);
  if (table.num_users++ == 0) open_table(tuner);
  pthread_mutex_unlock(&table.lock);
  if (table.base == NULL) return SUCCESS;

  tuner->rules = calloc(table.capacity, sizeof(Rule));
  tuner->counters = calloc(table.capacity, sizeof(Counter*));
  if (tuner->rules == NULL || tuner->counters == NULL) {
    finalize(tuner);
    *context = NULL;
    return SUCCESS;
  }
  follow(tuner);
  return SUCCESS;
}

static int init_v4(size_t num_ranks, size_t num_nodes, LogFunction log,
                   void** context) {
  return init(context, num_ranks, num_nodes, log);
}

static int init_v5(void** context, uint64_t communicator_id, size_t num_ranks,
                   size_t num_nodes, LogFunction log, void* nvlink_domains,
                   void* constants) {
  (void)communicator_id, (void)nvlink_domains, (void)constants;
  return init(context, num_ranks, num_nodes, log);
}

static void log_counters(const Tuner* tuner) {
  for (uint32_t i = 0; i < tuner->num_rules; ++i) {
    const Rule* rule = &tuner->rules[i];
    const Counter* counter = tuner->counters[i];
    if (counter == NULL) continue;
    LOG(tuner, LOG_INFO,
        "%s of %llu to %llu bytes over %u ranks on %u nodes: applied %llu"
        " times, unavailable %llu times",
        kKinds[rule->kind], (unsigned long long)rule->min_bytes,
        (unsigned long long)rule->max_bytes, rule->num_ranks, rule->num_nodes,
        (unsigned long long)load(&counter->num_applied),
        (unsigned long long)load(&counter->num_unavailable));
  }
}

static int finalize(void* context) {
  Tuner* tuner = context;
  if (tuner == NULL) return SUCCESS;
  log_counters(tuner);
  free(tuner->rules);
  free(tuner->counters);
  free(tuner);
  pthread_mutex_lock(&table.lock);
  if (--table.num_users == 0) unmap_table();
  pthread_mutex_unlock(&table.lock);
  return SUCCESS;
}

// NCCL's questions.

static int find_rule(const Tuner* tuner, int kind, uint64_t num_bytes) {
  uint32_t low = 0, high = tuner->num_rules;  // The first that comes after.
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    const Rule* rule = &tuner->rules[middle];
    if (rule->kind > kind ||
        (rule->kind == kind && rule->min_bytes > num_bytes)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  if (low == 0) return -1;
  const Rule* rule = &tuner->rules[low - 1];
  if (rule->kind != kind || rule->max_bytes < num_bytes) return -1;
  return (int)low - 1;
}

static void count(uint64_t* number) {
  __atomic_fetch_add(number, 1, __ATOMIC_RELAXED);
}

static void remember(Group* group, const Rule* rule, Counter* counter,
                     uint64_t num_bytes) {
  group->decisions[group->num_decisions++ % MAX_DECISIONS] = (Decision){
      .num_bytes = num_bytes,
      .chunk_bytes = rule->chunk_bytes,
      .algorithm = rule->algorithm,
      .protocol = rule->protocol,
      .counter = counter,
  };
}

// NCCL runs the pair with the least time in the table of costs, in which a
// negative one means that it cannot run. Only the chosen cell is changed, and
// only if it can run: NCCL 2.31 and later would read -1 as the least.
static int get_coll_info(void* context, int kind, size_t num_bytes,
                         int num_pipe_ops, float** costs, int num_algorithms,
                         int num_protocols, int has_registered_buffers,
                         int* num_channels) {
  (void)num_pipe_ops, (void)has_registered_buffers;
  Tuner* tuner = context;
  if (tuner == NULL || costs == NULL || kind < 0 || kind >= NUM_KINDS)
    return SUCCESS;
  follow(tuner);
  Group* group = &tuner->groups[kind];
  if (group->is_launched) {
    group->is_launched = 0;
    group->num_decisions = 0;
  }
  int found = find_rule(tuner, kind, num_bytes);
  if (found < 0) return SUCCESS;
  const Rule* rule = &tuner->rules[found];
  Counter* counter = tuner->counters[found];
  // It is one array, though declared float** (src/plugin/tuner/tuner_v*.cc).
  float* cell = NULL;
  if (rule->algorithm < num_algorithms && rule->protocol < num_protocols)
    cell = (float*)costs + rule->algorithm * num_protocols + rule->protocol;
  if (cell == NULL || !(*cell >= 0.0f)) {
    if (counter != NULL) count(&counter->num_unavailable);
    return SUCCESS;
  }
  *cell = 0.0f;
  if (rule->num_channels != 0 && num_channels != NULL)
    *num_channels = rule->num_channels;
  if (rule->chunk_bytes != 0) remember(group, rule, counter, num_bytes);
  if (counter != NULL) count(&counter->num_applied);
  if (tuner->logs_choices) {
    LOG(tuner, LOG_INFO, "%s of %zu bytes: %s/%s, %d channels", kKinds[kind],
        num_bytes, kAlgorithms[rule->algorithm], kProtocols[rule->protocol],
        rule->num_channels);
  }
  return SUCCESS;
}

// The largest chunk with NCCL's default buffers (calcCollChunking in
// src/enqueue.cc). NVLS could have 512 KiB, but NCCL uses 128 KiB, and more is
// not known to be correct.
static uint32_t max_chunk_bytes(int kind, int algorithm, int protocol) {
  if (protocol == LL) return 32768;
  if (protocol == LL128) return 576000;
  if (algorithm == NVLS || algorithm == NVLS_TREE) return 131072;
  if (algorithm == RING && kind >= ALL_GATHER) return 2097152;
  return 524288;
}

// Called after a group's collectives were decided, once for each part of each,
// with the part's bytes: a channel's share. It belongs to the decision with the
// fewest bytes that it fits in. NCCL divides by the chunk in whole grains, so
// less than a grain would crash the process.
static int get_chunk_size(void* context, int kind, size_t num_bytes,
                          int algorithm, int protocol, int num_channels,
                          size_t* chunk_bytes) {
  static const uint32_t kGrainBytes[] = {16, 1920, 512};
  (void)num_channels;
  Tuner* tuner = context;
  if (tuner == NULL || chunk_bytes == NULL || kind < 0 || kind >= NUM_KINDS ||
      protocol < 0 || protocol >= NUM_PROTOCOLS)
    return SUCCESS;
  Group* group = &tuner->groups[kind];
  group->is_launched = 1;
  unsigned num_decisions = group->num_decisions < MAX_DECISIONS
                               ? group->num_decisions
                               : MAX_DECISIONS;
  const Decision* least = NULL;
  for (unsigned i = 0; i < num_decisions; ++i) {
    const Decision* decision = &group->decisions[i];
    if (decision->algorithm == algorithm && decision->protocol == protocol &&
        decision->num_bytes >= num_bytes &&
        (least == NULL || decision->num_bytes < least->num_bytes))
      least = decision;
  }
  if (least == NULL) return SUCCESS;
  size_t grain = kGrainBytes[protocol];
  size_t limit = max_chunk_bytes(kind, algorithm, protocol);
  if (*chunk_bytes > limit) limit = *chunk_bytes;  // NCCL itself uses more.
  size_t chunk = least->chunk_bytes < limit ? least->chunk_bytes : limit;
  chunk -= chunk % grain;
  *chunk_bytes = chunk < grain ? grain : chunk;
  if (least->counter != NULL) count(&least->counter->num_chunks);
  if (tuner->logs_choices) {
    LOG(tuner, LOG_INFO, "%s, %zu bytes per channel: chunks of %zu bytes",
        kKinds[kind], num_bytes, *chunk_bytes);
  }
  return SUCCESS;
}

// The interfaces.

typedef int (*GetCollInfo)(void*, int, size_t, int, float**, int, int, int,
                           int*);
typedef int (*InitV5)(void**, uint64_t, size_t, size_t, LogFunction, void*,
                      void*);

EXPORT const struct {
  const char* name;
  int (*init)(size_t, size_t, LogFunction, void**);
  GetCollInfo get_coll_info;
  int (*destroy)(void*);
} ncclTunerPlugin_v4 = {"lagom_xla", init_v4, get_coll_info, finalize};

EXPORT const struct {
  const char* name;
  InitV5 init;
  GetCollInfo get_coll_info;
  int (*finalize)(void*);
} ncclTunerPlugin_v5 = {"lagom_xla", init_v5, get_coll_info, finalize};

typedef struct {
  const char* name;
  InitV5 init;
  GetCollInfo get_coll_info;
  int (*finalize)(void*);
  int (*get_chunk_size)(void*, int, size_t, int, int, int, size_t*);
} TunerV6;

EXPORT const TunerV6 ncclTunerPlugin_v6 = {"lagom_xla", init_v5, get_coll_info,
                                           finalize, get_chunk_size};

EXPORT const TunerV6 ncclTunerPlugin_v7 = {"lagom_xla", init_v5, get_coll_info,
                                           finalize, get_chunk_size};

#ifdef LAGOM_XLA_SOURCE
// Lets build.py see whether a library was built from this source.
EXPORT const char lagom_xla_source[] = "lagom_xla source " LAGOM_XLA_SOURCE;
#endif

// Copyright 2026 The lagom_xla Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Calls the NCCL tuner plugin like NCCL, and damages its table.
// nccl_plugin_process_test.py compiles and runs this, also with sanitizers.
//
//   driver PLUGIN fuzz TABLE NUM_MUTATIONS SEED
//     Changes words of a table in use, shortens it, and starts from damaged
//     ones. Fails if any answer is out of range.
//   driver PLUGIN follow TABLE SECONDS
//     Asks about one collective continuously, from two threads, while another
//     process switches the table. Prints how often each number of channels was
//     the answer, and the number of answers that no table gives. The rules must
//     pair 4 channels with ring/simple and 64 KiB, 9 with tree/LL and 16 KiB.

#define _DEFAULT_SOURCE
#define _POSIX_C_SOURCE 200809L

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, RULE_WORDS = 4, NUM_KINDS = 5, NUM_CELLS = 21 };

struct TunerV7 {
  const char* name;
  int (*init)(void**, uint64_t, size_t, size_t, void*, void*, void*);
  int (*get_coll_info)(void*, int, size_t, int, float**, int, int, int, int*);
  int (*finalize)(void*);
  int (*get_chunk_size)(void*, int, size_t, int, int, int, size_t*);
};

static const struct TunerV7* tuner;

static void expect(int is_true, const char* what) {
  if (is_true) return;
  fprintf(stderr, "failed: %s\n", what);
  exit(1);
}

// What NCCL does with a message.
static void take_log(int level, unsigned long flags, const char* file, int line,
                     const char* format, ...) {
  char message[512];
  va_list arguments;
  (void)flags, (void)line;
  va_start(arguments, format);
  int length = vsnprintf(message, sizeof(message), format, arguments);
  va_end(arguments);
  expect(level == 2 || level == 3, "a message is a warning or information");
  expect(strcmp(file, "lagom_xla") == 0, "a message says who sent it");
  expect(length > 0 && length < (int)sizeof(message), "a message is short");
}

// Fuzzing.

static uint64_t random_state;

static uint64_t next_random(void) {  // xorshift64*
  random_state ^= random_state >> 12;
  random_state ^= random_state << 25;
  random_state ^= random_state >> 27;
  return random_state * UINT64_C(2685821657736338717);
}

static void* start(size_t num_ranks, size_t num_nodes) {
  void* context = NULL;
  expect(tuner->init(&context, 7, num_ranks, num_nodes, (void*)take_log, NULL,
                     NULL) == 0,
         "init succeeds");
  return context;
}

static void check_chunk(void* context, int kind, size_t num_bytes, int cell) {
  static const size_t grains[] = {16, 1920, 512};
  int algorithm = cell / 3, protocol = cell % 3;
  size_t limit = protocol == 0   ? 32768
                 : protocol == 1 ? 576000
                 : algorithm > 3 && algorithm < 6 ? 131072
                 : algorithm == 1 && kind > 1     ? 2097152
                                                  : 524288;
  size_t before = grains[protocol] * (1 + next_random() % 64);
  size_t after = before;
  expect(tuner->get_chunk_size(context, kind, num_bytes / 8, algorithm,
                               protocol, 1, &after) == 0,
         "getChunkSize succeeds");
  if (after == before) return;
  expect(after >= grains[protocol], "a chunk has a grain");
  expect(after % grains[protocol] == 0, "a chunk is whole grains");
  expect(after <= limit, "a chunk fits the buffer");
}

// Returns whether a rule was applied.
static int check_choice(void* context, int kind, size_t num_bytes) {
  float costs[NUM_CELLS], before[NUM_CELLS];
  for (int i = 0; i < NUM_CELLS; ++i)
    costs[i] = next_random() % 4 == 0 ? -1.0f : 1.0f + (float)i;
  memcpy(before, costs, sizeof(costs));
  int num_channels = 0, changed = -1;
  expect(tuner->get_coll_info(context, kind, num_bytes, 1, (float**)costs, 7, 3,
                              0, &num_channels) == 0,
         "getCollInfo succeeds");
  for (int i = 0; i < NUM_CELLS; ++i) {
    if (memcmp(&costs[i], &before[i], sizeof(float)) == 0) continue;
    expect(changed < 0, "one cell changes");
    expect(before[i] >= 0.0f && costs[i] == 0.0f, "to 0, where NCCL can run");
    expect(i / 3 != 2 && i / 3 != 3, "CollNet is never chosen");
    changed = i;
  }
  expect(num_channels >= 0 && num_channels <= 64, "channels are in range");
  expect(changed >= 0 || num_channels == 0, "no rule, no channels");
  int asked = changed >= 0 ? changed : (int)(next_random() % NUM_CELLS);
  check_chunk(context, kind, num_bytes, asked);
  return changed >= 0;
}

static uint64_t check_answers(void* context, const uint64_t* rules,
                              size_t num_rules) {
  uint64_t num_applied = 0;
  for (int i = 0; i < 8; ++i) {
    const uint64_t* rule = rules + next_random() % num_rules * RULE_WORDS;
    size_t num_bytes = rule[1 + next_random() % 2] + next_random() % 3 - 1;
    num_applied +=
        (uint64_t)check_choice(context, (int)(rule[3] & 7) % 6, num_bytes);
  }
  return num_applied;
}

static uint64_t checksum(uint64_t version, uint64_t num_rules,
                         const uint64_t* words) {
  uint64_t hash = 0;
  for (uint64_t i = 0; i < 2 + num_rules * RULE_WORDS; ++i) {
    hash ^= i == 0 ? version : i == 1 ? num_rules : words[i - 2];
    hash *= UINT64_C(0x9e3779b97f4a7c15);
    hash ^= hash >> 32;
  }
  return hash;
}

static void mutate(uint64_t* words, size_t num_words) {
  uint64_t* word = words + next_random() % num_words;
  switch (next_random() % 4) {
    case 0:
      *word ^= UINT64_C(1) << next_random() % 64;
      break;
    case 1:
      ((uint8_t*)word)[next_random() % 8] = (uint8_t)next_random();
      break;
    case 2:
      *word = next_random();
      break;
    default:
      *word = next_random() % 2 ? 0 : ~UINT64_C(0);
  }
}

// The next version of a table in use: the rules with a few words changed, half
// of the time with a checksum that fits.
static void mutate_live(uint64_t* mapped, const uint64_t* rules,
                        uint64_t num_rules, uint64_t capacity) {
  uint64_t version = mapped[2] + 1;
  uint64_t* slot = mapped + 8 + version % 2 * 3;
  uint64_t* words = mapped + PAGE / 8 + version % 2 * capacity * RULE_WORDS;
  memcpy(words, rules, num_rules * RULE_WORDS * 8);
  slot[0] = version;
  slot[1] = num_rules;
  for (uint64_t i = next_random() % 3; i > 0; --i)
    mutate(words, num_rules * RULE_WORDS);
  slot[2] = checksum(version, num_rules, words);
  if (next_random() % 2) mutate(slot, 3);
  if (next_random() % 64 == 0) version = next_random();
  __atomic_store_n(&mapped[2], version, __ATOMIC_RELEASE);
}

static void damage_file(int file, const char* content, size_t size) {
  expect(ftruncate(file, 0) == 0, "a file can be cut");
  expect(pwrite(file, content, size, 0) == (ssize_t)size, "and written");
  uint64_t words[16];
  memcpy(words, content, sizeof(words));
  switch (next_random() % 3) {
    case 0:
      mutate(words, 16);
      expect(pwrite(file, words, sizeof(words), 0) == sizeof(words), "written");
      break;
    case 1:
      expect(ftruncate(file, (off_t)(next_random() % (2 * size))) == 0, "cut");
      break;
    default:
      break;
  }
}

static int fuzz(const char* path, long num_mutations, uint64_t seed) {
  random_state = seed * 2 + 1;
  int file = open(path, O_RDWR);
  expect(file >= 0, "the table opens");
  size_t size = (size_t)lseek(file, 0, SEEK_END);
  char* content = malloc(size);
  expect(content && pread(file, content, size, 0) == (ssize_t)size, "it reads");
  uint64_t num_rules = ((uint64_t*)content)[8 + 3 + 1];  // Version 1 is odd.
  uint64_t capacity = ((uint32_t*)content)[3];
  uint64_t* rules = malloc(num_rules * RULE_WORDS * 8);
  memcpy(rules, content + PAGE + capacity * RULE_WORDS * 8,
         num_rules * RULE_WORDS * 8);
  uint64_t num_applied = 0;
  for (long done = 0; done < num_mutations;) {
    damage_file(file, content, size);
    void* damaged = start(8, 1);
    num_applied += check_answers(damaged, rules, num_rules);
    tuner->finalize(damaged);

    expect(ftruncate(file, 0) == 0, "a file can be cut");
    expect(pwrite(file, content, size, 0) == (ssize_t)size, "and written");
    uint64_t* mapped =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    void* context = start(8, 1);
    void* other = start(16, 2);
    for (int i = 0; i < 100 && done < num_mutations; ++i, ++done) {
      mutate_live(mapped, rules, num_rules, capacity);
      num_applied += check_answers(context, rules, num_rules);
      num_applied += check_answers(other, rules, num_rules);
    }
    if (next_random() % 2) {  // Somebody else empties it under way.
      expect(ftruncate(file, 0) == 0, "a file can be cut");
      expect(check_answers(context, rules, num_rules) == 0, "no table");
      expect(check_answers(other, rules, num_rules) == 0, "no table");
    }
    munmap(mapped, size);
    tuner->finalize(context);
    tuner->finalize(other);
  }
  free(rules);
  free(content);
  close(file);
  printf("%llu\n", (unsigned long long)num_applied);
  return 0;
}

// Following.

struct Answers {
  uint64_t num_4_channels;
  uint64_t num_9_channels;
  uint64_t num_others;
};

static double seconds_to_run;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void* ask(void* result) {
  struct Answers answers = {0};
  void* context = start(8, 1);
  double end = now() + seconds_to_run;
  while (now() < end) {
    float costs[NUM_CELLS];
    for (int i = 0; i < NUM_CELLS; ++i) costs[i] = 5.0f;
    int num_channels = 0;
    tuner->get_coll_info(context, 4, 1 << 20, 1, (float**)costs, 7, 3, 0,
                         &num_channels);
    size_t ring_chunk = 512, tree_chunk = 16;
    tuner->get_chunk_size(context, 4, 1 << 17, 1, 2, 1, &ring_chunk);
    tuner->get_chunk_size(context, 4, 1 << 17, 0, 0, 1, &tree_chunk);
    int is_ring = costs[5] == 0.0f && ring_chunk == 65536 && tree_chunk == 16;
    int is_tree = costs[0] == 0.0f && ring_chunk == 512 && tree_chunk == 16384;
    if (num_channels == 4 && is_ring && !is_tree) {
      ++answers.num_4_channels;
    } else if (num_channels == 9 && is_tree && !is_ring) {
      ++answers.num_9_channels;
    } else {
      ++answers.num_others;
    }
  }
  tuner->finalize(context);
  *(struct Answers*)result = answers;
  return NULL;
}

static int follow(double seconds) {
  seconds_to_run = seconds;
  struct Answers answers[2];
  pthread_t threads[2];
  for (int i = 0; i < 2; ++i)
    pthread_create(&threads[i], NULL, ask, &answers[i]);
  for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
  printf("%llu %llu %llu\n",
         (unsigned long long)(answers[0].num_4_channels +
                              answers[1].num_4_channels),
         (unsigned long long)(answers[0].num_9_channels +
                              answers[1].num_9_channels),
         (unsigned long long)(answers[0].num_others + answers[1].num_others));
  return 0;
}

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  setenv("LAGOM_XLA_NCCL_TABLE", argv[3], 1);
  void* library = dlopen(argv[1], RTLD_NOW);
  expect(library != NULL, "the plugin loads");
  tuner = dlsym(library, "ncclTunerPlugin_v7");
  expect(tuner != NULL, "it has v7");
  if (strcmp(argv[2], "follow") == 0) return follow(atof(argv[4]));
  if (argc < 6) return 2;
  setenv("LAGOM_XLA_NCCL_LOG", "1", 1);
  return fuzz(argv[3], atol(argv[4]), strtoull(argv[5], NULL, 10));
}

// Code: accepts any image, but runs none. Functions are invented by name;
// variables come from a cubin's symbols.
#include <elf.h>

#include "driver.h"

typedef struct Variable {
  char *name;
  size_t size;
  CUdeviceptr address[MAX_DEVICES];
  struct Variable *next;
} Variable;

struct CUmod_st {
  char *image;  // A copy, because callers free theirs. NULL if it is no cubin.
  CUfunction functions;
  Variable *variables;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

// SOFTWARE_GPU_KERNELS names a file with lines "microseconds part-of-a-name".
// The first match is a kernel's time; "inf" never ends, and "fail" fails at
// launch.
static void read_time(CUfunction f) {
  f->given_ns = -1;
  const char *path = getenv("SOFTWARE_GPU_KERNELS");
  FILE *file = path ? fopen(path, "r") : NULL;
  if (!file) return;
  char time[32], part[256];
  while (fscanf(file, "%31s %255s", time, part) == 2) {
    if (!strstr(f->name, part)) continue;
    f->fails = !strcmp(time, "fail");
    f->given_ns = f->fails ? 0 : 1e3 * atof(time);
    break;
  }
  fclose(file);
}

static size_t image_size(const char *image) {
  const Elf64_Ehdr *header = (const void *)image;
  const Elf64_Shdr *sections = (const void *)(image + header->e_shoff);
  size_t end = header->e_shoff + header->e_shnum * sizeof *sections;
  for (int i = 0; i < header->e_shnum; i++) {
    size_t section_end = sections[i].sh_offset + sections[i].sh_size;
    if (sections[i].sh_type != SHT_NOBITS && section_end > end)
      end = section_end;
  }
  return end;
}

static CUmodule load(const void *image) {
  CUmodule module = calloc(1, sizeof *module);
  if (!memcmp(image, ELFMAG, SELFMAG)) {
    size_t size = image_size(image);
    module->image = memcpy(malloc(size), image, size);
  }
  return module;
}

static CUfunction function(CUmodule module, const char *name) {
  pthread_mutex_lock(&mutex);
  CUfunction f = module->functions;
  while (f && strcmp(f->name, name)) f = f->next;
  if (!f) {
    f = calloc(1, sizeof *f);
    f->name = strdup(name);
    f->module = module;
    f->next = module->functions;
    module->functions = f;
    read_time(f);
    say(2, "function: %s", name);
  }
  pthread_mutex_unlock(&mutex);
  return f;
}

// A variable's size, and its initial value if it has one.
static bool find_symbol(const char *image, const char *name, size_t *size,
                        const void **value) {
  const Elf64_Ehdr *header = (const void *)image;
  const Elf64_Shdr *sections = (const void *)(image + header->e_shoff);
  for (int i = 0; i < header->e_shnum; i++) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const char *names = image + sections[sections[i].sh_link].sh_offset;
    const Elf64_Sym *symbols = (const void *)(image + sections[i].sh_offset);
    for (size_t k = 0; k < sections[i].sh_size / sizeof *symbols; k++) {
      if (ELF64_ST_TYPE(symbols[k].st_info) != STT_OBJECT ||
          strcmp(names + symbols[k].st_name, name))
        continue;
      const Elf64_Shdr *in = &sections[symbols[k].st_shndx];
      *size = symbols[k].st_size;
      *value = in->sh_type == SHT_NOBITS
                   ? NULL
                   : image + in->sh_offset + symbols[k].st_value;
      return true;
    }
  }
  return false;
}

static CUresult variable(CUmodule module, const char *name, CUdeviceptr *address,
                         size_t *size) {
  size_t num_bytes = 4096;
  const void *value = NULL;
  if (module->image && !find_symbol(module->image, name, &num_bytes, &value))
    return CUDA_ERROR_NOT_FOUND;
  int device = current_device();
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&mutex);
  Variable *v = module->variables;
  while (v && strcmp(v->name, name)) v = v->next;
  if (!v) {
    v = calloc(1, sizeof *v);
    v->name = strdup(name);
    v->size = num_bytes;
    v->next = module->variables;
    module->variables = v;
  }
  if (!v->address[device]) {
    result = allocate(device, v->size, &v->address[device]);
    if (!result && value) memcpy((void *)v->address[device], value, v->size);
  }
  if (address) *address = v->address[device];
  if (size) *size = v->size;
  pthread_mutex_unlock(&mutex);
  return result;
}

API CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  *module = load(image);
  return CUDA_SUCCESS;
}
API CUresult cuModuleLoadDataEx(CUmodule *module, const void *image,
                                unsigned num, CUjit_option *options,
                                void **values) {
  (void)num, (void)options, (void)values;
  return cuModuleLoadData(module, image);
}
API CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image) {
  return cuModuleLoadData(module, image);
}
API CUresult cuModuleUnload(CUmodule module) {
  // Keeps its functions, which pending CUPTI records name.
  for (Variable *v = module->variables; v; v = v->next)
    for (int i = 0; i < MAX_DEVICES; i++) {
      deallocate(v->address[i]);
      v->address[i] = 0;
    }
  free(module->image);
  module->image = NULL;
  return CUDA_SUCCESS;
}
API CUresult cuModuleGetFunction(CUfunction *f, CUmodule module,
                                 const char *name) {
  *f = function(module, name);
  return CUDA_SUCCESS;
}
API CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *size,
                                  CUmodule module, const char *name) {
  return variable(module, name, address, size);
}
API CUresult cuLibraryLoadData(CUlibrary *library, const void *image,
                               CUjit_option *a, void **b, unsigned c,
                               CUlibraryOption *d, void **e, unsigned f) {
  (void)a, (void)b, (void)c, (void)d, (void)e, (void)f;
  *library = (CUlibrary)load(image);
  return CUDA_SUCCESS;
}
API CUresult cuLibraryUnload(CUlibrary library) {
  return cuModuleUnload((CUmodule)library);
}
API CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library,
                                const char *name) {
  *kernel = (CUkernel)function((CUmodule)library, name);
  return CUDA_SUCCESS;
}
API CUresult cuKernelGetFunction(CUfunction *f, CUkernel kernel) {
  *f = (CUfunction)kernel;
  return CUDA_SUCCESS;
}
API CUresult cuFuncGetName(const char **name, CUfunction f) {
  *name = f->name;
  return CUDA_SUCCESS;
}
API CUresult cuKernelGetName(const char **name, CUkernel kernel) {
  return cuFuncGetName(name, (CUfunction)kernel);
}
API CUresult cuFuncGetModule(CUmodule *module, CUfunction f) {
  *module = f->module;
  return CUDA_SUCCESS;
}
API CUresult cuFuncGetAttribute(int *value, CUfunction_attribute which,
                                CUfunction f) {
  switch (which) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = 32; break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = 90; break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = f->max_dynamic_shared_bytes ? f->max_dynamic_shared_bytes : 49152;
      break;
    default: *value = 0;
  }
  return CUDA_SUCCESS;
}
API CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute which,
                                int value) {
  if (which == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
    f->max_dynamic_shared_bytes = value;
  return CUDA_SUCCESS;
}
API CUresult cuFuncSetCacheConfig(CUfunction f, CUfunc_cache config) {
  (void)f, (void)config;
  return CUDA_SUCCESS;
}
API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *num_blocks, CUfunction f, int num_threads, size_t shared_bytes,
    unsigned flags) {
  (void)f, (void)flags;
  // Limits of an H100: 2,048 threads, 32 blocks and 228 KiB per multiprocessor.
  size_t num = num_threads > 0 ? 2048 / num_threads : 1;
  if (num > 32) num = 32;
  size_t by_memory = 233472 / (shared_bytes + 1024);
  if (num > by_memory) num = by_memory;
  *num_blocks = num ? num : 1;
  return CUDA_SUCCESS;
}
API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *num_blocks,
                                                         CUfunction f,
                                                         int num_threads,
                                                         size_t shared_bytes) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
      num_blocks, f, num_threads, shared_bytes, 0);
}
API CUresult cuOccupancyMaxPotentialBlockSize(int *num_blocks, int *num_threads,
                                              CUfunction f,
                                              CUoccupancyB2DSize shared_bytes,
                                              size_t fixed_bytes, int limit) {
  (void)f, (void)shared_bytes, (void)fixed_bytes;
  *num_threads = limit && limit < 1024 ? limit : 1024;
  *num_blocks = 2 * NUM_SMS;
  return CUDA_SUCCESS;
}
API CUresult cuTensorMapEncodeTiled(
    CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
    const cuuint64_t *dimensions, const cuuint64_t *strides,
    const cuuint32_t *box, const cuuint32_t *element_strides,
    CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
    CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  (void)type, (void)rank, (void)address, (void)dimensions, (void)strides;
  (void)box, (void)element_strides, (void)interleave, (void)swizzle;
  (void)promotion, (void)fill;
  memset(map, 0, sizeof *map);
  return CUDA_SUCCESS;
}

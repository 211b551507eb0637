// Device memory is host memory: mapped, and filled only on use.
#include <sys/mman.h>
#include <unistd.h>

#include "driver.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static Memory *table;  // Sorted by base.
static int num, capacity;
static uint64_t next_id = 1, used_bytes[MAX_DEVICES];
// Alignment of mappings with large pages.
#define PAGE (2ul << 20)

// The first entry whose base is above an address.
static int first_above(uintptr_t address) {
  int low = 0, high = num;
  while (low < high) {
    int middle = (low + high) / 2;
    if (table[middle].base <= address) low = middle + 1; else high = middle;
  }
  return low;
}

static void insert(Memory memory) {
  pthread_mutex_lock(&mutex);
  if (num == capacity)
    table = realloc(table, (capacity = 2 * capacity + 256) * sizeof *table);
  int i = first_above(memory.base);
  memmove(table + i + 1, table + i, (num - i) * sizeof *table);
  memory.id = next_id++;
  table[i] = memory;
  num++;
  if (memory.kind != MEMORY_HOST) used_bytes[memory.device] += memory.size;
  pthread_mutex_unlock(&mutex);
}

static bool take(uintptr_t base, Memory *memory) {
  pthread_mutex_lock(&mutex);
  int i = first_above(base) - 1;
  bool is_found = i >= 0 && table[i].base == base;
  if (is_found) {
    *memory = table[i];
    memmove(table + i, table + i + 1, (num - i - 1) * sizeof *table);
    num--;
    if (memory->kind != MEMORY_HOST)
      used_bytes[memory->device] -= memory->size;
  }
  pthread_mutex_unlock(&mutex);
  return is_found;
}

bool find_memory(uintptr_t address, Memory *found) {
  pthread_mutex_lock(&mutex);
  int i = first_above(address) - 1;
  bool is_found = i >= 0 && address < table[i].base + table[i].size;
  if (is_found) *found = table[i];
  pthread_mutex_unlock(&mutex);
  return is_found;
}

static size_t rounded_up(size_t size, size_t to) {
  return (size + to - 1) / to * to;
}

static void *map(size_t size, int protection) {
  size_t more = size + PAGE;
  char *start = mmap(NULL, more, protection,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) return NULL;
  char *aligned = (char *)rounded_up((uintptr_t)start, PAGE);
  if (aligned > start) munmap(start, aligned - start);
  munmap(aligned + size, start + more - aligned - size);
  return aligned;
}

static bool has_room(int device, size_t size) {
  return used_bytes[device] + size <= settings.memory_bytes;
}

CUresult allocate(int device, size_t size, CUdeviceptr *out) {
  size = rounded_up(size ? size : 1, 4096);
  void *base = has_room(device, size) ? map(size, PROT_READ | PROT_WRITE) : NULL;
  if (!base) return CUDA_ERROR_OUT_OF_MEMORY;
  insert((Memory){.base = (uintptr_t)base, .size = size, .device = device,
                  .kind = MEMORY_DEVICE});
  *out = (CUdeviceptr)base;
  return CUDA_SUCCESS;
}

CUresult deallocate(CUdeviceptr address) {
  Memory memory;
  if (!address) return CUDA_SUCCESS;
  if (!take(address, &memory)) return CUDA_ERROR_INVALID_VALUE;
  munmap((void *)memory.base, memory.size);
  return CUDA_SUCCESS;
}

API CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t size) {
  return allocate(current_device(), size, out);
}
API CUresult cuMemFree_v2(CUdeviceptr address) { return deallocate(address); }
API CUresult cuMemAllocAsync(CUdeviceptr *out, size_t size, CUstream stream) {
  return allocate(stream_of(stream)->context->device, size, out);
}
API CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t size,
                                     CUmemoryPool pool, CUstream stream) {
  (void)pool;
  return cuMemAllocAsync(out, size, stream);
}
API CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  return enqueue(stream, (Work){.kind = TASK_FREE, .freed = address});
}
API CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
  *total_bytes = settings.memory_bytes;
  *free_bytes = *total_bytes - used_bytes[current_device()];
  return CUDA_SUCCESS;
}
API CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size,
                                     CUdeviceptr address) {
  Memory memory;
  if (!find_memory(address, &memory)) return CUDA_ERROR_NOT_FOUND;
  if (base) *base = memory.base;
  if (size) *size = memory.size;
  return CUDA_SUCCESS;
}

// --- the host's

API CUresult cuMemHostAlloc(void **out, size_t size, unsigned flags) {
  (void)flags;
  size = rounded_up(size ? size : 1, 4096);
  if (!(*out = map(size, PROT_READ | PROT_WRITE)))
    return CUDA_ERROR_OUT_OF_MEMORY;
  insert((Memory){.base = (uintptr_t)*out, .size = size,
                  .device = current_device(), .kind = MEMORY_HOST});
  return CUDA_SUCCESS;
}
API CUresult cuMemFreeHost(void *address) {
  return deallocate((CUdeviceptr)address);
}
API CUresult cuMemHostRegister_v2(void *address, size_t size, unsigned flags) {
  (void)flags;
  insert((Memory){.base = (uintptr_t)address, .size = size,
                  .device = current_device(), .kind = MEMORY_HOST});
  return CUDA_SUCCESS;
}
API CUresult cuMemHostUnregister(void *address) {
  Memory memory;
  return take((uintptr_t)address, &memory)
             ? CUDA_SUCCESS
             : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}
API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *address,
                                          unsigned flags) {
  (void)flags;
  *out = (CUdeviceptr)address;
  return CUDA_SUCCESS;
}

// --- attributes of addresses

static CUresult attribute(void *out, CUpointer_attribute which,
                          CUdeviceptr address) {
  Memory memory = {.device = -2};
  bool is_known = find_memory(address, &memory);
  bool is_host = is_known && memory.kind == MEMORY_HOST;
  switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *(CUcontext *)out = is_known ? primary_context(memory.device) : NULL;
      break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *(CUmemorytype *)out = !is_known ? 0
                             : is_host ? CU_MEMORYTYPE_HOST
                                       : CU_MEMORYTYPE_DEVICE;
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *(CUdeviceptr *)out = is_known ? address : 0;
      break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      *(void **)out = is_host ? (void *)address : NULL;
      break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      *(uint64_t *)out = memory.id;
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *(int *)out = memory.device;
      break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *(CUdeviceptr *)out = memory.base;
      break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *(size_t *)out = memory.size;
      break;
    default:
      *(int *)out = 0;
  }
  return is_known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API CUresult cuPointerGetAttribute(void *out, CUpointer_attribute which,
                                   CUdeviceptr address) {
  return attribute(out, which, address);
}
API CUresult cuPointerGetAttributes(unsigned num_attributes,
                                    CUpointer_attribute *which, void **out,
                                    CUdeviceptr address) {
  for (unsigned i = 0; i < num_attributes; i++)
    attribute(out[i], which[i], address);
  return CUDA_SUCCESS;
}

// --- separate addresses and memory: a handle is a file

typedef struct {
  int fd, references;
  CUmemAllocationProp properties;
} Handle;
#define HANDLE(h) ((Handle *)(uintptr_t)(h))

API CUresult cuMemGetAllocationGranularity(
    size_t *granularity, const CUmemAllocationProp *properties,
    CUmemAllocationGranularity_flags flags) {
  (void)properties, (void)flags;
  *granularity = PAGE;
  return CUDA_SUCCESS;
}
API CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t size,
                         const CUmemAllocationProp *properties,
                         unsigned long long flags) {
  (void)flags;
  if (!has_room(properties->location.id, size)) return CUDA_ERROR_OUT_OF_MEMORY;
  int fd = memfd_create("software_gpu", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, size)) return CUDA_ERROR_OUT_OF_MEMORY;
  Handle *handle = malloc(sizeof *handle);
  *handle = (Handle){fd, 1, *properties};
  *out = (CUmemGenericAllocationHandle)(uintptr_t)handle;
  return CUDA_SUCCESS;
}
API CUresult cuMemRelease(CUmemGenericAllocationHandle h) {
  Handle *handle = HANDLE(h);
  if (__atomic_sub_fetch(&handle->references, 1, __ATOMIC_SEQ_CST))
    return CUDA_SUCCESS;
  close(handle->fd);
  free(handle);
  return CUDA_SUCCESS;
}
API CUresult cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t alignment,
                                 CUdeviceptr hint, unsigned long long flags) {
  (void)alignment, (void)hint, (void)flags;
  *out = (CUdeviceptr)map(size, PROT_NONE);
  return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
API CUresult cuMemAddressFree(CUdeviceptr address, size_t size) {
  munmap((void *)address, size);
  return CUDA_SUCCESS;
}
API CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset,
                      CUmemGenericAllocationHandle h,
                      unsigned long long flags) {
  (void)flags;
  Handle *handle = HANDLE(h);
  void *at = mmap((void *)address, size, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_FIXED | MAP_NORESERVE, handle->fd, offset);
  if (at == MAP_FAILED) return CUDA_ERROR_MAP_FAILED;
  __atomic_add_fetch(&handle->references, 1, __ATOMIC_SEQ_CST);
  insert((Memory){.base = address, .size = size,
                  .device = handle->properties.location.id,
                  .kind = MEMORY_MAPPED, .handle = handle});
  return CUDA_SUCCESS;
}
API CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
  Memory memory;
  for (size_t done = 0; done < size; done += memory.size) {
    if (!take(address + done, &memory)) return CUDA_ERROR_INVALID_VALUE;
    mmap((void *)(address + done), memory.size, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    cuMemRelease((CUmemGenericAllocationHandle)(uintptr_t)memory.handle);
  }
  return CUDA_SUCCESS;
}
API CUresult cuMemSetAccess(CUdeviceptr address, size_t size,
                            const CUmemAccessDesc *access, size_t num_access) {
  (void)address, (void)size, (void)access, (void)num_access;
  return CUDA_SUCCESS;
}
API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out,
                                         void *address) {
  Memory memory;
  if (!find_memory((uintptr_t)address, &memory) || memory.kind != MEMORY_MAPPED)
    return CUDA_ERROR_INVALID_VALUE;
  __atomic_add_fetch(&((Handle *)memory.handle)->references, 1,
                     __ATOMIC_SEQ_CST);
  *out = (CUmemGenericAllocationHandle)(uintptr_t)memory.handle;
  return CUDA_SUCCESS;
}

// Settings, devices, contexts, and functions by name.
#include <stdarg.h>
#include <strings.h>

#include "driver.h"
#include "stubs.h"

Settings settings;
static struct CUctx_st contexts[MAX_DEVICES];
static _Thread_local CUcontext stack[32];
static _Thread_local int depth;

static double setting(const char *name, double otherwise) {
  const char *value = getenv(name);
  return value && *value ? atof(value) : otherwise;
}

__attribute__((constructor)) static void begin(void) {
  settings.num_devices = setting("SOFTWARE_GPU_COUNT", 1);
  settings.memory_bytes = setting("SOFTWARE_GPU_MEMORY_GB", 80) * 1e9;
  settings.kernel_us = setting("SOFTWARE_GPU_KERNEL_US", 2);
  settings.wave_us = setting("SOFTWARE_GPU_WAVE_US", 0);
  settings.copy_gbps = setting("SOFTWARE_GPU_COPY_GBPS", 50);
  settings.log = setting("SOFTWARE_GPU_LOG", 0);
  if (settings.num_devices > MAX_DEVICES) settings.num_devices = MAX_DEVICES;
  for (int i = 0; i < MAX_DEVICES; i++)
    contexts[i] = (struct CUctx_st){.device = i, .id = i + 1};
}

void say(int level, const char *format, ...) {
  if (settings.log < level) return;
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  fprintf(stderr, "software GPU: %s\n", text);
}

CUresult missing(const char *name) {
  say(1, "missing: %s", name);
  return CUDA_ERROR_NOT_SUPPORTED;
}

// --- devices: H100s SXM5, each on its own bus

static bool is_device(CUdevice device) {
  return device >= 0 && device < settings.num_devices;
}
static int bus(CUdevice device) {
  return 0x11 + 0x10 * (device + settings.first_device);
}

API CUresult cuInit(unsigned flags) {
  (void)flags;
  // Read here, because processes of a job may be forks after loading this.
  settings.first_device = setting("SOFTWARE_GPU_FIRST", 0);
  return settings.num_devices ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}
API CUresult cuDriverGetVersion(int *version) {
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}
API CUresult cuDeviceGetCount(int *num) {
  *num = settings.num_devices;
  return CUDA_SUCCESS;
}
API CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  if (!is_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}
API CUresult cuDeviceGetName(char *name, int size, CUdevice device) {
  (void)device;
  snprintf(name, size, DEVICE_NAME);
  return CUDA_SUCCESS;
}
API CUresult cuDeviceTotalMem_v2(size_t *num_bytes, CUdevice device) {
  (void)device;
  *num_bytes = settings.memory_bytes;
  return CUDA_SUCCESS;
}
API CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
  memset(uuid, 0, sizeof *uuid);
  memcpy(uuid->bytes, "software GPU", 12);
  uuid->bytes[15] = device + settings.first_device;
  return CUDA_SUCCESS;
}
API CUresult cuDeviceGetPCIBusId(char *id, int size, CUdevice device) {
  snprintf(id, size, "0000:%02x:00.0", bus(device));
  return CUDA_SUCCESS;
}
API CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *id) {
  for (int i = 0; i < settings.num_devices; i++) {
    char text[32];
    cuDeviceGetPCIBusId(text, sizeof text, i);
    if (!strcasecmp(text, id)) return cuDeviceGet(device, i);
  }
  return CUDA_ERROR_INVALID_DEVICE;
}
API CUresult cuDeviceCanAccessPeer(int *can, CUdevice from, CUdevice to) {
  *can = from != to;
  return CUDA_SUCCESS;
}
API CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute which,
                                     CUdevice from, CUdevice to) {
  *value = which != CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK && from != to;
  return CUDA_SUCCESS;
}
API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device) {
  *pool = (CUmemoryPool)(uintptr_t)(device + 1);
  return CUDA_SUCCESS;
}
API CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute which,
                                   void *value) {
  (void)pool, (void)which, (void)value;
  return CUDA_SUCCESS;
}

// CUdevice_attribute and its value, from the CUDA programming guide's table of
// compute capability 9.0 and NVIDIA's data sheet of the H100 SXM5.
static const int attributes[][2] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
    {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000},
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, NUM_SMS},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 2619000},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 5120},
    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 52428800},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
    {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 1},
    {CU_DEVICE_ATTRIBUTE_NUMA_ID, -1},
};
API CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute which,
                                  CUdevice device) {
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *value = which == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID ? bus(device) : 0;
  for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
    if (attributes[i][0] == (int)which) *value = attributes[i][1];
  return CUDA_SUCCESS;
}

API CUresult cuGetErrorName(CUresult error, const char **name) {
  static _Thread_local char text[32];
  switch (error) {
    case CUDA_SUCCESS: *name = "CUDA_SUCCESS"; break;
    case CUDA_ERROR_OUT_OF_MEMORY: *name = "CUDA_ERROR_OUT_OF_MEMORY"; break;
    case CUDA_ERROR_NOT_READY: *name = "CUDA_ERROR_NOT_READY"; break;
    case CUDA_ERROR_NOT_SUPPORTED: *name = "CUDA_ERROR_NOT_SUPPORTED"; break;
    case CUDA_ERROR_LAUNCH_FAILED: *name = "CUDA_ERROR_LAUNCH_FAILED"; break;
    default:
      snprintf(text, sizeof text, "CUDA_ERROR_%d", error);
      *name = text;
  }
  return CUDA_SUCCESS;
}
API CUresult cuGetErrorString(CUresult error, const char **text) {
  return cuGetErrorName(error, text);
}

// --- contexts: one for each device

CUcontext primary_context(int device) { return &contexts[device]; }
CUcontext current_context(void) { return depth ? stack[depth - 1] : NULL; }
int current_device(void) {
  CUcontext context = current_context();
  return context ? context->device : 0;
}
API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *context = &contexts[device];
  return CUDA_SUCCESS;
}
API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  (void)device;
  return CUDA_SUCCESS;
}
API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags,
                                        int *is_active) {
  (void)device;
  *flags = 0;
  *is_active = 1;
  return CUDA_SUCCESS;
}
API CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
  (void)device, (void)flags;
  return CUDA_SUCCESS;
}
API CUresult cuCtxSetCurrent(CUcontext context) {
  if (!depth) depth = 1;
  stack[depth - 1] = context;
  return CUDA_SUCCESS;
}
API CUresult cuCtxGetCurrent(CUcontext *context) {
  *context = current_context();
  return CUDA_SUCCESS;
}
API CUresult cuCtxPushCurrent_v2(CUcontext context) {
  if (depth == sizeof stack / sizeof *stack) return CUDA_ERROR_INVALID_CONTEXT;
  stack[depth++] = context;
  return CUDA_SUCCESS;
}
API CUresult cuCtxPopCurrent_v2(CUcontext *context) {
  if (!depth) return CUDA_ERROR_INVALID_CONTEXT;
  if (context) *context = current_context();
  depth--;
  return CUDA_SUCCESS;
}
API CUresult cuCtxGetDevice(CUdevice *device) {
  CUcontext context = current_context();
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  *device = context->device;
  return CUDA_SUCCESS;
}
API CUresult cuCtxGetId(CUcontext context, unsigned long long *id) {
  if (!context && !(context = current_context()))
    return CUDA_ERROR_INVALID_CONTEXT;
  *id = context->id;
  return CUDA_SUCCESS;
}
API CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return CUDA_SUCCESS;
}
API CUresult cuCtxEnablePeerAccess(CUcontext context, unsigned flags) {
  (void)context, (void)flags;
  return CUDA_SUCCESS;
}

// --- functions by name

API CUresult cuGetProcAddress_v2(const char *name, void **function, int version,
                                 cuuint64_t flags,
                                 CUdriverProcAddressQueryResult *status) {
  (void)flags;
  *function = NULL;
  for (int i = 0; i < num_stub_versions; i++)  // Sorted by version.
    if (stub_versions[i].version <= version &&
        !strcmp(stub_versions[i].name, name))
      *function = stub_versions[i].function;
  if (status)
    *status = *function ? CU_GET_PROC_ADDRESS_SUCCESS
                        : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return *function || status ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
// The driver's private tables, with which NVIDIA's own runtime checks that the
// driver is NVIDIA's. There are none here, and there must be none.
API CUresult cuGetExportTable(const void **table, const CUuuid *id) {
  (void)id;
  *table = NULL;
  return CUDA_ERROR_NOT_FOUND;
}

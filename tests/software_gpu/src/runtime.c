// The documented calls of the CUDA runtime that XLA makes, on our driver.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define API __attribute__((visibility("default")))

static _Thread_local cudaError_t last_error;

// Most errors of the driver have the runtime's numbers.
static cudaError_t said(CUresult result) {
  if (result && result != CUDA_ERROR_NOT_READY)
    last_error = (cudaError_t)result;
  return (cudaError_t)result;
}

// A thread without a context gets the one of device 0.
static void have_context(void) {
  CUcontext context = NULL;
  if (cuCtxGetCurrent(&context) || context) return;
  if (!cuDevicePrimaryCtxRetain(&context, 0)) cuCtxSetCurrent(context);
}

cudaError_t missing(const char *name) {
  if (getenv("SOFTWARE_GPU_LOG"))
    fprintf(stderr, "software GPU: missing: %s\n", name);
  return last_error = cudaErrorNotSupported;
}

API cudaError_t cudaRuntimeGetVersion(int *version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
API cudaError_t cudaDriverGetVersion(int *version) {
  return said(cuDriverGetVersion(version));
}
API cudaError_t cudaGetLastError(void) {
  cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
API cudaError_t cudaPeekAtLastError(void) { return last_error; }
API const char *cudaGetErrorName(cudaError_t error) {
  const char *name = "";
  cuGetErrorName((CUresult)error, &name);
  return name;
}
API const char *cudaGetErrorString(cudaError_t error) {
  return cudaGetErrorName(error);
}
API cudaError_t cudaGetDeviceCount(int *num) {
  return said(cuDeviceGetCount(num));
}
API cudaError_t cudaGetDevice(int *device) {
  have_context();
  return said(cuCtxGetDevice(device));
}
API cudaError_t cudaSetDevice(int device) {
  CUcontext context;
  CUresult result = cuDevicePrimaryCtxRetain(&context, device);
  return said(result ? result : cuCtxSetCurrent(context));
}
API cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr which,
                                       int device) {
  return said(cuDeviceGetAttribute(value, (CUdevice_attribute)which, device));
}
API cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  have_context();
  return said(cuStreamSynchronize(stream));
}
API cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t num_bytes,
                                enum cudaMemcpyKind kind, cudaStream_t stream) {
  (void)kind;
  have_context();
  return said(cuMemcpyAsync((CUdeviceptr)to, (CUdeviceptr)from, num_bytes,
                            stream));
}
API cudaError_t cudaMemsetAsync(void *to, int value, size_t num_bytes,
                                cudaStream_t stream) {
  have_context();
  return said(cuMemsetD8Async((CUdeviceptr)to, value, num_bytes, stream));
}

// --- code: a host function stands for the kernel of its name

typedef struct Kernel {
  const void *host;
  CUfunction function;
  struct Kernel *next;
} Kernel;
static Kernel *kernels;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static Kernel *known(const void *host) {
  Kernel *kernel = kernels;
  while (kernel && kernel->host != host) kernel = kernel->next;
  return kernel;
}
static CUfunction add_kernel(const void *host, const char *name) {
  static CUmodule module;
  pthread_mutex_lock(&mutex);
  if (!module) cuModuleLoadData(&module, "kernels of the host");
  Kernel *kernel = known(host);
  if (!kernel) {
    kernel = malloc(sizeof *kernel);
    *kernel = (Kernel){.host = host, .next = kernels};
    cuModuleGetFunction(&kernel->function, module, name);
    kernels = kernel;
  }
  pthread_mutex_unlock(&mutex);
  return kernel->function;
}
static CUfunction function_of(const void *host) {
  char name[32];
  snprintf(name, sizeof name, "kernel_%p", host);
  return add_kernel(host, name);  // Most are registered, with their names.
}
API void **__cudaRegisterFatBinary(void *image) {
  static void *handle;
  (void)image;
  return &handle;
}
API void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
API void __cudaUnregisterFatBinary(void **handle) { (void)handle; }
API void __cudaRegisterFunction(void **handle, const char *host,
                                char *device_function, const char *name,
                                int thread_limit, void *a, void *b, void *c,
                                void *d, int *e) {
  (void)handle, (void)device_function, (void)thread_limit;
  (void)a, (void)b, (void)c, (void)d, (void)e;
  add_kernel(host, name);
}
API void __cudaRegisterVar(void **handle, char *host, char *address,
                           const char *name, int is_extern, size_t size,
                           int is_constant, int is_global) {
  (void)handle, (void)host, (void)address, (void)name, (void)is_extern;
  (void)size, (void)is_constant, (void)is_global;
}
API cudaError_t cudaGetFuncBySymbol(cudaFunction_t *function,
                                    const void *host) {
  *function = function_of(host);
  return cudaSuccess;
}
API cudaError_t cudaLaunchKernel(const void *host, dim3 grid, dim3 block,
                                 void **arguments, size_t shared_bytes,
                                 cudaStream_t stream) {
  have_context();
  return said(cuLaunchKernel(function_of(host), grid.x, grid.y, grid.z, block.x,
                             block.y, block.z, shared_bytes, stream, arguments,
                             NULL));
}

// cuBLAS and cuBLASLt on our driver: a product is one kernel, with only one
// algorithm.
//
// Descriptors hold attributes that are never read. The types are those of the
// documentation, because the headers come with libraries of 400 MB.
#include <cuda.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))
enum { SUCCESS = 0, EXECUTION_FAILED = 13, VERSION = 130500 };
enum { DESCRIPTOR_BYTES = 1024, NUM_ATTRIBUTES = 128 };

static int multiply(const char *name, CUstream stream) {
  static CUmodule module;
  CUfunction function;
  if (!module) cuModuleLoadData(&module, "products");
  cuModuleGetFunction(&function, module, name);
  return cuLaunchKernel(function, 132, 1, 1, 128, 1, 1, 0, stream, NULL, NULL)
             ? EXECUTION_FAILED
             : SUCCESS;
}
static int create(void **descriptor) {
  *descriptor = calloc(1, DESCRIPTOR_BYTES);
  return SUCCESS;
}
#ifdef LT

static int set(void *descriptor, unsigned which, const void *value,
               size_t size) {
  if (which < NUM_ATTRIBUTES && size <= 8)
    memcpy((char *)descriptor + 8 * which, value, size);
  return SUCCESS;
}

API int cublasLtCreate(void **handle) { return create(handle); }
API int cublasLtDestroy(void *handle) {
  free(handle);
  return SUCCESS;
}
API size_t cublasLtGetVersion(void) { return VERSION; }
#define DESCRIPTOR(type, ...)                                              \
  API int cublasLt##type##Create(void **descriptor, ##__VA_ARGS__) {       \
    return create(descriptor);                                             \
  }                                                                        \
  API int cublasLt##type##Destroy(void *descriptor) {                      \
    free(descriptor);                                                      \
    return SUCCESS;                                                        \
  }                                                                        \
  API int cublasLt##type##SetAttribute(void *descriptor, unsigned which,   \
                                       const void *value, size_t size) {   \
    return set(descriptor, which, value, size);                            \
  }                                                                        \
  API int cublasLt##type##GetAttribute(void *descriptor, unsigned which,   \
                                       void *value, size_t size,           \
                                       size_t *written) {                  \
    memset(value, 0, size);                                                \
    if (which < NUM_ATTRIBUTES && size <= 8)                               \
      memcpy(value, (char *)descriptor + 8 * which, size);                 \
    if (written) *written = size;                                          \
    return SUCCESS;                                                        \
  }
DESCRIPTOR(MatmulDesc)
DESCRIPTOR(MatrixLayout)
DESCRIPTOR(MatmulPreference)

typedef struct {
  uint64_t algorithm[8];
  size_t workspace_bytes;
  int status;
  float num_waves;
  int reserved[4];
} Heuristic;
API int cublasLtMatmulAlgoGetHeuristic(void *handle, void *product, void *a,
                                       void *b, void *c, void *d,
                                       void *preference, int most,
                                       Heuristic *found, int *num) {
  (void)handle, (void)product, (void)a, (void)b, (void)c, (void)d;
  (void)preference;
  *num = most > 0;
  if (*num) found[0] = (Heuristic){.num_waves = 1};
  return SUCCESS;
}
API int cublasLtMatmul(void *handle, void *product, const void *alpha,
                       const void *a, void *a_layout, const void *b,
                       void *b_layout, const void *beta, const void *c,
                       void *c_layout, void *d, void *d_layout,
                       const void *algorithm, void *workspace,
                       size_t workspace_bytes, CUstream stream) {
  (void)handle, (void)product, (void)alpha, (void)a, (void)a_layout, (void)b;
  (void)b_layout, (void)beta, (void)c, (void)c_layout, (void)d, (void)d_layout;
  (void)algorithm, (void)workspace, (void)workspace_bytes;
  return multiply("nvjet_software_gpu", stream);
}

#else

typedef struct {
  CUstream stream;
} *Handle;
API int cublasCreate_v2(void **handle) { return create(handle); }
API int cublasDestroy_v2(void *handle) {
  free(handle);
  return SUCCESS;
}
API int cublasGetVersion_v2(void *handle, int *version) {
  (void)handle;
  *version = VERSION;
  return SUCCESS;
}
API int cublasSetStream_v2(Handle handle, CUstream stream) {
  handle->stream = stream;
  return SUCCESS;
}
API int cublasGetStream_v2(Handle handle, CUstream *stream) {
  *stream = handle->stream;
  return SUCCESS;
}
// Calls that only need the handle here.
#define IGNORED(name) \
  API int name(void) { return SUCCESS; }
IGNORED(cublasSetWorkspace_v2)
IGNORED(cublasSetMathMode)
IGNORED(cublasSetPointerMode_v2)
IGNORED(cublasSetAtomicsMode)
#define PRODUCT(name) \
  API int name(Handle handle) { return multiply(#name, handle->stream); }
PRODUCT(cublasGemmEx)
PRODUCT(cublasGemmBatchedEx)
PRODUCT(cublasGemmStridedBatchedEx)
PRODUCT(cublasSgemm_v2)
PRODUCT(cublasSgemmBatched)
PRODUCT(cublasSgemmStridedBatched)

#endif

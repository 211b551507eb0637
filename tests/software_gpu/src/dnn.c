// The part of cuDNN with which XLA checks that it exists; it has no algorithms.
#include <cuda.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#define API __attribute__((visibility("default")))
enum { SUCCESS = 0, VERSION = 99900 };

API int cudnnCreate(void **handle) {
  *handle = malloc(1);
  return SUCCESS;
}
API int cudnnDestroy(void *handle) {
  free(handle);
  return SUCCESS;
}
API size_t cudnnGetVersion(void) { return VERSION; }
API size_t cudnnGetCudartVersion(void) { return CUDA_VERSION; }
// `which`: the version's major, minor and patch numbers.
API int cudnnGetProperty(int which, int *value) {
  int numbers[] = {VERSION / 10000, VERSION / 100 % 100, VERSION % 100};
  *value = numbers[which];
  return SUCCESS;
}
API int cudnnSetStream(void *handle, CUstream stream) {
  (void)handle, (void)stream;
  return SUCCESS;
}
API const char *cudnnGetErrorString(int status) {
  return status ? "an error of the software GPU's cuDNN" : "CUDNN_STATUS_SUCCESS";
}
API void cudnnGetLastErrorString(char *text, size_t size) {
  snprintf(text, size, "none");
}

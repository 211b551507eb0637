// NVIDIA's management library: H100s behind NVSwitch.
//
// The types come from its documentation, because no wheel has its header.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "software_gpu.h"

#define API __attribute__((visibility("default")))
enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6 };
enum { NUM_DEVICES = 8, NUM_LINKS = 18 };

typedef struct {
  int index;
} *Device;
typedef struct {
  char old_id[16];
  unsigned domain, bus, device, pci_device, pci_subsystem;
  char id[32];
} Pci;
typedef struct {
  unsigned field, scope;
  long long at_us, latency_us;
  int type, status;
  unsigned long long value;
} Field;
static struct {
  int index;
} devices[NUM_DEVICES];

API int nvmlInit_v2(void) { return SUCCESS; }
API int nvmlShutdown(void) { return SUCCESS; }
API const char *nvmlErrorString(int error) {
  return error ? "an error of the software GPU's NVML" : "Success";
}
API int nvmlSystemGetDriverVersion(char *version, unsigned size) {
  snprintf(version, size, "590.44.01");
  return SUCCESS;
}
API int nvmlSystemGetCudaDriverVersion_v2(int *version) {
  *version = 13050;
  return SUCCESS;
}
API int nvmlSystemGetConfComputeState(unsigned *state) {
  memset(state, 0, 3 * sizeof *state);
  return SUCCESS;
}
// All GPUs of the node, whichever of them a process has.
API int nvmlDeviceGetCount_v2(unsigned *num) {
  *num = NUM_DEVICES;
  return SUCCESS;
}
API int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device) {
  if (index >= NUM_DEVICES) return INVALID;
  devices[index].index = index;
  *device = (Device)&devices[index];
  return SUCCESS;
}
API int nvmlDeviceGetHandleByPciBusId_v2(const char *id, Device *device) {
  unsigned domain, bus;
  if (sscanf(id, "%x:%x", &domain, &bus) < 2) return INVALID;
  for (int i = 0; i < NUM_DEVICES; i++)
    if (bus == 0x11u + 0x10 * i) return nvmlDeviceGetHandleByIndex_v2(i, device);
  return NOT_FOUND;
}
API int nvmlDeviceGetIndex(Device device, unsigned *index) {
  *index = device->index;
  return SUCCESS;
}
API int nvmlDeviceGetName(Device device, char *name, unsigned size) {
  (void)device;
  snprintf(name, size, DEVICE_NAME);
  return SUCCESS;
}
API int nvmlDeviceGetPciInfo_v3(Device device, Pci *pci) {
  memset(pci, 0, sizeof *pci);
  pci->bus = 0x11 + 0x10 * device->index;
  snprintf(pci->id, sizeof pci->id, "00000000:%02X:00.0", pci->bus);
  snprintf(pci->old_id, sizeof pci->old_id, "0000:%02X:00.0", pci->bus);
  return SUCCESS;
}
API int nvmlDeviceGetCudaComputeCapability(Device device, int *major,
                                           int *minor) {
  (void)device;
  *major = 9;
  *minor = 0;
  return SUCCESS;
}
API int nvmlDeviceGetNvLinkState(Device device, unsigned link, int *is_on) {
  (void)device;
  *is_on = 1;
  return link < NUM_LINKS ? SUCCESS : INVALID;
}
API int nvmlDeviceGetNvLinkCapability(Device device, unsigned link, int which,
                                      unsigned *value) {
  (void)device, (void)which;
  *value = 1;
  return link < NUM_LINKS ? SUCCESS : INVALID;
}
API int nvmlDeviceGetCurrPcieLinkWidth(Device device, unsigned *num_lanes) {
  (void)device;
  *num_lanes = 16;
  return SUCCESS;
}
API int nvmlDeviceGetCurrPcieLinkGeneration(Device device, unsigned *number) {
  (void)device;
  *number = 5;
  return SUCCESS;
}
API int nvmlDeviceGetMigMode(Device device, unsigned *now, unsigned *pending) {
  (void)device;
  *now = *pending = 0;
  return SUCCESS;
}
API int nvmlDeviceGetFieldValues(Device device, int num, Field *fields) {
  (void)device;
  for (int i = 0; i < num; i++) {
    fields[i].status = SUCCESS;
    fields[i].type = 1;
    fields[i].value = fields[i].field == 91 ? NUM_LINKS : 0;  // Link count.
  }
  return SUCCESS;
}
// NVLink ends at the node.
API int nvmlDeviceGetGpuFabricInfoV(Device device, void *info) {
  (void)device, (void)info;
  return NOT_SUPPORTED;
}

// Paddle's CPU kernels for the fake device.
#pragma once
#include "paddle/phi/backends/cpu/cpu_context.h"
#include "paddle/phi/core/kernel_factory.h"

// A CPU kernel. `function` must be first: machine code jumps to it.
struct CpuKernel {
  void* function;
  const char* name;
  const phi::Kernel* kernel;
};

// Registers all CPU kernels for the device type.
void register_kernels(const char* device_type);
// Registers float16 and bfloat16 kernels where the CPU has only float32.
void register_half_kernels(phi::Backend backend);
// Copies the argument definitions of `kernel` to `own`, on the device instead of the CPU, so that
// inputs are not copied to the CPU first.
void place_arguments(const phi::Kernel& kernel, phi::Backend backend, phi::Kernel* own);
// Counts a call and returns the CPU context for the kernel.
phi::CPUContext* cpu_context(const CpuKernel* kernel, const phi::DeviceContext* context);
// Whether this thread runs a kernel: a device would make the copies there within the kernel.
extern thread_local bool in_kernel;
struct InKernel {
  InKernel() { in_kernel = true; }
  ~InKernel() { in_kernel = false; }
};
// Enqueues a kernel on the stream, and returns the stream as the kernel should know it.
void* passed_to(void* stream);

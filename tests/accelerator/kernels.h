// Paddle's CPU kernels for the fake device.
#pragma once
#include "paddle/phi/backends/cpu/cpu_context.h"
#include "paddle/phi/core/kernel_factory.h"

// A kernel of the CPU. `function` is first: machine code jumps to it.
struct CpuKernel {
  void* function;
  const char* name;
  const phi::Kernel* kernel;
};

// Registers all of them for the device type.
void register_kernels(const char* device_type);
// Registers float16 and bfloat16 kernels where the CPU has float32 alone.
void register_half_kernels(phi::Backend backend);
// The arguments of `own` as `kernel` has them, on the device instead of the CPU: else inputs would
// be copied to the CPU first.
void place_arguments(const phi::Kernel& kernel, phi::Backend backend, phi::Kernel* own);
// Counts a call, and returns the CPU context with which the kernel has to be called.
phi::CPUContext* cpu_context(const CpuKernel* kernel, const phi::DeviceContext* context);
// Whether this thread is in a kernel: what it copies there, a device does in the kernel itself.
extern thread_local bool in_kernel;
struct InKernel {
  InKernel() { in_kernel = true; }
  ~InKernel() { in_kernel = false; }
};
// A kernel was passed to the stream.
void passed_to(void* stream);

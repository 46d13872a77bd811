// Registers Paddle's CPU kernels for the fake device, which uses host memory. Each kernel is called
// through a few bytes of x86-64 machine code that replace the custom device's context by a CPU one.
#include "kernels.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "paddle/phi/backends/context_pool.h"
#include "paddle/phi/backends/custom/custom_context.h"
#include "paddle/phi/core/kernel_context.h"

thread_local bool in_kernel = false;

namespace {
std::mutex mutex;
std::map<std::string, size_t> calls;

// A CPU context with the device's place. phi::Copy casts the context of a custom place to
// phi::CustomContext and reads its stream. In Paddle 3.3 that pointer's offset falls into the
// CPU context's unused place, where a pointer to a phi::stream::Stream is stored.
struct DeviceCpuContext : phi::CPUContext {
  explicit DeviceCpuContext(const phi::DeviceContext* device)
      : phi::CPUContext(device->GetPlace()), place(device->GetPlace()) {}
  const phi::Place& GetPlace() const override { return place; }
  void set_stream(void* raw) {
    auto& stream = streams[raw];
    if (!stream) stream = new phi::stream::Stream(place, raw);
    *(*reinterpret_cast<void***>((char*)this + 24) + 2) = stream;
  }
  phi::Place place;
  std::map<void*, phi::stream::Stream*> streams;
};
}  // namespace

phi::CPUContext* cpu_context(const CpuKernel* kernel, const phi::DeviceContext* device) {
  auto stream = passed_to(static_cast<const phi::CustomContext*>(device)->stream());
  static std::map<const phi::DeviceContext*, DeviceCpuContext*> contexts;
  std::lock_guard<std::mutex> lock(mutex);
  ++calls[kernel->name];
  auto& context = contexts[device];
  if (!context) {
    auto host = phi::DeviceContextPool::Instance().Get(phi::CPUPlace());
    context = new DeviceCpuContext(device);
    context->SetHostAllocator(&device->GetHostAllocator());
    context->SetZeroAllocator(&device->GetZeroAllocator());
    context->SetHostZeroAllocator(&device->GetHostZeroAllocator());
    context->SetGenerator(host->GetGenerator());
    context->SetHostGenerator(host->GetHostGenerator());
  }
  context->SetAllocator(&device->GetAllocator());
  context->set_stream(stream);
  return context;
}
// For tests, through ctypes: the number of calls of a kernel.
extern "C" size_t fake_calls(const char* name) {
  std::lock_guard<std::mutex> lock(mutex);
  return calls[name];
}
// For the machine code below.
extern "C" void* fake_cpu_context(const CpuKernel* kernel, const phi::DeviceContext* device) {
  return cpu_context(kernel, device);
}
// On entry %r11 holds the CpuKernel; the kernel's own arguments stay in place.
asm(R"(
  .text
  .globl fake_enter
  .hidden fake_enter
fake_enter:
  push %rbp
  mov %rsp, %rbp
  sub $192, %rsp
  mov %rsi, -16(%rbp)
  mov %rdx, -24(%rbp)
  mov %rcx, -32(%rbp)
  mov %r8, -40(%rbp)
  mov %r9, -48(%rbp)
  mov %r11, -56(%rbp)
  movups %xmm0, -80(%rbp)
  movups %xmm1, -96(%rbp)
  movups %xmm2, -112(%rbp)
  movups %xmm3, -128(%rbp)
  movups %xmm4, -144(%rbp)
  movups %xmm5, -160(%rbp)
  movups %xmm6, -176(%rbp)
  movups %xmm7, -192(%rbp)
  mov %rdi, %rsi
  mov %r11, %rdi
  call fake_cpu_context@PLT
  mov %rax, %rdi
  mov -16(%rbp), %rsi
  mov -24(%rbp), %rdx
  mov -32(%rbp), %rcx
  mov -40(%rbp), %r8
  mov -48(%rbp), %r9
  mov -56(%rbp), %r11
  movups -80(%rbp), %xmm0
  movups -96(%rbp), %xmm1
  movups -112(%rbp), %xmm2
  movups -128(%rbp), %xmm3
  movups -144(%rbp), %xmm4
  movups -160(%rbp), %xmm5
  movups -176(%rbp), %xmm6
  movups -192(%rbp), %xmm7
  leave
  jmp *(%r11)
)");
extern "C" void fake_enter();

namespace {
struct Code {
  unsigned char* end;
  void bytes(std::initializer_list<unsigned char> values) {
    for (auto value : values) *end++ = value;
  }
  void address(const void* value) {
    memcpy(end, &value, 8);
    end += 8;
  }
};
// Runs the kernel as static programs call it.
void run(const CpuKernel* kernel, phi::KernelContext* context) {
  auto& device = context->GetDeviceContext<phi::DeviceContext>();
  context->SetDeviceContext(cpu_context(kernel, &device));
  (*kernel->kernel)(context);
  context->SetDeviceContext(const_cast<phi::DeviceContext*>(&device));
}
}  // namespace

void place_arguments(const phi::Kernel& kernel, phi::Backend backend, phi::Kernel* own) {
  auto& arguments = *own->mutable_args_def();
  arguments = kernel.args_def();
  for (auto& input : arguments.input_defs()) {
    if (input.backend == phi::Backend::CPU) input.SetBackend(backend);
  }
  for (auto& output : arguments.output_defs()) {
    if (output.backend == phi::Backend::CPU) output.SetBackend(backend);
  }
}

void register_kernels(const char* device_type) {
  auto backend = phi::TransToPhiBackend(phi::CustomPlace(device_type));
  size_t reserved_bytes = 64 << 20;
  auto memory = mmap(nullptr, reserved_bytes, PROT_READ | PROT_WRITE | PROT_EXEC,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  Code code{static_cast<unsigned char*>(memory)};
  for (auto& [name, kernels] : phi::KernelFactory::Instance().kernels()) {
    std::vector<std::pair<phi::KernelKey, phi::Kernel>> added;
    for (auto& [key, kernel] : kernels) {
      auto function = kernel.GetVariadicKernelFn<void*>();
      if (key.backend() != phi::Backend::CPU || !function) continue;
      auto of_cpu = new CpuKernel{function, strdup(name.c_str()), new phi::Kernel(kernel)};
      auto entry = code.end;
      code.bytes({0x49, 0xbb}), code.address(of_cpu);              // movabs of_cpu, %r11
      code.bytes({0x48, 0xb8}), code.address((void*)&fake_enter);  // movabs fake_enter, %rax
      code.bytes({0xff, 0xe0});                                    // jmp *%rax
      phi::Kernel own([=](phi::KernelContext* context) { run(of_cpu, context); }, entry);
      place_arguments(kernel, backend, &own);
      if (name == "arange_tensor") {
        // As in CUDA's kernel, the inputs are scalars on any backend.
        for (auto& input : own.mutable_args_def()->input_defs()) {
          input.SetBackend(phi::Backend::ALL_BACKEND);
        }
      }
      added.emplace_back(phi::KernelKey(backend, key.layout(), key.dtype()), own);
    }
    for (auto& [key, kernel] : added) kernels[key] = kernel;
  }
  register_half_kernels(backend);
}

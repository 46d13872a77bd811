// float16 and bfloat16 kernels where the CPU has only float32: its kernel between conversions.
// CPU kernels that copy row by row are wrapped in float32 too: `in_kernel` hides their copies.
// Signatures are those of Paddle's headers.
#include <deque>
#include <functional>
#include <map>

#include "kernels.h"
#include "paddle/phi/backends/all_context.h"
#include "paddle/phi/core/kernel_utils.h"
#include "paddle/phi/core/dense_tensor.h"
#include "paddle/phi/kernels/activation_grad_kernel.h"
#include "paddle/phi/kernels/activation_kernel.h"
#include "paddle/phi/kernels/adamw_kernel.h"
#include "paddle/phi/kernels/amp_kernel.h"
#include "paddle/phi/kernels/arg_min_max_kernel.h"
#include "paddle/phi/kernels/batch_norm_grad_kernel.h"
#include "paddle/phi/kernels/batch_norm_kernel.h"
#include "paddle/phi/kernels/concat_kernel.h"
#include "paddle/phi/kernels/conv_grad_kernel.h"
#include "paddle/phi/kernels/conv_kernel.h"
#include "paddle/phi/kernels/cross_entropy_grad_kernel.h"
#include "paddle/phi/kernels/cross_entropy_kernel.h"
#include "paddle/phi/kernels/elementwise_add_grad_kernel.h"
#include "paddle/phi/kernels/elementwise_add_kernel.h"
#include "paddle/phi/kernels/elementwise_divide_grad_kernel.h"
#include "paddle/phi/kernels/elementwise_divide_kernel.h"
#include "paddle/phi/kernels/embedding_grad_kernel.h"
#include "paddle/phi/kernels/embedding_kernel.h"
#include "paddle/phi/kernels/gather_grad_kernel.h"
#include "paddle/phi/kernels/gather_kernel.h"
#include "paddle/phi/kernels/gelu_grad_kernel.h"
#include "paddle/phi/kernels/gelu_kernel.h"
#include "paddle/phi/kernels/layer_norm_grad_kernel.h"
#include "paddle/phi/kernels/layer_norm_kernel.h"
#include "paddle/phi/kernels/linear_v2_kernel.h"
#include "paddle/phi/kernels/matmul_grad_kernel.h"
#include "paddle/phi/kernels/matmul_kernel.h"
#include "paddle/phi/kernels/mean_all_grad_kernel.h"
#include "paddle/phi/kernels/mean_all_kernel.h"
#include "paddle/phi/kernels/merged_momentum_kernel.h"
#include "paddle/phi/kernels/momentum_kernel.h"
#include "paddle/phi/kernels/pool_grad_kernel.h"
#include "paddle/phi/kernels/pool_kernel.h"
#include "paddle/phi/kernels/softmax_grad_kernel.h"
#include "paddle/phi/kernels/softmax_kernel.h"
#include "paddle/phi/kernels/split_kernel.h"
#include "paddle/phi/kernels/tril_triu_kernel.h"

namespace phi {
// Its header, linear_v2_grad_kernel.h, includes headers that Paddle's packages lack.
template <typename T, typename Context>
void LinearV2GradKernel(const Context&, const DenseTensor& input, const DenseTensor& weight,
                        const DenseTensor& bias, const DenseTensor& out_grad,
                        const bool transpose_weight, DenseTensor* input_grad,
                        DenseTensor* weight_grad, DenseTensor* bias_grad);
}  // namespace phi

namespace {
using phi::DataType;
using phi::DenseTensor;

bool is_half(const DenseTensor& tensor) {
  return tensor.dtype() == DataType::FLOAT16 || tensor.dtype() == DataType::BFLOAT16;
}
template <typename From, typename To>
void convert(const void* from, void* to, int64_t count) {
  auto source = static_cast<const From*>(from);
  for (int64_t i = 0; i < count; ++i) {
    static_cast<To*>(to)[i] = static_cast<To>(static_cast<float>(source[i]));
  }
}

// A kernel call: its float32 tensors and the conversions after it.
struct Call {
  const phi::CPUContext& context;
  std::deque<DenseTensor> tensors;
  std::map<const DenseTensor*, DenseTensor*> widened;
  std::deque<paddle::optional<DenseTensor>> optionals;
  std::deque<std::vector<const DenseTensor*>> lists;
  std::vector<std::function<void()>> conversions;

  // Returns the float32 copy of a tensor, which may be input and output in either order.
  DenseTensor& float32_of(const DenseTensor& tensor) {
    if (widened.count(&tensor)) return *widened[&tensor];
    tensors.emplace_back();
    widened[&tensor] = &tensors.back();
    auto meta = tensor.meta();
    meta.dtype = DataType::FLOAT32;
    meta.offset = 0;
    tensors.back().set_meta(meta);
    return tensors.back();
  }
  const DenseTensor& widen(const DenseTensor& tensor) {
    if (!is_half(tensor) || !tensor.initialized()) return tensor;
    auto& wide = float32_of(tensor);
    auto* to = context.Alloc<float>(&wide);
    if (tensor.dtype() == DataType::FLOAT16) {
      convert<phi::dtype::float16, float>(tensor.data(), to, tensor.numel());
    } else {
      convert<phi::dtype::bfloat16, float>(tensor.data(), to, tensor.numel());
    }
    return wide;
  }
  DenseTensor* narrow_afterwards(DenseTensor* tensor) {
    if (!tensor || !is_half(*tensor)) return tensor;
    auto* wide = &float32_of(*tensor);
    conversions.push_back([this, tensor, wide] {
      if (!wide->initialized()) return;
      tensor->Resize(wide->dims());
      auto* to = context.Alloc(tensor, tensor->dtype());
      if (tensor->dtype() == DataType::FLOAT16) {
        convert<float, phi::dtype::float16>(wide->data(), to, wide->numel());
      } else {
        convert<float, phi::dtype::bfloat16>(wide->data(), to, wide->numel());
      }
    });
    return wide;
  }

  template <typename T>
  T&& argument(T&& value) {
    return std::forward<T>(value);
  }
  const DenseTensor& argument(const DenseTensor& tensor) { return widen(tensor); }
  DenseTensor* argument(DenseTensor*& tensor) { return narrow_afterwards(tensor); }
  const paddle::optional<DenseTensor>& argument(const paddle::optional<DenseTensor>& tensor) {
    if (!tensor || !is_half(*tensor)) return tensor;
    optionals.emplace_back(widen(*tensor));
    return optionals.back();
  }
  const std::vector<const DenseTensor*>& argument(
      const std::vector<const DenseTensor*>& tensors) {
    lists.emplace_back();
    for (auto* tensor : tensors) lists.back().push_back(&widen(*tensor));
    return lists.back();
  }
  std::vector<DenseTensor*> argument(std::vector<DenseTensor*>& tensors) {
    std::vector<DenseTensor*> wide;
    for (auto* tensor : tensors) wide.push_back(narrow_afterwards(tensor));
    return wide;
  }
};

// `Line` distinguishes kernels with the same signature.
template <int Line, typename Signature>
struct Widened;
template <int Line, typename... Arguments>
struct Widened<Line, void(const phi::CPUContext&, Arguments...)> {
  static inline CpuKernel* kernel;
  static void run(const phi::CustomContext& device, Arguments... arguments) {
    Call call{*cpu_context(kernel, &device)};
    auto function = reinterpret_cast<void (*)(const phi::CPUContext&, Arguments...)>(
        kernel->function);
    InKernel here;
    function(call.context, call.argument(arguments)...);
    for (auto& convert_back : call.conversions) convert_back();
  }
};

template <int Line, typename Signature>
void widen(const char* name, phi::Backend backend) {
  auto& kernels = phi::KernelFactory::Instance().kernels()[name];
  for (auto layout : {phi::DataLayout::ALL_LAYOUT, phi::DataLayout::NCHW}) {
    auto found = kernels.find(phi::KernelKey(phi::Backend::CPU, layout, DataType::FLOAT32));
    if (found == kernels.end()) continue;
    auto kernel = found->second;
    using Own = Widened<Line, Signature>;
    Own::kernel =
        new CpuKernel{kernel.GetVariadicKernelFn<void*>(), name, new phi::Kernel(kernel)};
    for (auto dtype : {DataType::FLOAT16, DataType::BFLOAT16, DataType::FLOAT32}) {
      phi::Kernel own(phi::KernelImpl<decltype(&Own::run), &Own::run>::Compute,
                      reinterpret_cast<void*>(&Own::run));
      place_arguments(kernel, backend, &own);
      kernels[phi::KernelKey(backend, layout, dtype)] = own;
    }
  }
}
#define WIDEN(name, function) \
  widen<__LINE__, decltype(phi::function<float, phi::CPUContext>)>(#name, backend)
}  // namespace

void register_half_kernels(phi::Backend backend) {
  WIDEN(concat, ConcatKernel);
  WIDEN(conv2d, ConvKernel);
  WIDEN(conv2d_grad, ConvGradKernel);
  WIDEN(argmax, ArgMaxKernel);
  WIDEN(batch_norm, BatchNormKernel);
  WIDEN(batch_norm_grad, BatchNormGradKernel);
  WIDEN(pool2d, Pool2dKernel);
  WIDEN(pool2d_grad, Pool2dGradKernel);
  WIDEN(relu, ReluKernel);
  WIDEN(relu_grad, ReluGradKernel);
  WIDEN(tanh, TanhKernel);
  WIDEN(tanh_grad, TanhGradKernel);
  WIDEN(gelu, GeluKernel);
  WIDEN(gelu_grad, GeluGradKernel);
  WIDEN(add, AddKernel);
  WIDEN(add_grad, AddGradKernel);
  WIDEN(divide, DivideKernel);
  WIDEN(divide_grad, DivideGradKernel);
  WIDEN(cross_entropy_with_softmax, CrossEntropyWithSoftmaxKernel);
  WIDEN(cross_entropy_with_softmax_grad, CrossEntropyWithSoftmaxGradKernel);
  WIDEN(linear_v2, LinearV2Kernel);
  WIDEN(linear_v2_grad, LinearV2GradKernel);
  WIDEN(matmul, MatmulKernel);
  WIDEN(matmul_grad, MatmulGradKernel);
  WIDEN(softmax, SoftmaxKernel);
  WIDEN(softmax_grad, SoftmaxGradKernel);
  WIDEN(split_with_num, SplitWithNumKernel);
  WIDEN(triu, TriuKernel);
  WIDEN(layer_norm, LayerNormKernel);
  WIDEN(layer_norm_grad, LayerNormGradKernel);
  WIDEN(embedding, EmbeddingKernel);
  WIDEN(embedding_grad, EmbeddingGradKernel);
  WIDEN(gather, GatherKernel);
  WIDEN(gather_grad, GatherGradKernel);
  WIDEN(merged_momentum, MergedMomentumKernel);
  WIDEN(mean_all, MeanAllKernel);
  WIDEN(mean_all_grad, MeanAllGradKernel);
  WIDEN(momentum, MomentumDenseKernel);
  WIDEN(adamw, AdamwDenseKernel);
  WIDEN(check_finite_and_unscale, CheckFiniteAndUnscaleKernel);
  WIDEN(update_loss_scaling, UpdateLossScalingKernel);
}

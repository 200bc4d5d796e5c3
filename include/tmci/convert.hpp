// Ligament: which tensorflow::Tensor a plugin of TMCI sees, and how one is made of a lig_tensor. For backend.hpp.
#ifndef TMCI_CONVERT_HPP
#define TMCI_CONVERT_HPP

#include <cstddef>
#include <cstdint>
#include <vector>

#include <ligament/tensor.h>

#if !defined(TMCI_WITHOUT_TENSORFLOW) && __has_include(<tensorflow/core/framework/tensor.h>)
#define TMCI_TENSORFLOW 1
#include <tensorflow/core/framework/allocation_description.pb.h>
#include <tensorflow/core/framework/tensor.h>
#else
#define TMCI_TENSORFLOW 0
#include <tmci/tensor.hpp>
#endif

namespace tmci {
namespace detail {
#pragma GCC visibility push(hidden) // plugins in one process may have different tensors

inline tensorflow::DataType data_type(uint16_t dtype)
{
    // By lig_dtype; the others reach a plugin as bytes.
    static const int types[LIG_DTYPE_COUNT] = {0, 10, 6,  5,  3,  9,  4, 17, 22, 23, 19, 14, 1, 2,  0,  8, 18,
                                               25, 24, 26, 28, 0, 0, 0,  27, 0,  0,  0,  0,  29, 30, 31, 32};
    return static_cast<tensorflow::DataType>(dtype < LIG_DTYPE_COUNT ? types[dtype] : 0);
}

inline uint16_t lig_type(int type)
{
    for (uint16_t dtype = 1; dtype < LIG_DTYPE_COUNT; dtype++)
        if (static_cast<int>(data_type(dtype)) == type)
            return dtype;
    return LIG_DTYPE_NONE;
}

#if TMCI_TENSORFLOW
// Memory that belongs to the caller of Save and Load.
class Borrowed : public tensorflow::TensorBuffer {
  public:
    Borrowed(void *data, size_t bytes) : TensorBuffer(data), bytes_(bytes) {}
    size_t size() const override { return bytes_; }
    tensorflow::TensorBuffer *root_buffer() override { return this; }
    bool OwnsMemory() const override { return false; }
    void FillAllocationDescription(tensorflow::AllocationDescription *) const override {}

  private:
    size_t bytes_;
};

inline tensorflow::Tensor view(tensorflow::DataType type, const std::vector<int64_t> &shape, const lig_tensor &from)
{
    tensorflow::TensorShape sizes;
    for (int64_t size : shape)
        sizes.AddDim(size);
    auto *buffer = new Borrowed(from.data, from.bytes);
    tensorflow::Tensor made(type, sizes, buffer);
    buffer->Unref(); // the tensor holds it
    return made;
}

inline std::vector<int64_t> shape_of(const tensorflow::Tensor &tensor)
{
    std::vector<int64_t> shape;
    for (int d = 0; d < tensor.dims(); d++)
        shape.push_back(tensor.dim_size(d));
    return shape;
}
#else
inline tensorflow::Tensor view(tensorflow::DataType type, const std::vector<int64_t> &shape, const lig_tensor &from)
{
    return tensorflow::Tensor(type, tensorflow::TensorShape(shape), from.data, from.bytes);
}

inline std::vector<int64_t> shape_of(const tensorflow::Tensor &tensor)
{
    return tensor.shape().dim_sizes();
}
#endif

inline tensorflow::Tensor tensor_of(const lig_tensor &from)
{
    const tensorflow::DataType type = data_type(from.dtype);
    if (type == tensorflow::DT_INVALID)
        return view(tensorflow::DT_UINT8, {static_cast<int64_t>(from.bytes)}, from);
    return view(type, std::vector<int64_t>(from.shape, from.shape + from.ndim), from);
}

#pragma GCC visibility pop
} // namespace detail
} // namespace tmci

#endif

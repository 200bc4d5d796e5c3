// Ligament: tensorflow::Tensor for plugins of TMCI that are compiled without TensorFlow. A view: it owns no memory.
// The members have the names and results of TensorFlow's; flat<T>() returns a span instead of an Eigen map.
#ifndef TMCI_TENSOR_HPP
#define TMCI_TENSOR_HPP

#include <complex>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include <ligament/tensor.h>
#if __cplusplus >= 201703L
#include <string_view>
#endif

namespace tensorflow {

// The inline namespace keeps the symbols apart from those of a TensorFlow that is loaded in the same process.
inline namespace tmci_view {

using int8 = std::int8_t;
using int16 = std::int16_t;
using int32 = std::int32_t;
using int64 = std::int64_t;
using uint8 = std::uint8_t;
using uint16 = std::uint16_t;
using uint32 = std::uint32_t;
using uint64 = std::uint64_t;
using complex64 = std::complex<float>;
using complex128 = std::complex<double>;

// The numbers are those of TensorFlow's types.proto.
enum DataType : int {
    DT_INVALID = 0,
    DT_FLOAT = 1,
    DT_DOUBLE = 2,
    DT_INT32 = 3,
    DT_UINT8 = 4,
    DT_INT16 = 5,
    DT_INT8 = 6,
    DT_STRING = 7,
    DT_COMPLEX64 = 8,
    DT_INT64 = 9,
    DT_BOOL = 10,
    DT_BFLOAT16 = 14,
    DT_UINT16 = 17,
    DT_COMPLEX128 = 18,
    DT_HALF = 19,
    DT_UINT32 = 22,
    DT_UINT64 = 23,
    DT_FLOAT8_E5M2 = 24,
    DT_FLOAT8_E4M3FN = 25,
    DT_FLOAT8_E4M3FNUZ = 26,
    DT_FLOAT8_E4M3B11FNUZ = 27,
    DT_FLOAT8_E5M2FNUZ = 28,
    DT_INT4 = 29,
    DT_UINT4 = 30,
    DT_INT2 = 31,
    DT_UINT2 = 32,
};

// Bytes of one element; 0 for a type without a fixed size.
inline int DataTypeSize(DataType type)
{
    switch (type) {
    case DT_COMPLEX128:
        return 16;
    case DT_DOUBLE:
    case DT_INT64:
    case DT_UINT64:
    case DT_COMPLEX64:
        return 8;
    case DT_FLOAT:
    case DT_INT32:
    case DT_UINT32:
        return 4;
    case DT_INT16:
    case DT_UINT16:
    case DT_HALF:
    case DT_BFLOAT16:
        return 2;
    case DT_INVALID:
    case DT_STRING:
        return 0;
    default:
        return 1;
    }
}

inline std::string DataTypeString(DataType type)
{
    static const char *const names[] = {
        "INVALID",       "float",         "double",          "int32",  "uint8",     "int16", "int8",
        "string",        "complex64",     "int64",           "bool",   "",          "",      "",
        "bfloat16",      "",              "",                "uint16", "complex128", "half", "",
        "",              "uint32",        "uint64",          "float8_e5m2", "float8_e4m3fn",
        "float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e5m2fnuz", "int4", "uint4", "int2", "uint2"};
    return names[type];
}

#if __cplusplus >= 201703L
using StringPiece = std::string_view;
#else
class StringPiece {
  public:
    StringPiece() = default;
    StringPiece(const char *data, std::size_t size) : data_(data), size_(size) {}
    const char *data() const { return data_; }
    std::size_t size() const { return size_; }
    std::size_t length() const { return size_; }
    bool empty() const { return size_ == 0; }
    const char *begin() const { return data_; }
    const char *end() const { return data_ + size_; }
    char operator[](std::size_t i) const { return data_[i]; }
    explicit operator std::string() const { return std::string(data_, size_); }

  private:
    const char *data_ = nullptr;
    std::size_t size_ = 0;
};
#endif

class TensorShape {
  public:
    TensorShape() = default;
    explicit TensorShape(std::vector<std::int64_t> sizes) : sizes_(std::move(sizes)) {}
    int dims() const { return static_cast<int>(sizes_.size()); }
    std::int64_t dim_size(int d) const { return sizes_[static_cast<std::size_t>(d)]; }
    const std::vector<std::int64_t> &dim_sizes() const { return sizes_; }
    std::int64_t num_elements() const
    {
        std::int64_t count = 1;
        for (std::int64_t size : sizes_)
            count *= size;
        return count;
    }
    std::string DebugString() const
    {
        std::string text = "[";
        for (std::size_t i = 0; i < sizes_.size(); i++)
            text += (i ? "," : "") + std::to_string(sizes_[i]);
        return text + "]";
    }
    bool operator==(const TensorShape &other) const { return sizes_ == other.sizes_; }
    bool operator!=(const TensorShape &other) const { return sizes_ != other.sizes_; }

  private:
    std::vector<std::int64_t> sizes_;
};

// Elements one after another: what flat<T>() returns.
template <typename T> class TensorSpan {
  public:
    TensorSpan(T *data, std::int64_t size) : data_(data), size_(size) {}
    T *data() const { return data_; }
    std::int64_t size() const { return size_; }
    T *begin() const { return data_; }
    T *end() const { return data_ + size_; }
    T &operator()(std::int64_t i) const { return data_[i]; }
    T &operator[](std::int64_t i) const { return data_[i]; }

  private:
    T *data_;
    std::int64_t size_;
};

class Tensor {
  public:
    Tensor() = default;
    Tensor(DataType type, TensorShape shape, void *data, std::size_t bytes)
        : type_(type), shape_(std::move(shape)), data_(data), bytes_(bytes)
    {
    }
    DataType dtype() const { return type_; }
    const TensorShape &shape() const { return shape_; }
    int dims() const { return shape_.dims(); }
    std::int64_t dim_size(int d) const { return shape_.dim_size(d); }
    std::int64_t NumElements() const { return shape_.num_elements(); }
    bool IsSameSize(const Tensor &other) const { return shape_ == other.shape_; }
    bool SharesBufferWith(const Tensor &other) const { return data_ != nullptr && data_ == other.data_; }
    bool IsInitialized() const { return data_ != nullptr || bytes_ == 0; }
    bool IsAligned() const { return reinterpret_cast<std::uintptr_t>(data_) % 64 == 0; }
    std::size_t TotalBytes() const { return bytes_; }
    std::size_t AllocatedBytes() const { return bytes_; }
    void *data() const { return data_; }
    StringPiece tensor_data() const { return StringPiece(static_cast<const char *>(data_), bytes_); }
    template <typename T> TensorSpan<T> flat() { return {static_cast<T *>(data_), NumElements()}; }
    template <typename T> TensorSpan<const T> flat() const
    {
        return {static_cast<const T *>(data_), NumElements()};
    }
    std::string DebugString() const
    {
        return "Tensor<type: " + DataTypeString(type_) + " shape: " + shape_.DebugString() + ">";
    }

  private:
    DataType type_ = DT_FLOAT;
    TensorShape shape_;
    void *data_ = nullptr;
    std::size_t bytes_ = 0;
};

} // namespace tmci_view
} // namespace tensorflow

#endif

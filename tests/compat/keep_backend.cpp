// A plugin as TMCI's users write them: no header of TensorFlow is included, and <iostream> and <string> come with
// tmci/backend.hpp.
#include <cstring>
#include <map>
#include <tmci/backend.hpp>

using Tensors = std::vector<std::reference_wrapper<const tensorflow::Tensor>>;

// Keeps bytes by position. The configuration names the set, or a failure.
class KeepBackend : public tmci::Backend {
  public:
    explicit KeepBackend(const char *config) : config_(config)
    {
        if (config_ == "refused")
            throw std::invalid_argument("the configuration is refused");
        if (config_ == "odd")
            throw 5;
    }
    ~KeepBackend() override = default;

    virtual int Save(const Tensors &tensors)
    {
        if (config_ == "full")
            return 28;
        if (config_ == "broken")
            throw std::runtime_error("the disk is broken");
        auto &kept = sets()[config_];
        kept.clear();
        for (const tensorflow::Tensor &t : tensors)
            kept.emplace_back(t.tensor_data().data(), t.tensor_data().size());
        return 0;
    }

    virtual int Load(const Tensors &tensors)
    {
        const auto &kept = sets()[config_];
        if (kept.size() != tensors.size())
            return 2;
        for (size_t i = 0; i < kept.size(); i++) {
            const tensorflow::Tensor &t = tensors[i];
            if (t.TotalBytes() != kept[i].size())
                return 22;
            std::memcpy(const_cast<char *>(t.tensor_data().data()), kept[i].data(), kept[i].size());
        }
        return 0;
    }

  private:
    static std::map<std::string, std::vector<std::string>> &sets()
    {
        static std::map<std::string, std::vector<std::string>> all;
        return all;
    }
    std::string config_;
};

// Describes the tensors in the file that the configuration names.
class DescribeBackend : public tmci::Backend {
  public:
    explicit DescribeBackend(const char *config) : path_(config) {}
    int Save(const Tensors &tensors) override
    {
        FILE *out = std::fopen(path_.c_str(), "w");
        for (const tensorflow::Tensor &t : tensors)
            std::fprintf(out, "%s %s %d %lld %zu %d\n", tensorflow::DataTypeString(t.dtype()).c_str(),
                         t.shape().DebugString().c_str(), t.dims(), static_cast<long long>(t.NumElements()),
                         t.TotalBytes(), t.NumElements() > 0 && t.dtype() == tensorflow::DT_FLOAT
                                             ? static_cast<int>(t.flat<float>()(t.NumElements() - 1))
                                             : -1);
        return std::fclose(out);
    }
    int Load(const Tensors &) override { return 0; }

  private:
    std::string path_;
};

// Another backend, named before the colon, with the configuration after it.
class WrapBackend : public tmci::Backend {
  public:
    explicit WrapBackend(const char *config)
    {
        const std::string text(config);
        const size_t colon = text.find(':');
        inner_ = tmci::Backend::Create(text.substr(0, colon).c_str(), text.substr(colon + 1).c_str());
    }
    int Save(const Tensors &tensors) override { return inner_->Save(tensors); }
    int Load(const Tensors &tensors) override { return inner_->Load(tensors); }

  private:
    std::unique_ptr<tmci::Backend> inner_;
};

TMCI_REGISTER_BACKEND(keep, KeepBackend);
TMCI_REGISTER_BACKEND(describe, DescribeBackend);
TMCI_REGISTER_BACKEND(wrap, WrapBackend);

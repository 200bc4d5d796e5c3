// Ligament: TMCI's interface for plugins, over <ligament/plugin.h>. A plugin written for TMCI compiles unchanged and
// registers with Ligament:
//
//     c++ -shared -fPIC $(ligament info --cflags) DummyBackend.cpp -o libdummy.so
//
// C++14 or later; nothing to link. tensorflow::Tensor is TensorFlow's where its headers are found, and then the
// compiler needs TensorFlow's flags (tf.sysconfig.get_compile_flags()). Otherwise, and if TMCI_WITHOUT_TENSORFLOW is
// defined, it is the view in <tmci/tensor.hpp>.
#ifndef TMCI_BACKEND_HPP
#define TMCI_BACKEND_HPP

#include <deque>
#include <exception>
#include <functional>
#include <iostream>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include <ligament/plugin.h>

#include <tmci/convert.hpp>

// Weak, because every file of a plugin that includes this header has it; hidden by plugin.h.
[[gnu::weak]] const lig_plugin_host *lig_plugin_table = nullptr;

namespace tmci {

using Tensors = std::vector<std::reference_wrapper<const tensorflow::Tensor>>;
template <typename T> class BackendRegistry;

// A backend. It is constructed with the configuration, a const char * that ends with NUL. One thread at a time calls
// an instance.
class Backend {
  public:
    using Factory = std::function<std::unique_ptr<Backend>(const char *)>;

    Backend() = default;
    virtual ~Backend() = default;

    // Saves the tensors. Returns 0, or a number that the error message contains.
    virtual int Save(const std::vector<std::reference_wrapper<const tensorflow::Tensor>> &tensors) = 0;

    // Fills the tensors, whose memory may be written although they are const. A tensor that is not written keeps its
    // values. Returns as Save.
    virtual int Load(const std::vector<std::reference_wrapper<const tensorflow::Tensor>> &tensors) = 0;

    // A backend of this library, or of another plugin that Ligament has loaded. Throws std::invalid_argument for an
    // unknown name and std::runtime_error if it cannot be opened.
    static std::unique_ptr<Backend> Create(const char *name, const char *config);

  private:
    template <typename T> friend class BackendRegistry;
    static void RegisterFactory(const char *name, const lig_backend_ops *ops, Factory factory);
};

namespace detail {
#pragma GCC visibility push(hidden) // plugins in one process do not share it

struct Registry {
    std::deque<lig_plugin> entries; // the loader keeps their addresses
    std::deque<std::string> names;
    std::unordered_map<std::string, Backend::Factory> factories;
};

inline Registry &registry()
{
    static Registry *made = new Registry; // never destroyed: instances may be closed at exit
    return *made;
}

// A call of the user's class. Exceptions end here: Ligament is C.
template <typename Call> lig_status guarded(const char *what, Call call)
{
    try {
        return call();
    } catch (const std::bad_alloc &) {
        return lig_fail(LIG_E_NOMEM, "%s: out of memory", what);
    } catch (const std::invalid_argument &error) {
        return lig_fail(LIG_E_INVALID, "%s: %s", what, error.what());
    } catch (const std::exception &error) {
        return lig_fail(LIG_E_IO, "%s: %s", what, error.what());
    } catch (...) {
        return lig_fail(LIG_E_IO, "%s: unknown exception", what);
    }
}

template <typename Call> lig_status with_tensors(const char *what, const lig_tensor *from, size_t count, Call call)
{
    return guarded(what, [&] {
        std::vector<tensorflow::Tensor> tensors;
        tensors.reserve(count);
        for (size_t i = 0; i < count; i++)
            tensors.push_back(tensor_of(from[i]));
        const int result = call(Tensors(tensors.begin(), tensors.end()));
        return result == 0 ? LIG_OK : lig_fail(LIG_E_IO, "%s returned %d", what, result);
    });
}

template <typename T> struct Operations {
    static lig_status open(void **self, const char *config)
    {
        return guarded("backend constructor", [&] {
            *self = static_cast<Backend *>(new T(config));
            return LIG_OK;
        });
    }
    static lig_status save(void *self, const char *, const lig_tensor *tensors, size_t count)
    {
        return with_tensors("Save", tensors, count,
                            [&](const Tensors &all) { return static_cast<Backend *>(self)->Save(all); });
    }
    static lig_status load(void *self, const char *, const lig_tensor *tensors, size_t count)
    {
        return with_tensors("Load", tensors, count,
                            [&](const Tensors &all) { return static_cast<Backend *>(self)->Load(all); });
    }
    static void close(void *self) { delete static_cast<Backend *>(self); }
    static const lig_backend_ops *table()
    {
        static const lig_backend_ops ops = [] {
            lig_backend_ops made = {};
            made.open = open;
            made.save = save;
            made.load = load;
            made.close = close;
            return made;
        }();
        return &ops;
    }
};

// A backend of another library, through Ligament. Its tensors are named by their position.
class Foreign : public Backend {
  public:
    Foreign(const char *name, const char *config) : text_(name)
    {
        const lig_status status = lig_plugin_table->backend_open(&backend_, name, config);
        if (status == LIG_E_NOTFOUND)
            throw std::invalid_argument("TMCI backend \"" + text_ + "\" not found");
        check(status, "open");
    }
    ~Foreign() override { lig_plugin_table->backend_close(backend_); }
    int Save(const Tensors &tensors) override
    {
        check(call(lig_plugin_table->backend_save, tensors), "Save");
        return 0;
    }
    int Load(const Tensors &tensors) override
    {
        check(call(lig_plugin_table->backend_load, tensors), "Load");
        return 0;
    }

  private:
    using Function = lig_status (*)(lig_backend *, const char *, const lig_tensor *, size_t);
    lig_status call(Function function, const Tensors &tensors)
    {
        const size_t count = tensors.size();
        std::vector<std::string> names(count);
        std::vector<std::vector<int64_t>> shapes(count);
        std::vector<lig_tensor> made(count);
        for (size_t i = 0; i < count; i++) {
            const tensorflow::Tensor &tensor = tensors[i];
            names[i] = std::to_string(i);
            shapes[i] = shape_of(tensor);
            made[i].name = names[i].c_str();
            made[i].data = const_cast<char *>(tensor.tensor_data().data());
            made[i].bytes = tensor.tensor_data().size();
            made[i].shape = shapes[i].data();
            made[i].ndim = static_cast<uint32_t>(shapes[i].size());
            made[i].dtype = lig_type(static_cast<int>(tensor.dtype()));
        }
        return function(backend_, "weights", made.data(), count);
    }
    void check(lig_status status, const char *what) const
    {
        if (status != LIG_OK)
            throw std::runtime_error("backend '" + text_ + "': " + what + ": " + lig_plugin_table->error_text());
    }

    std::string text_;
    lig_backend *backend_ = nullptr;
};

#pragma GCC visibility pop
} // namespace detail

inline std::unique_ptr<Backend> Backend::Create(const char *name, const char *config)
{
    const detail::Registry &known = detail::registry();
    const auto found = known.factories.find(name);
    if (found != known.factories.end())
        return found->second(config);
    if (lig_plugin_table == nullptr || lig_plugin_table->struct_bytes < sizeof(lig_plugin_host))
        throw std::invalid_argument(std::string("TMCI backend \"") + name + "\" not found");
    return std::unique_ptr<Backend>(new detail::Foreign(name, config));
}

} // namespace tmci

// What the loader looks for. Weak, because every file of a plugin that includes this header has it.
extern "C" [[gnu::weak, gnu::visibility("default")]] lig_plugin *lig_plugin_at(size_t index);
extern "C" lig_plugin *lig_plugin_at(size_t index)
{
    auto &entries = tmci::detail::registry().entries;
    return index < entries.size() ? &entries[index] : nullptr;
}

namespace tmci {

inline void Backend::RegisterFactory(const char *name, const lig_backend_ops *ops, Factory factory)
{
    detail::Registry &known = detail::registry();
    known.names.emplace_back(name);
    known.entries.push_back({LIG_PLUGIN_ABI, sizeof(lig_plugin), sizeof(lig_backend_ops), sizeof(lig_tensor),
                             known.names.back().c_str(), ops, &lig_plugin_table});
    known.factories.emplace(name, std::move(factory));
}

template <typename T> class BackendRegistry {
  public:
    explicit BackendRegistry(const char *name)
    {
        Backend::RegisterFactory(name, detail::Operations<T>::table(),
                                 [](const char *config) { return std::unique_ptr<Backend>(new T(config)); });
    }
};

} // namespace tmci

// Registers a class under a name, which is written as an identifier. A library may register several.
#define TMCI_REGISTER_BACKEND(NAME, CLASS) static tmci::BackendRegistry<CLASS> tmci_registration_##NAME(#NAME);

#endif

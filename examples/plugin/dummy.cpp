// The same backend in C++20. Exceptions end at the border: Ligament is C.
#include <cstring>
#include <exception>
#include <map>
#include <new>
#include <string>
#include <vector>

#include <ligament/plugin.h>

namespace {

using set = std::map<std::string, std::vector<char>>;
using sets = std::map<std::string, set>;

lig_status dummy_open(void **self, const char *)
{
    *self = new (std::nothrow) sets;
    return *self != nullptr ? LIG_OK : lig_fail(LIG_E_NOMEM, "dummy_cpp: no memory");
}

lig_status dummy_save(void *self, const char *name, const lig_tensor *tensors, size_t count)
try {
    set made;
    for (size_t i = 0; i < count; i++) {
        auto *data = static_cast<const char *>(tensors[i].data);
        made[tensors[i].name].assign(data, data + tensors[i].bytes);
    }
    (*static_cast<sets *>(self))[name].swap(made);
    return LIG_OK;
} catch (const std::exception &failure) {
    return lig_fail(LIG_E_NOMEM, "dummy_cpp: %s", failure.what());
}

lig_status dummy_load(void *self, const char *name, const lig_tensor *tensors, size_t count)
try {
    auto &all = *static_cast<sets *>(self);
    auto from = all.find(name);
    if (from == all.end())
        return lig_fail(LIG_E_NOTFOUND, "dummy_cpp: there is no set '%s'", name);
    for (size_t i = 0; i < count; i++) { // all are checked before the first byte moves
        auto found = from->second.find(tensors[i].name);
        if (found == from->second.end())
            return lig_fail(LIG_E_NOTFOUND, "dummy_cpp: no tensor '%s' in '%s'", tensors[i].name, name);
        if (found->second.size() != tensors[i].bytes)
            return lig_fail(LIG_E_MISMATCH, "dummy_cpp: '%s' has a different size", tensors[i].name);
    }
    for (size_t i = 0; i < count; i++)
        if (const auto &data = from->second.at(tensors[i].name); !data.empty())
            std::memcpy(tensors[i].data, data.data(), data.size());
    return LIG_OK;
} catch (const std::exception &failure) {
    return lig_fail(LIG_E_INTERNAL, "dummy_cpp: %s", failure.what());
}

void dummy_close(void *self)
{
    delete static_cast<sets *>(self);
}

} // namespace

LIG_REGISTER_BACKEND(dummy_cpp, .open = dummy_open, .save = dummy_save, .load = dummy_load,
                     .close = dummy_close)

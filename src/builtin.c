#include "backend/registry.h"
#include "backend/remote/engine_load.h"
#include "backend/remote/remote_volume.h"
#include "net/transport.h"

#define BACKEND(name) extern const lig_backend_ops ligi_backend_##name;
#define TRANSPORT(name) extern const ligi_transport_ops ligi_transport_##name;
#define LOADED(name)
#define ENGINE(name, package)                                                                      \
    static lig_status open_##name(void **self, const char *config)                                 \
    {                                                                                              \
        const ligi_engine_ops *ops = NULL;                                                         \
        LIG_TRY(ligi_engine_load(#name, package, &ops));                                           \
        return ligi_remote_open(ops, config, self);                                                \
    }                                                                                              \
    static const lig_backend_ops engine_##name = {.open = open_##name,                             \
                                                  .close = ligi_remote_close,                      \
                                                  .volume = &ligi_remote_volume_ops,               \
                                                  .options = ligi_remote_shown_options};
#include "builtin.def"
#undef BACKEND
#undef TRANSPORT
#undef ENGINE

#define BACKEND(name) {#name, &ligi_backend_##name},
#define TRANSPORT(name)
#define ENGINE(name, package) {#name, &engine_##name},
const ligi_builtin ligi_builtins[] = {
#include "builtin.def"
    {NULL, NULL},
};
#undef BACKEND
#undef TRANSPORT
#undef ENGINE

#define BACKEND(name)
#define ENGINE(name, package)
#define TRANSPORT(name) &ligi_transport_##name,
const ligi_transport_ops *const ligi_transports[] = {
#include "builtin.def"
    NULL,
};
#undef TRANSPORT
#undef LOADED

#define TRANSPORT(name)
#define LOADED(name) #name,
const char *const ligi_transports_loaded[] = {
#include "builtin.def"
    NULL,
};

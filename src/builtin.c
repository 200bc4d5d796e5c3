#include "backend/registry.h"
#include "net/transport.h"

#define BACKEND(name) extern const lig_backend_ops ligi_backend_##name;
#define TRANSPORT(name) extern const ligi_transport_ops ligi_transport_##name;
#define LOADED(name)
#include "builtin.def"
#undef BACKEND
#undef TRANSPORT

#define BACKEND(name) {#name, &ligi_backend_##name},
#define TRANSPORT(name)
const ligi_builtin ligi_builtins[] = {
#include "builtin.def"
    {NULL, NULL},
};
#undef BACKEND
#undef TRANSPORT

#define BACKEND(name)
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

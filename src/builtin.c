#include "backend/registry.h"

#define BACKEND(name) extern const lig_backend_ops ligi_backend_##name;
#include "builtin.def"
#undef BACKEND

#define BACKEND(name) {#name, &ligi_backend_##name},
const ligi_builtin ligi_builtins[] = {
#include "builtin.def"
    {NULL, NULL},
};

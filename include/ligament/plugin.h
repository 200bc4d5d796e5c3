/* Ligament: a backend as a shared library. A plugin includes only this header of Ligament:
 *
 *     #include <ligament/plugin.h>
 *     static lig_status dummy_save(void *self, const char *set, const lig_tensor *tensors, size_t count) { ... }
 *     static lig_status dummy_load(void *self, const char *set, const lig_tensor *tensors, size_t count) { ... }
 *     LIG_REGISTER_BACKEND(dummy, .save = dummy_save, .load = dummy_load)
 *
 *     cc -shared -fPIC $(pkg-config --cflags ligament) dummy.c -o libdummy.so
 *
 * It links with nothing: lig_fail and lig_log go through a table that the loader fills. In C++ (20 or later, for the
 * designated initialisers) name the members in the order of lig_backend_ops. `ligament plugin-test libdummy.so`
 * runs the conformance suite on it. */
#ifndef LIGAMENT_PLUGIN_H
#define LIGAMENT_PLUGIN_H

#include <ligament/backend.h>

#define LIG_PLUGIN_ABI 2u

typedef struct lig_plugin_host { /* grows at its end only */
    uint32_t struct_bytes;
    uint32_t abi;
    lig_status (*fail)(lig_status status, const char *format, ...) LIG_PRINTF(2, 3);
    void (*log)(lig_log_level level, const char *format, ...) LIG_PRINTF(2, 3);
    uint64_t (*hash_block)(const void *secret, const void *data, uint64_t bytes);
    /* Other backends by name: lig_backend_open and so on, and lig_error_text. */
    lig_status (*backend_open)(lig_backend **backend, const char *name, const char *config);
    lig_status (*backend_save)(lig_backend *backend, const char *set, const lig_tensor *tensors, size_t count);
    lig_status (*backend_load)(lig_backend *backend, const char *set, const lig_tensor *tensors, size_t count);
    void (*backend_close)(lig_backend *backend);
    const char *(*error_text)(void);
} lig_plugin_host;

typedef struct lig_plugin {
    uint32_t abi;          /* LIG_PLUGIN_ABI the plugin was built with */
    uint32_t struct_bytes; /* sizeof(lig_plugin) */
    uint32_t ops_bytes;    /* sizeof(lig_backend_ops) */
    uint32_t tensor_bytes; /* sizeof(lig_tensor) */
    const char *name;      /* also the scheme of its URIs: a letter, then letters, digits, '_' */
    const lig_backend_ops *ops;
    const lig_plugin_host **host; /* the loader stores the table here */
} lig_plugin;

#ifdef __cplusplus
#define LIG_PLUGIN_C_ extern "C"
#else
#define LIG_PLUGIN_C_
#endif

/* A library with several backends exports, instead of lig_plugin_entry, a function lig_plugin_at that returns entry
 * number `index` and NULL past the last one. */
typedef lig_plugin *(*lig_plugin_at_function)(size_t index);

/* Defined by LIG_REGISTER_BACKEND in one file of the plugin; hidden, so that two plugins do not share it. */
extern __attribute__((visibility("hidden"))) const lig_plugin_host *lig_plugin_table;

#define lig_fail lig_plugin_table->fail
#define lig_log lig_plugin_table->log
#define lig_hash_block lig_plugin_table->hash_block

#define LIG_REGISTER_BACKEND(NAME, ...)                                                                                \
    const lig_plugin_host *lig_plugin_table;                                                                           \
    static const lig_backend_ops lig_plugin_ops_ = {__VA_ARGS__};                                                      \
    LIG_PLUGIN_C_ __attribute__((visibility("default"))) lig_plugin lig_plugin_entry;                                  \
    lig_plugin lig_plugin_entry = {LIG_PLUGIN_ABI, sizeof(lig_plugin), sizeof(lig_backend_ops), sizeof(lig_tensor),    \
                                   #NAME,          &lig_plugin_ops_,   &lig_plugin_table};

#endif

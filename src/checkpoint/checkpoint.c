#include <ligament/checkpoint.h>

#include "base/error.h"
#include "store/load/load_tensors.h"
#include "store/load/read_ranges.h"

#include <ligament/store.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One of the two is set. */
struct lig_checkpoint {
    lig_store *store;
    lig_backend *backend;
};

/* "name:config", or a URI or path with further options. */
static lig_status make_uri(const char *backend, const char *between, const char *config, char **uri)
{
    size_t bytes = strlen(backend) + strlen(config) + 2;
    LIG_TRY(ligi_alloc(uri, bytes, "a URI"));
    snprintf(*uri, bytes, "%s%s%s", backend, between, config);
    return LIG_OK;
}

static lig_status open_store(lig_checkpoint *self, const char *backend, const char *between,
                             const char *config)
{
    char *uri;
    LIG_TRY(make_uri(backend, between, config, &uri));
    lig_status status = lig_store_open(&self->store, uri);
    free(uri);
    return status;
}

/* Text after '?' that is not an option would become part of a folder's name. */
static lig_status open_place(lig_checkpoint *self, const char *place, const char *config)
{
    if (config[0] == '\0')
        return open_store(self, place, "", "");
    if (strchr(config, '=') == NULL)
        return lig_fail(LIG_E_INVALID,
                        "invalid config '%s': no backend '%s' is loaded, and the options of a "
                        "store have the form key=value",
                        config, place);
    return open_store(self, place, strchr(place, '?') ? "&" : "?", config);
}

static lig_status open_either(lig_checkpoint *self, const char *backend, const char *config)
{
    const lig_backend_ops *ops = lig_backend_find(backend);
    if (ops == NULL)
        return open_place(self, backend, config);
    return ops->volume ? open_store(self, backend, ":", config)
                       : lig_backend_open(&self->backend, backend, config);
}

lig_status lig_checkpoint_open(lig_checkpoint **out, const char *backend, const char *config)
{
    if (backend == NULL || backend[0] == '\0')
        return lig_fail(LIG_E_INVALID, "backend is NULL or empty: expected the name of a backend, "
                                       "or the path or URI of a store");
    lig_checkpoint *self;
    LIG_TRY(ligi_calloc(&self, 1, sizeof *self, "a checkpoint"));
    lig_status status = open_either(self, backend, config ? config : "");
    if (status == LIG_OK)
        *out = self;
    else
        free(self);
    return status;
}

void lig_checkpoint_close(lig_checkpoint *self)
{
    if (self == NULL)
        return;
    lig_store_close(self->store);
    if (self->backend)
        lig_backend_close(self->backend);
    free(self);
}

lig_status lig_checkpoint_save(lig_checkpoint *self, const char *set, const lig_tensor *tensors,
                               size_t count)
{
    if (self->backend)
        return lig_backend_save(self->backend, set, tensors, count);
    lig_save_options options = LIG_SAVE_INIT;
    options.flags = LIG_SAVE_REPLACE;
    lig_status status = lig_store_save(self->store, set, tensors, count, &options);
    if (status != LIG_E_EXISTS)
        return status;
    LIG_TRY(
        lig_store_alias(self->store, set, NULL)); /* an alias too is replaced by what is saved */
    return lig_store_save(self->store, set, tensors, count, &options);
}

lig_status lig_checkpoint_load(lig_checkpoint *self, const char *set, const lig_tensor *tensors,
                               size_t count)
{
    if (self->backend)
        return lig_backend_load(self->backend, set, tensors, count);
    return ligi_store_load_exact(self->store, set, tensors, count);
}

lig_status lig_checkpoint_load_part(lig_checkpoint *self, const char *set,
                                    const lig_tensor *tensors, size_t count)
{
    if (self->backend)
        return lig_backend_load(self->backend, set, tensors, count);
    return lig_store_load(self->store, set, tensors, count);
}

lig_status lig_checkpoint_model(lig_checkpoint *self, const char *set, lig_model **model)
{
    if (self->backend)
        return lig_fail(LIG_E_UNSUPPORTED,
                        "set '%s': its backend is not a store and cannot describe it", set);
    return lig_store_model(self->store, set, model);
}

lig_status lig_checkpoint_drop(lig_checkpoint *self, const char *set)
{
    if (self->backend)
        return lig_backend_drop(self->backend, set);
    return lig_store_retire(self->store, set);
}

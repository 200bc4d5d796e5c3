#include "store/catalog/model_graphs.h"

#include <string.h>

lig_status ligi_graphs_make(ligi_graphs *graphs, const lig_graph *from, size_t from_count,
                            const lig_tensor *tensors, size_t count)
{
    if (from_count > LIGI_GRAPHS_MAX)
        return lig_fail(LIG_E_LIMIT, "a model can have at most %d graphs, not %zu", LIGI_GRAPHS_MAX,
                        from_count);
    for (size_t i = 0; i < from_count; i++) {
        if (from[i].kind && ligi_graphs_kind(graphs, from[i].kind))
            return lig_fail(LIG_E_INVALID, "a model cannot have two graphs of the kind '%s'",
                            from[i].kind);
        graphs->count++;
        LIG_TRY(ligi_layers_make(&graphs->graphs[i], &from[i], tensors, count));
    }
    return LIG_OK;
}

lig_status ligi_graphs_get(const void *bytes, size_t size, ligi_graphs *graphs)
{
    ligi_reader reader = {.data = bytes, .bytes = size};
    uint64_t count = ligi_get_varint(&reader);
    if (reader.failed || count > LIGI_GRAPHS_MAX)
        return lig_fail(LIG_E_CORRUPT, "invalid graphs of a model");
    for (uint64_t i = 0; i < count; i++) {
        graphs->count++;
        LIG_TRY(ligi_layers_get(&reader, &graphs->graphs[i]));
    }
    if (reader.at != size)
        return lig_fail(LIG_E_CORRUPT, "invalid graphs of a model: wrong length");
    return LIG_OK;
}

lig_status ligi_graphs_read(const ligi_catalog_view *view, uint64_t id, ligi_graphs *graphs)
{
    ligi_catalog_key key = ligi_catalog_key_id(LIGI_TABLE_GRAPH, id);
    lig_catalog_item item;
    lig_status status = ligi_catalog_view_get(view, &key, &item);
    if (status == LIG_E_NOTFOUND)
        return LIG_OK;
    LIG_TRY(status);
    ligi_reader reader;
    LIG_TRY(ligi_value_open(&item, view->store->secret, &reader));
    return ligi_graphs_get(reader.data + reader.at, reader.bytes - reader.at, graphs);
}

void ligi_graphs_fini(ligi_graphs *graphs)
{
    for (size_t i = 0; i < graphs->count; i++)
        ligi_layers_fini(&graphs->graphs[i]);
    graphs->count = 0;
}

void ligi_graphs_put(ligi_writer *writer, const ligi_graphs *graphs)
{
    ligi_put_varint(writer, graphs->count);
    for (size_t i = 0; i < graphs->count; i++)
        ligi_layers_put(writer, &graphs->graphs[i]);
}

const ligi_layers *ligi_graphs_kind(const ligi_graphs *graphs, const char *kind)
{
    for (size_t i = 0; i < graphs->count; i++)
        if (graphs->graphs[i].kind && strcmp(graphs->graphs[i].kind, kind) == 0)
            return &graphs->graphs[i];
    return NULL;
}

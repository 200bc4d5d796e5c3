#include "store/serve/client/client_find.h"

#include "base/error.h"
#include "store/find/find.h"
#include "store/serve/client/client_models.h"
#include "store/serve/message/served_find.h"

#include <stdlib.h>

/* The server is not trusted with indexes into our memory. */
static lig_status check_match(const ligi_served_match *from, const ligi_layers *asking,
                              const lig_ref *ref)
{
    size_t tensors = lig_ref_model(ref)->tensor_count;
    for (size_t i = 0; i < from->tensor_count; i++)
        if (from->tensors[i].stored >= tensors)
            return lig_fail(LIG_E_CORRUPT, "invalid match: tensor %zu of %zu",
                            from->tensors[i].stored, tensors);
    for (size_t i = 0; asking && i < from->layer_count; i++)
        if (from->layers[i] >= asking->graph.layer_count)
            return lig_fail(LIG_E_CORRUPT, "invalid match: layer %u of %u", from->layers[i],
                            asking->graph.layer_count);
    return LIG_OK;
}

static lig_status take_match(lig_store *store, const ligi_client_call *call,
                             const ligi_served_match *from, const ligi_layers *asking,
                             lig_match **out)
{
    lig_ref *ref;
    LIG_TRY(ligi_client_ref(store, call, &from->model, &ref));
    lig_status status = check_match(from, asking, ref);
    if (status != LIG_OK) {
        lig_ref_release(ref);
        return status;
    }
    const ligi_match_parts parts = {.ref = ref,
                                    .layers = from->layers,
                                    .layer_count = from->layer_count,
                                    .tensors = from->tensors,
                                    .tensor_count = from->tensor_count,
                                    .bytes = from->bytes,
                                    .expires_ns = from->expires_ns};
    return ligi_match_make(&parts, out);
}

static lig_status take_matches(lig_store *store, const ligi_client_call *call,
                               const ligi_served_matches *from, const ligi_layers *asking,
                               lig_match ***out)
{
    lig_match **matches;
    LIG_TRY(ligi_calloc(&matches, from->count + 1, sizeof *matches, "a search"));
    lig_status status = LIG_OK;
    size_t made = 0;
    for (; made < from->count && status == LIG_OK; made++)
        status = take_match(store, call, &from->matches[made], asking, &matches[made]);
    if (status == LIG_OK) {
        *out = matches;
        return LIG_OK;
    }
    for (size_t i = made; i < from->count; i++)
        if (from->matches[i].model.ref)
            ligi_client_ref_release(store, (ligi_lease){call->session, from->matches[i].model.ref});
    lig_matches_destroy(matches, made - 1);
    return status;
}

lig_status ligi_client_find(lig_store *store, const ligi_layers *asking, const char *like,
                            const lig_find_options *options, lig_match ***matches, size_t *count)
{
    ligi_client_call call = {.op = LIGI_SERVED_FIND, .interrupt = &store->interrupt};
    ligi_writer layers = {0};
    ligi_served_matches found = {0};
    if (asking)
        ligi_layers_put(&layers, asking);
    ligi_served_find ask = {
        .like = like, .layers = layers.data, .layer_bytes = layers.bytes, .options = *options};
    lig_status status = layers.status;
    if (status == LIG_OK) {
        ligi_served_find_put(&call.body, &ask);
        status = ligi_client_ask(ligi_client_of(store), &call);
    }
    if (status == LIG_OK)
        status = ligi_served_matches_get(call.reply, call.reply_bytes, &found);
    if (status == LIG_OK)
        status = take_matches(store, &call, &found, asking, matches);
    if (status == LIG_OK)
        *count = found.count;
    ligi_served_matches_fini(&found);
    ligi_client_call_fini(&call);
    ligi_writer_fini(&layers);
    return status;
}

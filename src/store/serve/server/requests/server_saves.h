/* SAVE and JOIN: from a description that a client sent to a plan, and from what was saved to the
 * reply. */
#ifndef LIGI_SERVER_SAVES_H
#define LIGI_SERVER_SAVES_H

#include "store/catalog/request_table.h"
#include "store/save/save.h"
#include "store/serve/message/served_save.h"
#include "store/serve/server/server_state.h"

lig_status ligi_served_save_run(ligi_served_call *call);
lig_status ligi_served_join_run(ligi_served_call *call);

/* One save, from its description to its result. Zeroed is empty; ligi_served_saving_fini. */
typedef struct ligi_served_saving {
    ligi_served_save what;
    lig_tensor *tensors; /* a copy, with data */
    lig_box *boxes;
    char *parent; /* the name of the match's model, when the session no longer has the match */
    ligi_served_held *match;
    struct ligi_once once;
    ligi_plan plan;
    lig_part *part; /* what was saved, as the client requested it */
    lig_ref *ref;
    lig_model *model;
} ligi_served_saving;

/* Validates everything that can be checked before any data is transferred. `data`: the bytes of all
 * tensors, tied ones once; NULL: they come later. */
lig_status ligi_served_saving_prepare(ligi_served_saving *saving, ligi_served_call *call,
                                      const uint8_t *data);
/* Writes the reply to the call's body; objects that the client holds from now on are listed in its
 * session. */
lig_status ligi_served_saving_reply(ligi_served_saving *saving, ligi_served_call *call);
/* The same for a save that was done before. */
lig_status ligi_served_saving_repeat(ligi_served_saving *saving, ligi_served_call *call);
void ligi_served_saving_fini(ligi_served_saving *saving, lig_store *store);

#endif

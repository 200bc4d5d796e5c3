/* Answers the server's requests for block hashes or bytes during a save. */
#ifndef LIGI_CLIENT_NEED_H
#define LIGI_CLIENT_NEED_H

#include "store/save/save_source.h"
#include "store/serve/client/client_request.h"

typedef struct ligi_client_saving {
    ligi_client *client;
    ligi_client_call *call;
    const void *secret; /* of the store: keys the hashes */
    const ligi_plan *plan;
    const ligi_source *source;
} ligi_client_saving;

/* Sends the DATA for one NEED. */
lig_status ligi_client_answer(const ligi_client_saving *saving, const ligi_client_message *need);

#endif

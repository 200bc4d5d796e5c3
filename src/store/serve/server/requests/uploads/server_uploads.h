/* Large saves: the server requests the data it lacks while it writes. Each runs on a separate
 * thread, so that a slow client does not delay others. */
#ifndef LIGI_SERVER_UPLOADS_H
#define LIGI_SERVER_UPLOADS_H

#include "store/serve/server/server_state.h"

/* SAVE without data: starts it and takes over the call's job. */
lig_status ligi_served_upload_start(ligi_served_call *call);

/* The rest is called by the hooks, with the endpoint's lock. */

/* The destination of the payload of a DATA; none if no save waits for it. */
lig_status ligi_served_upload_land(ligi_served_session *session, uint64_t id, uint64_t tag,
                                   uint64_t payload_bytes, ligi_landing *landing);
void ligi_served_upload_landed(ligi_served_session *session);
void ligi_served_upload_commit(ligi_served_session *session, uint64_t id);
void ligi_served_upload_abort(ligi_served_session *session, uint64_t id);
/* The client is gone. */
void ligi_served_uploads_lost(ligi_served_session *session);

/* Waits until none is running; LIG_E_TIMEOUT. */
lig_status ligi_served_uploads_drain(lig_server *server, int64_t timeout_ns);

#endif

/* Buffers of large saves: they have a limit, and saves that wait for them get them in the order in
 * which they came. */
#ifndef LIGI_SERVER_UPLOAD_ROOM_H
#define LIGI_SERVER_UPLOAD_ROOM_H

#include "store/serve/server/requests/uploads/server_upload_state.h"

/* Waits until it may take buffers; fails when it is over. */
lig_status ligi_served_upload_enter(ligi_served_upload *upload);
/* When its buffers are free again, or never were taken. */
void ligi_served_upload_leave(ligi_served_upload *upload);

/* Another client's save has been waiting for buffers for a lease. Under the uploads' lock. */
int ligi_served_upload_is_awaited(const ligi_served_upload *upload);

#endif

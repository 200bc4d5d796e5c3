/* Where a large save takes its bytes from: it requests from the client what it lacks, a little
 * ahead of the write position. */
#ifndef LIGI_SERVER_UPLOAD_SOURCE_H
#define LIGI_SERVER_UPLOAD_SOURCE_H

#include "store/serve/server/requests/uploads/server_upload_state.h"

/* For the thread of the save. */
ligi_source ligi_served_upload_source(ligi_served_upload *upload);
/* Tells the client how many tensors are not needed any more. */
void ligi_served_upload_tell_done(ligi_served_upload *upload, uint64_t count);
void ligi_served_upload_free_pieces(ligi_served_upload *upload);

int ligi_served_upload_in_parts(const ligi_served_upload *upload);
/* 1 when it was cancelled, or its client is gone; the uploads' lock is held. */
int ligi_served_upload_is_over(const ligi_served_upload *upload);
/* The sentence about it. */
lig_status ligi_served_upload_fail(const ligi_served_upload *upload);

#endif

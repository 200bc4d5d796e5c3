/* The open connections of a client, whose received bytes are acknowledged at once. Used by the
 * client's thread. */
#ifndef LIGI_S3_SOCKETS_H
#define LIGI_S3_SOCKETS_H

#include "backend/s3/client/s3_calls.h"

#define LIGI_S3_SOCKETS_MAX 160

typedef struct ligi_s3_sockets { /* zero-initialised */
    int open[LIGI_S3_SOCKETS_MAX];
    unsigned count;
} ligi_s3_sockets;

/* Connections that this handle opens are listed. `sockets` outlives them. */
void ligi_s3_sockets_use(ligi_s3_sockets *sockets, const ligi_s3_calls *calls, CURL *easy);
/* Before waiting for answers. */
void ligi_s3_sockets_acknowledge(const ligi_s3_sockets *sockets);

#endif

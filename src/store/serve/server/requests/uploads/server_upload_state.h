/* A large save that runs, for the files that move it. */
#ifndef LIGI_SERVER_UPLOAD_STATE_H
#define LIGI_SERVER_UPLOAD_STATE_H

#include "store/serve/server/requests/server_saves.h"

enum { LIGI_SERVED_PIECES = 5 }; /* two are being written, the others are requested ahead */
#define LIGI_SERVED_PIECE_BYTES (UINT64_C(4) << 20) /* as a save requests them from its source */

enum ligi_served_piece_state {
    LIGI_PIECE_FREE,
    LIGI_PIECE_ASKED,
    LIGI_PIECE_LANDING,
    LIGI_PIECE_THERE
};

/* The contents of one NEED. */
typedef struct ligi_served_piece {
    uint64_t tag;
    enum ligi_served_piece_state state; /* guarded by the uploads' lock */
    uint8_t *memory;
    struct iovec iov;
    ligi_served_stretch *stretches;
    size_t count;
    uint64_t bytes;
} ligi_served_piece;

struct ligi_served_upload {
    ligi_served_upload *next;         /* in its session, under the endpoint's lock */
    ligi_served_upload *next_waiting; /* in the server, under the uploads' lock */
    lig_server *server;
    ligi_served_session *session; /* held */
    ligi_served_job *job, *reaping;
    lig_ticket *thread;
    ligi_served_saving saving;
    uint64_t charge;        /* bytes in flight */
    int active;             /* has them */
    int64_t waits_since_ns; /* for them; guarded by the uploads' lock */

    int committed, aborted, lost; /* guarded by the uploads' lock */

    /* the thread's own; the states of pieces are not */
    uint64_t next_tag;
    ligi_served_piece pieces[LIGI_SERVED_PIECES], hashes;
    size_t first, asked;    /* in `pieces`, a ring */
    size_t at;              /* stretch of the first that comes next */
    uint64_t at_bytes;      /* and where it is */
    size_t tensor, current; /* the next to be asked for; the one that is being written */
    uint64_t offset;        /* in `tensor` */
    uint64_t done_told;
};

#endif

/* Begin and end times of a store's operations and their phases. Shared. */
#ifndef LIGI_TIME_STAMPS_H
#define LIGI_TIME_STAMPS_H

#include "base/clock.h"
#include "store/stamps_ring.h"

#include <pthread.h>

enum ligi_stamp {
    LIGI_STAMP_FIND,
    LIGI_STAMP_LOAD,
    LIGI_STAMP_SAVE,
    LIGI_STAMP_RETIRE,
    LIGI_STAMP_LOOKUP,
    LIGI_STAMP_READ,
    LIGI_STAMP_WRITE,
    LIGI_STAMP_SYNC,
    LIGI_STAMP_COMMIT,
    LIGI_STAMP_COUNT
};

typedef struct ligi_stamps {
    struct ligi_stamps *others; /* records them instead; NULL: recorded here */
    pthread_mutex_t lock;       /* guards all below */
    ligi_stamps_ring rings[LIGI_STAMP_COUNT];
} ligi_stamps;

void ligi_stamps_init(ligi_stamps *stamps);
void ligi_stamps_fini(ligi_stamps *stamps);
/* Records an operation that began at `begin_ns` (ligi_now_ns) and ends now. */
void ligi_stamps_note(ligi_stamps *stamps, enum ligi_stamp what, int64_t begin_ns);

#endif

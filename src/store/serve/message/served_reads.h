/* Bytes of packs: ranges, and descriptors of files. Pure. */
#ifndef LIGI_SERVED_READS_H
#define LIGI_SERVED_READS_H

#include "store/serve/message/served_head.h"

typedef struct ligi_served_range {
    uint64_t offset, bytes;
} ligi_served_range;

/* Ranges of one pack; ascending, not overlapping, not empty. Their sum is at most the welcome's
 * read_bytes_max. The server does not verify them: the client compares block hashes. */
typedef struct ligi_served_read {
    uint64_t pack;
    uint64_t ref; /* number of the ref or match that holds the pack; 0: none */
    ligi_served_range *ranges;
    size_t count;
    uint64_t bytes; /* filled by get: their sum */
} ligi_served_read;

#define LIGI_SERVED_RANGES_MAX 4096

void ligi_served_read_put(ligi_writer *writer, const ligi_served_read *read);
lig_status ligi_served_read_get(const void *body, size_t bytes, ligi_served_read *read);
void ligi_served_read_fini(ligi_served_read *read);

#define LIGI_SERVED_TOKEN_BYTES 32

/* How a client on the same host gets the descriptor of a pack's file: it connects to the abstract
 * Unix stream socket of that name (without the leading NUL), sends the token, and receives one
 * message of one byte with the descriptor (SCM_RIGHTS), read-only. A token works once, and for a
 * few seconds. LIG_E_UNSUPPORTED if a pack is not a file, or the client is on another host. */
typedef struct ligi_served_descriptor {
    uint64_t pack_bytes;
    const char *socket;
    uint8_t token[LIGI_SERVED_TOKEN_BYTES];
} ligi_served_descriptor;

void ligi_served_descriptor_put(ligi_writer *writer, const ligi_served_descriptor *descriptor);
lig_status ligi_served_descriptor_get(const void *body, size_t bytes,
                                      ligi_served_descriptor *descriptor);

#endif

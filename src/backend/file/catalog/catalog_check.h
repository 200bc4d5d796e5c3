/* Validates a catalog file before LMDB opens it: LMDB trusts its file, and a torn one would crash
 * the process. */
#ifndef LIGI_CATALOG_CHECK_H
#define LIGI_CATALOG_CHECK_H

#include <ligament/base.h>

#define LIGI_META_BYTES 152 /* a meta page's header and its record */

typedef struct ligi_file_catalog_meta {
    uint8_t raw[2][LIGI_META_BYTES]; /* as they lie at the start of the first two pages */
    uint32_t page_bytes;
    uint64_t txnid, last_page; /* of the newer one */
    uint64_t roots[2];         /* of the list of free pages and of the items; UINT64_MAX: empty */
    uint64_t file_bytes;
    int64_t modified_ns;
} ligi_file_catalog_meta;

/* Fills *meta; LIG_E_NOTFOUND without an error text for an empty file, LIG_E_CORRUPT for one that
 * is not a catalog. */
lig_status ligi_file_catalog_meta_read(int fd, const char *place, ligi_file_catalog_meta *meta);

/* LIG_OK for an empty file and for one in which every reachable page exists and is well formed;
 * LIG_E_CORRUPT otherwise. Other processes may write concurrently. A catalog above 256 MiB is
 * checked only if it is shorter than its header says. */
lig_status ligi_file_catalog_check(int fd, const char *place);
/* The same for a catalog of any size. */
lig_status ligi_file_catalog_check_whole(int fd, const char *place);

#endif

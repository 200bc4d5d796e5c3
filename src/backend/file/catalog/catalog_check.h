/* Looks at a catalog file before LMDB does: LMDB trusts its file, and a torn one would end the
 * process. */
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

/* Fills *meta; LIG_E_NOTFOUND without a sentence for an empty file, LIG_E_CORRUPT for one that is
 * no catalog. */
lig_status ligi_file_catalog_meta_read(int fd, const char *place, ligi_file_catalog_meta *meta);

/* LIG_OK for an empty file and for one whose every page that can be reached is there and is well
 * formed; LIG_E_CORRUPT otherwise. Others may write meanwhile. A catalog above 256 MiB is looked at
 * only when it is shorter than it says. */
lig_status ligi_file_catalog_check(int fd, const char *place);
/* The same for a catalog of any size. */
lig_status ligi_file_catalog_check_whole(int fd, const char *place);

#endif

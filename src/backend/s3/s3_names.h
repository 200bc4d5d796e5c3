/* Names of the objects of a store, below its prefix:
 *   store        the marker
 *   conditional  records that conditional writes work at the endpoint that it names
 *   cat/<v>      commit v, 20 digits
 *   ckpt/<v>     checkpoint of version v
 *   pack/<id>    a pack, 16 hexadecimal digits
 *   hold/<id>    the claim of a pack's writer
 *   pin/<token>  packs in use
 *   lock/<name>/<n>  holder n of a lock
 * Numbers have a fixed width, so that lists are in numerical order. Pure. */
#ifndef LIGI_S3_NAMES_H
#define LIGI_S3_NAMES_H

#include "backend/remote/storage_engine.h"
#include "backend/s3/client/s3_parallel.h"

#define LIGI_S3_MARKER "store"
#define LIGI_S3_CONDITIONAL "conditional"

void ligi_s3_name_commit(uint64_t version, char key[LIGI_S3_SHORT_KEY_BYTES]);
void ligi_s3_name_object(ligi_object object, char key[LIGI_S3_SHORT_KEY_BYTES]);
void ligi_s3_name_hold(uint64_t id, char key[LIGI_S3_SHORT_KEY_BYTES]);
/* "pack/", "ckpt/" */
const char *ligi_s3_name_folder(ligi_object_kind kind);
/* The number of a key in `folder`; 0 if it is not a name of this form: other objects are left
 * alone. */
int ligi_s3_name_number(const char *key, const char *folder, uint64_t *number);

#endif

#include "backend/s3/leases/s3_locks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/s3/client/s3_put_absent.h"
#include "backend/s3/leases/s3_lease.h"
#include "backend/s3/s3_probe.h"
#include "backend/s3/wire/s3_text.h"

#define NAME_BYTES_MAX 64
#define KEY_BYTES 320
#define HOLDER_BYTES_MAX 256

typedef struct s3_lock {
    ligi_s3 *s3;
    char folder[KEY_BYTES], key[KEY_BYTES + 32];
    uint64_t number;
    uint8_t body[LIGI_S3_LEASE_HEADER_BYTES + HOLDER_BYTES_MAX];
    size_t bytes;
} s3_lock;

typedef struct lock_list {
    size_t folder_bytes;
    uint64_t highest;
} lock_list;

static int take_number(void *context, const ligi_s3_list_item *item)
{
    lock_list *list = context;
    uint64_t number;

    if (sscanf(item->key + list->folder_bytes, "%" SCNu64, &number) == 1 && number > list->highest)
        list->highest = number;
    return 0;
}

/* The number of the last holder; 0 if there was none. */
static lig_status find_highest(const s3_lock *lock, uint64_t *highest)
{
    lock_list list = {.folder_bytes = strlen(lock->folder)};

    LIG_TRY(ligi_s3_list(
        lock->s3->client,
        &(ligi_s3_listing){
            .folder = lock->folder, .page = 1000, .visit = take_number, .context = &list},
        lock->s3->timeout_ns));
    *highest = list.highest;
    return LIG_OK;
}

static void name_holder(const s3_lock *lock, uint64_t number, char *key)
{
    snprintf(key, sizeof lock->key, "%s%020" PRIu64, lock->folder, number);
}

/* LIG_E_BUSY, with its holder in the text, while lock number `number` is in force. A lock that was
 * given back has a time of 0. */
static lig_status check_ended(const s3_lock *lock, uint64_t number)
{
    ligi_s3 *s3 = lock->s3;
    char key[sizeof lock->key], holder[HOLDER_BYTES_MAX + 1] = "";
    ligi_s3_small object;
    ligi_s3_lease lease;

    name_holder(lock, number, key);
    lig_status status =
        ligi_s3_get(s3->client, key, LIGI_S3_LEASE_BYTES_MAX, s3->timeout_ns, &object);
    if (status == LIG_E_NOTFOUND)
        return LIG_OK;
    LIG_TRY(status);
    int lives =
        ligi_s3_lease_decode(&object, &lease) && lease.ttl_ns > 0 && ligi_s3_lease_lives(&lease);
    if (lives && lease.rest_bytes <= HOLDER_BYTES_MAX)
        memcpy(holder, lease.rest, lease.rest_bytes);
    free(object.data);
    return lives ? s3->host->fail(LIG_E_BUSY, "locked by %s", holder) : LIG_OK;
}

/* Numbers below ours were seen to have ended; they are removed, but for the last: it stops writers
 * that saw an even older one as the highest. */
static void remove_older(const s3_lock *lock)
{
    char key[sizeof lock->key];

    if (lock->number < 3)
        return;
    name_holder(lock, lock->number - 2, key);
    ligi_s3_remove_later(lock->s3, key);
}

/* Writes the next number, then lists again: a process that was suspended since its listing finds a
 * higher one. */
static lig_status take(s3_lock *lock)
{
    ligi_s3 *s3 = lock->s3;
    uint64_t highest;

    LIG_TRY(find_highest(lock, &highest));
    if (highest > 0)
        LIG_TRY(check_ended(lock, highest));
    lock->number = highest + 1;
    name_holder(lock, lock->number, lock->key);
    lig_status status =
        ligi_s3_put_absent(s3->client, &(ligi_s3_absent){.key = lock->key,
                                                         .data = lock->body,
                                                         .bytes = lock->bytes,
                                                         .timeout_ns = s3->timeout_ns,
                                                         .removable = 1,
                                                         .unconditional = s3->single_writer});
    if (status == LIG_E_BUSY)
        return s3->host->fail(LIG_E_BUSY, "currently locked by another process");
    LIG_TRY(status);
    LIG_TRY(find_highest(lock, &highest));
    if (highest != lock->number) {
        ligi_s3_remove_later(s3, lock->key);
        return s3->host->fail(LIG_E_BUSY, "currently locked by another process");
    }
    remove_older(lock);
    return LIG_OK;
}

lig_status ligi_s3_lock(void *self, const char *name, const char *holder, int64_t ttl_ns,
                        void **lock)
{
    ligi_s3 *s3 = self;
    uint8_t token[LIGI_RECORD_ID_BYTES];
    size_t holder_bytes = strnlen(holder, HOLDER_BYTES_MAX);
    char encoded[KEY_BYTES - 8];
    ligi_s3_text text = ligi_s3_text_over(encoded, sizeof encoded);

    if (s3->read_only)
        return s3->host->fail(LIG_E_DENIED, "s3: the store is open for reading only");
    ligi_s3_text_encode(&text, name, 0);
    if (strlen(name) > NAME_BYTES_MAX || text.full)
        return s3->host->fail(LIG_E_LIMIT, "s3: the name of a lock has at most %d bytes",
                              NAME_BYTES_MAX);
    LIG_TRY(ligi_s3_probe_ensure(s3));
    LIG_TRY(s3->host->random(token, sizeof token));
    s3_lock *made = calloc(1, sizeof *made);
    if (made == NULL)
        return s3->host->fail(LIG_E_NOMEM, "s3: out of memory");
    made->s3 = s3;
    snprintf(made->folder, sizeof made->folder, "lock/%s/", encoded);
    ligi_s3_lease_encode(token, ttl_ns, made->body);
    memcpy(made->body + LIGI_S3_LEASE_HEADER_BYTES, holder, holder_bytes);
    made->bytes = LIGI_S3_LEASE_HEADER_BYTES + holder_bytes;
    ligi_s3_remove_wait(s3);
    lig_status status = take(made);
    if (status != LIG_OK) {
        free(made);
        return status;
    }
    *lock = made;
    return LIG_OK;
}

static lig_status write_again(s3_lock *lock, int64_t ttl_ns)
{
    uint8_t token[LIGI_RECORD_ID_BYTES];

    memcpy(token, lock->body, sizeof token);
    ligi_s3_lease_encode(token, ttl_ns, lock->body);
    return ligi_s3_put(lock->s3->client, lock->key, lock->body, lock->bytes, lock->s3->timeout_ns);
}

lig_status ligi_s3_lock_renew(void *self, int64_t ttl_ns)
{
    s3_lock *lock = self;
    uint64_t highest;

    LIG_TRY(write_again(lock, ttl_ns));
    LIG_TRY(find_highest(lock, &highest));
    return highest == lock->number
               ? LIG_OK
               : lock->s3->host->fail(
                     LIG_E_NOTFOUND,
                     "s3: the lock is lost: it expired, and another process has taken it");
}

/* The object remains, with a time of 0: the numbers must continue. */
void ligi_s3_unlock(void *self, int forked)
{
    s3_lock *lock = self;

    if (lock == NULL)
        return;
    if (!forked)
        (void)write_again(lock, 0);
    free(lock);
}

#include "backend/s3/s3_log.h"

#include <stdlib.h>
#include <string.h>

#include "backend/s3/client/s3_put_absent.h"
#include "backend/s3/client/s3_requests.h"
#include "backend/s3/s3_names.h"
#include "backend/s3/s3_probe.h"
#include "base/clock.h"

#define TRIM_MAX 256                /* entries that one listing names */
#define TRIM_NS INT64_C(5000000000) /* after this, a call begins no other listing */
#define WAIT_FIRST_NS INT64_C(20000000)
#define WAIT_MAX_NS INT64_C(1000000000)

lig_status ligi_s3_log_append(void *self, const ligi_log_end *end, int64_t fresh_ns,
                              const void *record, size_t bytes)
{
    ligi_s3 *s3 = self;
    char key[LIGI_S3_SHORT_KEY_BYTES];

    LIG_TRY(ligi_s3_probe_ensure(s3));
    ligi_s3_name_commit(end->version + 1, key);
    return ligi_s3_put_absent(s3->client, &(ligi_s3_absent){.key = key,
                                                            .data = record,
                                                            .bytes = bytes,
                                                            .seen_ns = end->seen_ns,
                                                            .fresh_ns = fresh_ns,
                                                            .timeout_ns = s3->timeout_ns,
                                                            .unconditional = s3->single_writer});
}

/* --- reading -------------------------------------------------------------------------------- */

typedef struct log_window {
    ligi_s3 *s3;
    uint64_t first; /* number of the first entry of the window */
    size_t count;
    int64_t until;
    ligi_s3_small entries[LIGI_S3_WINDOW];
    uint8_t there[LIGI_S3_WINDOW];
} log_window;

static void prepare_entry(void *context, ligi_s3_slot *slot)
{
    log_window *window = context;

    ligi_s3_name_commit(window->first + slot->index, slot->key);
    slot->transfer = ligi_s3_request("GET", slot->key, ligi_time_left(window->until));
    slot->transfer.received_max = LIGI_S3_RECORD_BYTES_MAX;
}

static lig_status take_entry(void *context, ligi_s3_slot *slot)
{
    log_window *window = context;
    lig_status status =
        ligi_s3_result(window->s3->client, &slot->transfer, "cannot read the log entry");

    if (status == LIG_E_NOTFOUND)
        return LIG_OK;
    LIG_TRY(status);
    window->entries[slot->index] =
        (ligi_s3_small){slot->transfer.received, slot->transfer.received_bytes, 0};
    window->there[slot->index] = 1;
    slot->transfer.received = NULL;
    return LIG_OK;
}

/* Visits the entries of the window up to the first that does not exist. */
static lig_status visit_window(const log_window *window, ligi_log_visit visit, void *context,
                               size_t *visited)
{
    lig_status status = LIG_OK;

    *visited = 0;
    while (status == LIG_OK && *visited < window->count && window->there[*visited]) {
        const ligi_s3_small *entry = &window->entries[*visited];
        status = visit(context, window->first + *visited, entry->data, entry->bytes);
        *visited += status == LIG_OK;
    }
    return status;
}

static lig_status read_window(ligi_s3 *s3, uint64_t first, size_t count, ligi_log_visit visit,
                              void *context, size_t *visited)
{
    log_window window = {
        .s3 = s3, .first = first, .count = count, .until = ligi_time_until(s3->timeout_ns)};

    lig_status status = ligi_s3_parallel(s3->client, &(ligi_s3_work){.count = count,
                                                                     .window = LIGI_S3_WINDOW,
                                                                     .prepare = prepare_entry,
                                                                     .ended = take_entry,
                                                                     .context = &window});
    if (status == LIG_OK)
        status = visit_window(&window, visit, context, visited);
    for (size_t i = 0; i < count; i++)
        free(window.entries[i].data);
    return status;
}

typedef struct first_found {
    uint64_t number;
    int found;
} first_found;

static int take_first(void *context, const ligi_s3_list_item *item)
{
    first_found *first = context;

    first->found = ligi_s3_name_number(item->key, "cat/", &first->number);
    return first->found;
}

/* Entry `last` + 1 does not exist, and the caller's view is old: is `last` the end of the log?
 * LIG_OK; LIG_E_BUSY if the entry has appeared meanwhile; LIG_E_NOTFOUND if entries were
 * removed, or there was never such a version. */
static lig_status check_end(ligi_s3 *s3, uint64_t last, int known)
{
    char key[LIGI_S3_SHORT_KEY_BYTES];
    first_found first = {0, 0};
    uint64_t checkpoint = 0, bytes;

    ligi_s3_name_commit(last, key);
    LIG_TRY(ligi_s3_list(
        s3->client,
        &(ligi_s3_listing){
            .folder = "cat/", .after = key, .page = 2, .visit = take_first, .context = &first},
        s3->timeout_ns));
    if (first.found)
        return first.number == last + 1 ? LIG_E_BUSY : LIG_E_NOTFOUND;
    lig_status status = ligi_s3_checkpoint_newest(s3, UINT64_MAX, &checkpoint);
    if (status != LIG_OK && status != LIG_E_NOTFOUND)
        return status;
    if (checkpoint > last)
        return LIG_E_NOTFOUND;
    if (known || last == 0 || checkpoint == last)
        return LIG_OK;
    return ligi_s3_head(s3->client, key, s3->timeout_ns, &bytes);
}

static int is_fresh(const ligi_log_end *end, int64_t fresh_ns)
{
    int64_t age = ligi_date_ns() - end->seen_ns;

    return end->seen_ns != 0 && age >= 0 && age < fresh_ns;
}

/* One entry is requested at first, because usually there is none; then more and more at once. */
lig_status ligi_s3_log_read(void *self, const ligi_log_end *end, int64_t fresh_ns,
                            ligi_log_visit visit, void *context)
{
    ligi_s3 *s3 = self;
    uint64_t last = end->version;
    size_t count = 1, visited;
    int fresh = is_fresh(end, fresh_ns);

    for (;;) {
        LIG_TRY(read_window(s3, last + 1, count, visit, context, &visited));
        last += visited;
        if (visited == count) {
            count = count * 4 < LIGI_S3_WINDOW ? count * 4 : LIGI_S3_WINDOW;
            continue;
        }
        if (fresh)
            return LIG_OK;
        lig_status status = check_end(s3, last, last > end->version);
        if (status != LIG_E_BUSY)
            return status;
        count = 1;
    }
}

/* --- waiting and trimming ------------------------------------------------------------------- */

lig_status ligi_s3_log_wait(void *self, uint64_t since, int64_t timeout_ns)
{
    ligi_s3 *s3 = self;
    int64_t until = ligi_time_until(timeout_ns), pause = WAIT_FIRST_NS;
    char key[LIGI_S3_SHORT_KEY_BYTES];
    uint64_t bytes;

    ligi_s3_name_commit(since + 1, key);
    for (;;) {
        lig_status status = ligi_s3_head(s3->client, key, s3->timeout_ns, &bytes);
        if (status != LIG_E_NOTFOUND)
            return status;
        int64_t left = timeout_ns == LIG_FOREVER ? WAIT_MAX_NS : ligi_time_left(until);
        if (left == 0)
            return LIG_OK;
        ligi_s3_client_pause(pause < left ? pause : left);
        pause = pause * 2 < WAIT_MAX_NS ? pause * 2 : WAIT_MAX_NS;
    }
}

typedef struct old_entries {
    ligi_s3 *s3;
    int64_t until;
    uint64_t before;
    int64_t now_ns, keep_ns;
    uint64_t numbers[TRIM_MAX];
    size_t count;
} old_entries;

static int take_old(void *context, const ligi_s3_list_item *item)
{
    old_entries *old = context;
    uint64_t number;

    if (!ligi_s3_name_number(item->key, "cat/", &number))
        return 0;
    int64_t age = old->now_ns - item->date_s * 1000000000;
    if (number >= old->before || item->date_s == 0 || age <= old->keep_ns)
        return 1;
    old->numbers[old->count++] = number;
    return old->count == TRIM_MAX;
}

static void prepare_old(void *context, ligi_s3_slot *slot)
{
    const old_entries *old = context;

    ligi_s3_name_commit(old->numbers[slot->index], slot->key);
    slot->transfer = ligi_s3_request("DELETE", slot->key, ligi_time_left(old->until));
}

static lig_status take_deleted(void *context, ligi_s3_slot *slot)
{
    const old_entries *old = context;
    lig_status status = ligi_s3_result(old->s3->client, &slot->transfer, "cannot remove");

    return status == LIG_E_NOTFOUND ? LIG_OK : status;
}

/* Removes several entries at a time, so a crash may leave gaps. A reader that starts at an entry as
 * old as these does not take a gap for the end of the log (check_end). */
static lig_status trim_some(old_entries *old)
{
    ligi_s3 *s3 = old->s3;

    old->count = 0;
    LIG_TRY(ligi_s3_list(
        s3->client,
        &(ligi_s3_listing){.folder = "cat/", .page = TRIM_MAX, .visit = take_old, .context = old},
        ligi_time_left(old->until)));
    return ligi_s3_parallel(s3->client, &(ligi_s3_work){.count = old->count,
                                                        .window = LIGI_S3_WINDOW,
                                                        .prepare = prepare_old,
                                                        .ended = take_deleted,
                                                        .context = old});
}

/* A closing store waits for this call. What is left is removed after the next checkpoint. */
lig_status ligi_s3_log_trim(void *self, uint64_t before, int64_t keep_ns)
{
    ligi_s3 *s3 = self;
    old_entries old = {.s3 = s3, .before = before, .keep_ns = keep_ns, .count = TRIM_MAX};
    int64_t enough = ligi_time_until(TRIM_NS);

    old.until = ligi_time_until(s3->timeout_ns);
    old.now_ns = ligi_s3_client_now_ns(s3->client);
    while (old.count == TRIM_MAX && ligi_time_left(enough) > 0)
        LIG_TRY(trim_some(&old));
    return LIG_OK;
}

/* --- checkpoints ---------------------------------------------------------------------------- */

/* An object becomes visible whole, when it is sealed. */
lig_status ligi_s3_checkpoint_publish(void *self, uint64_t version)
{
    (void)self;
    (void)version;
    return LIG_OK;
}

typedef struct newest_found {
    uint64_t before, version;
    int found;
} newest_found;

static int take_newest(void *context, const ligi_s3_list_item *item)
{
    newest_found *newest = context;
    uint64_t version;

    if (!ligi_s3_name_number(item->key, "ckpt/", &version))
        return 0;
    if (version >= newest->before)
        return 1;
    newest->version = version;
    newest->found = 1;
    return 0;
}

lig_status ligi_s3_checkpoint_newest(void *self, uint64_t before, uint64_t *version)
{
    ligi_s3 *s3 = self;
    newest_found newest = {.before = before};

    LIG_TRY(
        ligi_s3_list(s3->client,
                     &(ligi_s3_listing){
                         .folder = "ckpt/", .page = 1000, .visit = take_newest, .context = &newest},
                     s3->timeout_ns));
    if (!newest.found)
        return LIG_E_NOTFOUND;
    *version = newest.version;
    return LIG_OK;
}

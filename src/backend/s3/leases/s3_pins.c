#include "backend/s3/leases/s3_pins.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/s3/leases/s3_lease.h"
#include "base/codec.h"

#define PIN_PACKS_MAX 500000

typedef struct s3_pin {
    ligi_s3 *s3;
    char key[LIGI_S3_SHORT_KEY_BYTES];
    uint8_t *body; /* a lease, then the packs, 8 bytes each, lowest first */
    size_t bytes;
} s3_pin;

static lig_status name_pin(s3_pin *pin, uint8_t token[LIGI_RECORD_ID_BYTES])
{
    int used = snprintf(pin->key, sizeof pin->key, "pin/");

    LIG_TRY(pin->s3->host->random(token, LIGI_RECORD_ID_BYTES));
    for (size_t i = 0; i < LIGI_RECORD_ID_BYTES; i++)
        snprintf(pin->key + used + 2 * i, 3, "%02x", token[i]);
    return LIG_OK;
}

lig_status ligi_s3_pin(void *self, const uint64_t *packs, size_t count, int64_t ttl_ns, void **pin)
{
    ligi_s3 *s3 = self;
    uint8_t token[LIGI_RECORD_ID_BYTES];
    s3_pin *made;

    if (count > PIN_PACKS_MAX)
        return s3->host->fail(LIG_E_LIMIT, "s3: too many packs in a pin: %zu, the limit is %d",
                              count, PIN_PACKS_MAX);
    made = calloc(1, sizeof *made);
    if (made != NULL) {
        made->s3 = s3;
        made->bytes = LIGI_S3_LEASE_HEADER_BYTES + 8 * count;
        made->body = malloc(made->bytes);
    }
    if (made == NULL || made->body == NULL) {
        free(made);
        return s3->host->fail(LIG_E_NOMEM, "s3: out of memory");
    }
    lig_status status = name_pin(made, token);
    if (status == LIG_OK) {
        ligi_s3_lease_encode(token, ttl_ns, made->body);
        for (size_t i = 0; i < count; i++)
            ligi_store_le(made->body + LIGI_S3_LEASE_HEADER_BYTES + 8 * i, packs[i], 8);
        status = ligi_s3_put(s3->client, made->key, made->body, made->bytes, s3->timeout_ns);
    }
    if (status != LIG_OK) {
        free(made->body);
        free(made);
        return status;
    }
    *pin = made;
    return LIG_OK;
}

lig_status ligi_s3_pin_renew(void *self, int64_t ttl_ns)
{
    s3_pin *pin = self;
    uint8_t token[LIGI_RECORD_ID_BYTES];

    memcpy(token, pin->body, sizeof token);
    ligi_s3_lease_encode(token, ttl_ns, pin->body);
    return ligi_s3_put(pin->s3->client, pin->key, pin->body, pin->bytes, pin->s3->timeout_ns);
}

void ligi_s3_unpin(void *self, int forked)
{
    s3_pin *pin = self;

    if (pin == NULL)
        return;
    if (!forked)
        ligi_s3_remove_later(pin->s3, pin->key);
    free(pin->body);
    free(pin);
}

/* --- the pins of all processes
 * ------------------------------------------------------------------ */

typedef struct pin_list {
    char (*keys)[LIGI_S3_SHORT_KEY_BYTES];
    size_t count, capacity;
    int out_of_memory;
} pin_list;

static int take_pin(void *context, const ligi_s3_list_item *item)
{
    pin_list *list = context;

    if (strlen(item->key) >= LIGI_S3_SHORT_KEY_BYTES)
        return 0;
    if (list->count == list->capacity) {
        size_t wider = list->capacity * 2 + 64;
        void *memory = realloc(list->keys, wider * sizeof *list->keys);
        if (memory == NULL) {
            list->out_of_memory = 1;
            return 1;
        }
        list->keys = memory;
        list->capacity = wider;
    }
    memcpy(list->keys[list->count++], item->key, strlen(item->key) + 1);
    return 0;
}

typedef struct pin_visit {
    ligi_s3 *s3;
    const pin_list *list;
    const uint64_t *packs; /* that are asked for; NULL: stale pins are removed */
    size_t count;
    uint8_t *pinned;
} pin_visit;

static void prepare_pin(void *context, ligi_s3_slot *slot)
{
    pin_visit *visit = context;

    memcpy(slot->key, visit->list->keys[slot->index], sizeof slot->key);
    slot->transfer = ligi_s3_request("GET", slot->key, visit->s3->timeout_ns);
    slot->transfer.received_max = LIGI_S3_LEASE_BYTES_MAX;
}

static void mark_packs(const pin_visit *visit, const ligi_s3_lease *lease)
{
    for (size_t at = 0; at + 8 <= lease->rest_bytes; at += 8) {
        uint64_t id = ligi_load_le(lease->rest + at, 8);
        for (size_t i = 0; i < visit->count; i++)
            visit->pinned[i] |= visit->packs[i] == id;
    }
}

/* A pin that has just been released no longer exists; a malformed one protects nothing. */
static lig_status take_body(void *context, ligi_s3_slot *slot)
{
    pin_visit *visit = context;
    ligi_s3_lease lease;
    lig_status status = ligi_s3_result(visit->s3->client, &slot->transfer, "cannot read the pin");

    if (status == LIG_E_NOTFOUND)
        return LIG_OK;
    LIG_TRY(status);
    const ligi_s3_answer *answer = &slot->transfer.answer;
    ligi_s3_small object = {slot->transfer.received, slot->transfer.received_bytes,
                            answer->date_s != 0 && answer->modified_s != 0
                                ? answer->date_s - answer->modified_s
                                : LIGI_S3_AGE_UNKNOWN};
    if (!ligi_s3_lease_decode(&object, &lease))
        return LIG_OK;
    if (visit->packs != NULL && ligi_s3_lease_lives(&lease))
        mark_packs(visit, &lease);
    else if (visit->packs == NULL && ligi_s3_lease_stale(&lease))
        ligi_s3_remove_later(visit->s3, slot->key);
    return LIG_OK;
}

static lig_status visit_pins(pin_visit *visit)
{
    ligi_s3 *s3 = visit->s3;
    pin_list list = {0};

    ligi_s3_remove_wait(s3);
    lig_status status = ligi_s3_list(
        s3->client,
        &(ligi_s3_listing){.folder = "pin/", .page = 1000, .visit = take_pin, .context = &list},
        s3->timeout_ns);
    if (status == LIG_OK && list.out_of_memory)
        status = s3->host->fail(LIG_E_NOMEM, "s3: out of memory");
    visit->list = &list;
    if (status == LIG_OK)
        status = ligi_s3_parallel(s3->client, &(ligi_s3_work){.count = list.count,
                                                              .window = LIGI_S3_WINDOW,
                                                              .prepare = prepare_pin,
                                                              .ended = take_body,
                                                              .context = visit});
    free(list.keys);
    return status;
}

lig_status ligi_s3_pinned(void *self, const uint64_t *packs, size_t count, uint8_t *pinned)
{
    pin_visit visit = {.s3 = self, .packs = packs, .count = count, .pinned = pinned};

    memset(pinned, 0, count);
    return visit_pins(&visit);
}

lig_status ligi_s3_pins_sweep(ligi_s3 *s3)
{
    pin_visit visit = {.s3 = s3};

    return visit_pins(&visit);
}

#include "store/serve/client/packs/client_pins.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/map.h"
#include "store/serve/client/client_request.h"
#include "store/serve/message/served_models.h"

#include <string.h>

enum { BATCH = 32 }; /* requests at one time */
#define ANSWER_NS_MIN INT64_C(1000000000)

/* Ordered by `known`. */
struct ligi_client_pin {
    ligi_lease known; /* as the ref has it: of the session in which it was made */
    ligi_lease now;   /* number 0: the server holds nothing */
    uint64_t model;
};

static int is_before(ligi_lease a, ligi_lease b)
{
    return a.session != b.session ? a.session < b.session : a.number < b.number;
}

/* The index where it is, or belongs. */
static size_t place_of(const ligi_client *client, ligi_lease lease)
{
    size_t at;
    LIGI_LOWER_BOUND(at, client->pin_count, is_before(client->pins[at].known, lease));
    return at;
}

static ligi_client_pin *find(const ligi_client *client, ligi_lease lease)
{
    size_t at = place_of(client, lease);
    return at < client->pin_count && !is_before(lease, client->pins[at].known) ? &client->pins[at]
                                                                               : NULL;
}

void ligi_client_pins_add(ligi_client *client, ligi_lease lease, uint64_t model)
{
    ligi_net_lock(client->net);
    if (ligi_grow(&client->pins, &client->pin_capacity, client->pin_count + 1, sizeof *client->pins,
                  "a ref") == LIG_OK) {
        size_t at = place_of(client, lease);
        memmove(&client->pins[at + 1], &client->pins[at],
                (client->pin_count - at) * sizeof *client->pins);
        client->pins[at] = (ligi_client_pin){lease, lease, model};
        client->pin_count++;
    }
    ligi_net_unlock(client->net);
}

int ligi_client_pins_remove(ligi_client *client, ligi_lease lease, ligi_lease *now)
{
    ligi_net_lock(client->net);
    ligi_client_pin *pin = find(client, lease);
    if (pin) {
        *now = pin->now;
        client->pin_count--;
        memmove(pin, pin + 1,
                (client->pin_count - (size_t)(pin - client->pins)) * sizeof *client->pins);
    }
    ligi_net_unlock(client->net);
    return pin != NULL;
}

/* --- on a new connection --- */

typedef struct renewal {
    ligi_lease known;
    uint64_t model;
    ligi_client_call call;
} renewal;

/* Pins of earlier sessions, from *from on. */
static size_t take_old(ligi_client *client, ligi_lease *from, renewal batch[BATCH])
{
    size_t count = 0;
    ligi_net_lock(client->net);
    for (size_t i = place_of(client, *from); i < client->pin_count && count < BATCH; i++) {
        const ligi_client_pin *pin = &client->pins[i];
        *from = (ligi_lease){pin->known.session, pin->known.number + 1};
        if (pin->now.session != client->session)
            batch[count++] = (renewal){.known = pin->known, .model = pin->model};
    }
    ligi_net_unlock(client->net);
    return count;
}

/* The ref may have been released meanwhile. */
static void note_result(ligi_client *client, const renewal *one, ligi_lease now)
{
    ligi_net_lock(client->net);
    ligi_client_pin *pin = find(client, one->known);
    if (pin)
        pin->now = now;
    ligi_net_unlock(client->net);
    if (pin == NULL && now.number)
        ligi_client_release(client, now);
}

/* A server that accepts connections but does not answer must not use up the time to reconnect. */
static int64_t answer_ns(const ligi_client *client)
{
    int64_t liveness = client->options.liveness_ms * INT64_C(1000000);
    return liveness > ANSWER_NS_MIN ? liveness : ANSWER_NS_MIN;
}

static lig_status start(ligi_client *client, renewal *one, const ligi_interrupt *interrupt)
{
    one->call.op = LIGI_SERVED_RESOLVE;
    one->call.interrupt = interrupt;
    one->call.deadline_ns = ligi_now_ns() + answer_ns(client);
    ligi_served_selector_put(&one->call.body,
                             &(ligi_served_selector){.id = one->model, .flags = LIGI_SERVED_HOLD});
    return ligi_client_start(client, &one->call);
}

static void finish(ligi_client *client, renewal *one)
{
    ligi_served_model model = {0};
    lig_status status = one->call.started ? ligi_client_finish(client, &one->call) : LIG_E_PEER;
    if (status == LIG_OK)
        status = ligi_served_model_get(one->call.reply, one->call.reply_bytes, &model);
    if (status == LIG_OK || status == LIG_E_NOTFOUND)
        note_result(client, one, (ligi_lease){one->call.session, status == LIG_OK ? model.ref : 0});
    ligi_client_call_fini(&one->call);
}

void ligi_client_pins_renew(ligi_client *client, const ligi_interrupt *interrupt)
{
    ligi_lease from = {0};
    renewal batch[BATCH];
    size_t count;
    lig_status status = LIG_OK;
    while (status == LIG_OK && (count = take_old(client, &from, batch)) > 0) {
        for (size_t i = 0; i < count && status == LIG_OK; i++)
            status = start(client, &batch[i], interrupt);
        for (size_t i = 0; i < count; i++)
            finish(client, &batch[i]);
    }
}

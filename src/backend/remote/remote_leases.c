#include "backend/remote/remote_leases.h"

#include "backend/remote/remote_keeper.h"
#include "backend/remote/remote_view.h"
#include "base/clock.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A lease is renewed after this part of its lifetime; the rest is for retries. */
enum { RENEW_PART = 3 };

/* --- leases --- */

lig_status ligi_remote_lease_begin(ligi_remote_volume *volume, ligi_remote_lease *lease,
                                   int64_t until_ns)
{
    LIG_TRY(ligi_keeper_start(volume));
    pthread_mutex_lock(&volume->lock);
    lease->until_ns = until_ns;
    lease->next = volume->leases;
    lease->link = &volume->leases;
    if (lease->next != NULL)
        lease->next->link = &lease->next;
    volume->leases = lease;
    pthread_cond_broadcast(&volume->changed);
    pthread_mutex_unlock(&volume->lock);
    return LIG_OK;
}

void ligi_remote_lease_end(ligi_remote_volume *volume, ligi_remote_lease *lease)
{
    pthread_mutex_lock(&volume->lock);
    while (lease->busy)
        pthread_cond_wait(&volume->changed, &volume->lock);
    if (lease->link != NULL) {
        *lease->link = lease->next;
        if (lease->next != NULL)
            lease->next->link = lease->link;
        lease->link = NULL;
    }
    pthread_mutex_unlock(&volume->lock);
}

/* The lock is held, and released meanwhile; the lease is not busy. */
static lig_status renew(ligi_remote_volume *volume, ligi_remote_lease *lease)
{
    int64_t now_ns = ligi_remote_boot_ns(), ttl_ns = volume->windows.ttl_ns;

    lease->busy = 1;
    pthread_mutex_unlock(&volume->lock);
    lig_status status = lease->renew(lease->thing, ttl_ns);
    pthread_mutex_lock(&volume->lock);
    lease->busy = 0;
    if (status == LIG_OK)
        lease->renewed_ns = now_ns;
    else if (status == LIG_E_NOTFOUND)
        lease->lost = 1;
    pthread_cond_broadcast(&volume->changed);
    return status;
}

/* When it is due, by CLOCK_MONOTONIC. */
static int64_t due(const ligi_remote_volume *volume, const ligi_remote_lease *lease)
{
    int64_t age_ns = ligi_remote_boot_ns() - lease->renewed_ns;

    if (lease->lost || lease->until_ns <= ligi_date_ns())
        return INT64_MAX;
    return ligi_now_ns() + volume->windows.ttl_ns / RENEW_PART - age_ns;
}

int64_t ligi_remote_leases_renew(ligi_remote_volume *volume)
{
    int64_t next_ns = INT64_MAX, pause_ns = volume->windows.ttl_ns / (4 * RENEW_PART);

    for (ligi_remote_lease *lease = volume->leases; lease != NULL;) {
        int64_t at_ns = due(volume, lease), now_ns = ligi_now_ns();
        if (at_ns > now_ns || lease->busy) {
            next_ns = at_ns < next_ns && !lease->busy ? at_ns : next_ns;
            lease = lease->next;
            continue;
        }
        lig_status status = renew(volume, lease);
        if (status != LIG_OK)
            ligi_log(LIG_LOG_WARNING, "%s: a pin, a claim or a lock could not be renewed: %s",
                     volume->name, lig_error_text());
        if (status != LIG_OK && status != LIG_E_NOTFOUND)
            return now_ns + pause_ns; /* the others are retried with it */
        lease = volume->leases;       /* the list may have changed meanwhile */
    }
    return next_ns;
}

/* --- claims --- */

static ligi_remote_claim *find_claim(const ligi_remote_volume *volume, uint64_t id)
{
    ligi_remote_claim *claim = volume->claims;

    while (claim != NULL && claim->id != id)
        claim = claim->next;
    return claim;
}

static ligi_remote_lease *find_claimed(const ligi_remote_volume *volume, uint64_t id)
{
    const ligi_remote_claim *claim = find_claim(volume, id);

    return claim == NULL ? NULL : claim->lease;
}

lig_status ligi_remote_claim_begin(ligi_remote_volume *volume, ligi_remote_claim *claim,
                                   uint64_t id)
{
    pthread_mutex_lock(&volume->lock);
    int taken = find_claim(volume, id) != NULL;
    if (!taken) {
        claim->id = id;
        claim->next = volume->claims;
        claim->link = &volume->claims;
        if (claim->next != NULL)
            claim->next->link = &claim->next;
        volume->claims = claim;
    }
    pthread_mutex_unlock(&volume->lock);
    if (taken)
        return lig_fail(LIG_E_BUSY, "pack %016" PRIx64 " is held by its writer", id);
    return LIG_OK;
}

void ligi_remote_claim_end(ligi_remote_volume *volume, ligi_remote_claim *claim)
{
    pthread_mutex_lock(&volume->lock);
    if (claim->link != NULL) {
        *claim->link = claim->next;
        if (claim->next != NULL)
            claim->next->link = claim->link;
        claim->link = NULL;
    }
    pthread_mutex_unlock(&volume->lock);
}

int ligi_remote_claim_sound(ligi_remote_volume *volume, uint64_t id)
{
    pthread_mutex_lock(&volume->lock);
    const ligi_remote_claim *claim = find_claim(volume, id);
    int sound = claim == NULL || !claim->named;
    pthread_mutex_unlock(&volume->lock);
    return sound;
}

lig_status ligi_remote_claim_check(ligi_remote_volume *volume, uint64_t id)
{
    lig_status status = LIG_OK;

    pthread_mutex_lock(&volume->lock);
    ligi_remote_lease *lease = find_claimed(volume, id);
    while (lease != NULL && lease->busy) { /* another thread's writer may be closed meanwhile */
        pthread_cond_wait(&volume->changed, &volume->lock);
        lease = find_claimed(volume, id);
    }
    if (lease != NULL && ligi_remote_boot_ns() - lease->renewed_ns > volume->windows.ttl_ns &&
        !lease->lost)
        status = renew(volume, lease);
    if (lease != NULL && lease->lost)
        status =
            lig_fail(LIG_E_NOTFOUND,
                     "%s: the claim of pack %016" PRIx64 " has expired: this process was stopped "
                     "for too long (save again)",
                     volume->name, id);
    pthread_mutex_unlock(&volume->lock);
    return status;
}

/* --- pins --- */

typedef struct remote_pin {
    ligi_remote_volume *volume;
    ligi_remote_lease lease; /* its object is NULL if the pin had expired before it began */
    pid_t pid;
} remote_pin;

static lig_status pin_packs(remote_pin *pin, const uint64_t *packs, size_t count,
                            int64_t expires_ns)
{
    ligi_remote_volume *volume = pin->volume;
    int64_t left_ns = expires_ns - ligi_date_ns(), ttl_ns = volume->windows.ttl_ns;

    pin->lease.renew = volume->ops->pin_renew;
    pin->lease.renewed_ns = ligi_remote_boot_ns();
    return volume->ops->pin(volume->engine, packs, count, left_ns < ttl_ns ? left_ns : ttl_ns,
                            &pin->lease.thing);
}

lig_status ligi_remote_pin(void *opaque, const uint64_t *packs, size_t count, int64_t expires_ns,
                           void **out)
{
    ligi_remote *self = opaque;
    ligi_remote_volume *volume = self->volume;
    remote_pin *pin;

    LIG_TRY(ligi_remote_writable(self));
    LIG_TRY(ligi_calloc(&pin, 1, sizeof *pin, "a pin"));
    pin->volume = volume;
    pin->pid = getpid();
    if (count == 0 || expires_ns <= ligi_date_ns()) {
        *out = pin;
        return LIG_OK;
    }
    /* Pins first, then checks: a remover condemns first, and then checks for pins. So at least one
     * of the two sees the other. The caller finds the packs that are condemned gone (pack_size,
     * pack_claim), and its model too. */
    lig_status status = pin_packs(pin, packs, count, expires_ns);
    if (status == LIG_OK)
        status = ligi_remote_refresh(volume);
    if (status == LIG_OK)
        status = ligi_remote_lease_begin(volume, &pin->lease, expires_ns);
    if (status == LIG_OK) {
        *out = pin;
        return LIG_OK;
    }
    volume->ops->unpin(pin->lease.thing, 0);
    free(pin);
    return status;
}

void ligi_remote_unpin(void *opaque)
{
    remote_pin *pin = opaque;

    if (pin == NULL)
        return;
    int forked = pin->pid != getpid();
    if (!forked)
        ligi_remote_lease_end(pin->volume, &pin->lease);
    pin->volume->ops->unpin(pin->lease.thing, forked);
    free(pin);
}

/* --- locks by name --- */

typedef struct ligi_remote_name { /* one for each name and process, however often it is taken */
    struct ligi_remote_name *next;
    ligi_remote_volume *volume;
    ligi_remote_lease lease;
    size_t count;
    int taking; /* a thread is asking the service */
    pid_t pid;
    char name[];
} ligi_remote_name;

static ligi_remote_name *find_name(const ligi_remote_volume *volume, const char *name)
{
    ligi_remote_name *found = volume->names;

    while (found != NULL && strcmp(found->name, name) != 0)
        found = found->next;
    return found;
}

static void drop_name(ligi_remote_volume *volume, ligi_remote_name *dropped)
{
    ligi_remote_name **link = (ligi_remote_name **)&volume->names;

    while (*link != dropped)
        link = &(*link)->next;
    *link = dropped->next;
    free(dropped);
}

static lig_status take_name(ligi_remote_name *self)
{
    ligi_remote_volume *volume = self->volume;
    char host[128] = "", holder[192];

    if (gethostname(host, sizeof host - 1) != 0 || host[0] == '\0')
        snprintf(host, sizeof host, "unknown");
    snprintf(holder, sizeof holder, "process %ld on %s", (long)getpid(), host);
    self->lease.renew = volume->ops->lock_renew;
    self->lease.renewed_ns = ligi_remote_boot_ns();
    LIG_TRY(volume->ops->lock(volume->engine, self->name, holder, volume->windows.ttl_ns,
                              &self->lease.thing));
    lig_status status = ligi_remote_lease_begin(volume, &self->lease, INT64_MAX);
    if (status != LIG_OK)
        volume->ops->unlock(self->lease.thing, 0);
    return status;
}

/* The lock is held, and released meanwhile. */
static lig_status add_name(ligi_remote_volume *volume, const char *name, ligi_remote_name **out)
{
    size_t bytes = strlen(name) + 1;
    ligi_remote_name *made;

    LIG_TRY(ligi_calloc(&made, 1, sizeof *made + bytes, "a lock"));
    memcpy(made->name, name, bytes);
    made->volume = volume;
    made->pid = getpid();
    made->taking = 1;
    made->next = volume->names;
    volume->names = made;
    pthread_mutex_unlock(&volume->lock);
    lig_status status = take_name(made);
    pthread_mutex_lock(&volume->lock);
    made->taking = 0;
    if (status != LIG_OK)
        drop_name(volume, made);
    else
        *out = made;
    pthread_cond_broadcast(&volume->changed);
    return status;
}

lig_status ligi_remote_lock(void *opaque, const char *name, void **out)
{
    ligi_remote *self = opaque;
    ligi_remote_volume *volume = self->volume;
    ligi_remote_name *found;
    lig_status status = LIG_OK;

    LIG_TRY(ligi_remote_writable(self));
    if (volume->ops->lock == NULL)
        return lig_fail(LIG_E_UNSUPPORTED,
                        "%s cannot lock names: the service has no locks (use 'ligament serve')",
                        volume->name);
    pthread_mutex_lock(&volume->lock);
    while ((found = find_name(volume, name)) != NULL && found->taking)
        pthread_cond_wait(&volume->changed, &volume->lock);
    if (found == NULL)
        status = add_name(volume, name, &found);
    else if (found->lease.lost)
        status = lig_fail(LIG_E_BUSY, "the lock '%s' of this process was lost", name);
    if (status == LIG_OK) {
        found->count++;
        *out = found;
    }
    pthread_mutex_unlock(&volume->lock);
    return status;
}

void ligi_remote_unlock(void *opaque)
{
    ligi_remote_name *self = opaque;

    if (self == NULL || self->pid != getpid())
        return;
    ligi_remote_volume *volume = self->volume;
    pthread_mutex_lock(&volume->lock);
    int last = --self->count == 0;
    self->taking = last;
    pthread_mutex_unlock(&volume->lock);
    if (!last)
        return;
    ligi_remote_lease_end(volume, &self->lease);
    volume->ops->unlock(self->lease.thing, 0);
    pthread_mutex_lock(&volume->lock);
    drop_name(volume, self);
    pthread_cond_broadcast(&volume->changed);
    pthread_mutex_unlock(&volume->lock);
}

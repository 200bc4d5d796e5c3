/* Links inside one process: between two endpoints, or of one with itself. */
#include "base/boot.h"
#include "base/clock.h"
#include "base/error.h"
#include "net/inproc/pair.h"
#include "net/link/link.h"
#include "net/link/link_receive.h"
#include "net/link/link_send.h"
#include "net/progress.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PORTION ((size_t)256 << 10) /* read under the pair's lock */
#define PORTIONS 16                 /* bytes for one link before the next one is served */

extern const ligi_transport_ops ligi_transport_inproc;

typedef struct inproc inproc;

typedef struct wire {
    struct wire *next, **at;
    inproc *self;
    ligi_link *link;
    ligi_inproc_pair *pair;
    int end;
    ligi_mail *reading;
    struct iovec *iov;
    size_t count;
    uint64_t left;
} wire;

typedef struct knock {
    struct knock *next;
    ligi_inproc_pair *pair;
} knock;

/* A name with a listener. */
typedef struct port {
    struct port *next;     /* in names */
    struct port *next_own; /* of the same endpoint */
    ligi_net *net;
    pid_t pid;
    knock *knocks;
    _Atomic int knocked;
    char name[64];
} port;

struct inproc {
    ligi_net *net;
    wire *wires;
    port *ports;
};

static pthread_mutex_t names_lock = PTHREAD_MUTEX_INITIALIZER;
static port *names;
static pthread_once_t names_once = PTHREAD_ONCE_INIT;

static void before_fork(void)
{
    pthread_mutex_lock(&names_lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&names_lock);
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork, after_fork);
}

static port *find_port(const char *name)
{
    pid_t pid = getpid();

    for (port *at = names; at != NULL; at = at->next)
        if (at->pid == pid && strcmp(at->name, name) == 0)
            return at;
    return NULL;
}

static lig_status inproc_open(ligi_net *net, const ligi_host *host, void **self)
{
    inproc *made;

    (void)host;
    pthread_once(&names_once, watch_forks);
    LIG_TRY(ligi_calloc(&made, 1, sizeof *made, "the inproc transport"));
    made->net = net;
    *self = made;
    return LIG_OK;
}

static void close_port(port *one)
{
    pthread_mutex_lock(&names_lock);
    port **at = &names;
    while (*at != one)
        at = &(*at)->next;
    *at = one->next;
    pthread_mutex_unlock(&names_lock);
    while (one->knocks != NULL) {
        knock *next = one->knocks->next;
        ligi_inproc_pair_leave(one->knocks->pair, 1, NULL);
        free(one->knocks);
        one->knocks = next;
    }
    free(one);
}

/* In a forked child the threads of the other end do not exist, and their locks may be held forever:
 * shared state is not touched. */
static void inproc_close(void *context, int forked)
{
    inproc *self = context;

    while (self->wires != NULL) {
        wire *one = self->wires;
        self->wires = one->next;
        free(one);
    }
    while (self->ports != NULL && !forked) {
        port *one = self->ports;
        self->ports = one->next_own;
        close_port(one);
    }
    free(self);
}

static lig_status take_name(const ligi_uri *uri, char name[64])
{
    uint64_t random;

    if (strlen(uri->rest) >= 64)
        return lig_fail(LIG_E_LIMIT, "'inproc:%s': a name has at most 63 bytes", uri->rest);
    snprintf(name, 64, "%s", uri->rest);
    if (name[0] != '\0')
        return LIG_OK;
    LIG_TRY(ligi_random(&random, sizeof random));
    snprintf(name, 64, "~%016llx", (unsigned long long)random);
    return LIG_OK;
}

static lig_status inproc_listen(void *context, const ligi_uri *uri,
                                char address[LIGI_ADDRESS_BYTES_MAX])
{
    inproc *self = context;
    port *made;

    LIG_TRY(ligi_options_fill(NULL, 0, uri, NULL, NULL));
    LIG_TRY(ligi_calloc(&made, 1, sizeof *made, "a listener"));
    made->net = self->net;
    made->pid = getpid();
    lig_status status = take_name(uri, made->name);
    pthread_mutex_lock(&names_lock);
    if (status == LIG_OK && find_port(made->name) != NULL)
        status =
            lig_fail(LIG_E_EXISTS, "'inproc:%s' is already in use in this process", made->name);
    if (status == LIG_OK) {
        made->next = names;
        names = made;
    }
    pthread_mutex_unlock(&names_lock);
    if (status != LIG_OK) {
        free(made);
        return status;
    }
    made->next_own = self->ports;
    self->ports = made;
    snprintf(address, LIGI_ADDRESS_BYTES_MAX, "inproc:%s", made->name);
    return LIG_OK;
}

/* A name that the caller chose may belong to another process; a generated one does not. */
static int inproc_reaches(void *context, const char *address, int same_host)
{
    (void)context;
    if (!same_host || strncmp(address, "inproc:~", 8) != 0)
        return 0;
    pthread_mutex_lock(&names_lock);
    int found = find_port(address + 7) != NULL;
    pthread_mutex_unlock(&names_lock);
    return found;
}

static lig_status wire_create(inproc *self, ligi_inproc_pair *pair, int end, wire **out)
{
    wire *made;

    LIG_TRY(ligi_calloc(&made, 1, sizeof *made, "a connection"));
    made->self = self;
    made->pair = pair;
    made->end = end;
    made->next = self->wires;
    made->at = &self->wires;
    if (self->wires != NULL)
        self->wires->at = &made->next;
    self->wires = made;
    *out = made;
    return LIG_OK;
}

static lig_status knock_at(port *door, ligi_net *net, ligi_inproc_pair **pair)
{
    knock *made;

    if (door == NULL)
        return LIG_E_PEER;
    LIG_TRY(ligi_calloc(&made, 1, sizeof *made, "a connection"));
    lig_status status = ligi_inproc_pair_create(net, door->net, pair);
    if (status != LIG_OK) {
        free(made);
        return status;
    }
    made->pair = *pair;
    made->next = door->knocks;
    door->knocks = made;
    atomic_store(&door->knocked, 1);
    ligi_net_wake(door->net);
    return LIG_OK;
}

static void wire_send(void *context)
{
    wire *one = context;
    ligi_outgoing *out;

    while ((out = ligi_link_queue(one->link)) != NULL && out->at == 0) {
        int gone;
        lig_status status = ligi_inproc_pair_put(one->pair, one->end, out, &gone);
        if (status == LIG_E_BUSY)
            return;
        if (status != LIG_OK) {
            ligi_link_fail(one->link, status);
            return;
        }
        if (gone)
            ligi_link_gone(one->link);
        else
            out->at = 1;
    }
}

static lig_status inproc_connect(void *context, const ligi_uri *uri, ligi_link *link, void **out)
{
    inproc *self = context;
    ligi_inproc_pair *pair;
    wire *made;

    LIG_TRY(ligi_options_fill(NULL, 0, uri, NULL, NULL));
    pthread_mutex_lock(&names_lock);
    lig_status status = knock_at(find_port(uri->rest), self->net, &pair);
    pthread_mutex_unlock(&names_lock);
    if (status == LIG_E_PEER)
        return lig_fail(status, "nothing in this process is listening on 'inproc:%s'", uri->rest);
    LIG_TRY(status);
    status = wire_create(self, pair, 0, &made);
    if (status != LIG_OK) {
        ligi_inproc_pair_leave(pair, 0, NULL);
        return status;
    }
    made->link = link;
    wire_send(made);
    *out = made;
    return LIG_OK;
}

static void admit(inproc *self, ligi_inproc_pair *pair)
{
    ligi_link *link;
    wire *made;

    if (wire_create(self, pair, 1, &made) != LIG_OK) {
        ligi_inproc_pair_leave(pair, 1, NULL);
        return;
    }
    if (ligi_link_accept(self->net, &ligi_transport_inproc, made, "inproc", &link) != LIG_OK) {
        ligi_transport_inproc.drop(made, 0);
        return;
    }
    made->link = link;
}

static int answer(inproc *self, port *door)
{
    if (!atomic_load_explicit(&door->knocked, memory_order_relaxed))
        return 0;
    pthread_mutex_lock(&names_lock);
    knock *knocks = door->knocks;
    door->knocks = NULL;
    atomic_store(&door->knocked, 0);
    pthread_mutex_unlock(&names_lock);
    while (knocks != NULL) {
        knock *next = knocks->next;
        admit(self, knocks->pair);
        free(knocks);
        knocks = next;
    }
    return 1;
}

static lig_status begin_mail(wire *one)
{
    ligi_incoming in = {.head = one->reading->head};

    LIG_TRY(ligi_link_begin(one->link, &one->reading->prefix));
    LIG_TRY(ligi_link_take(one->link, &in));
    one->iov = in.iov;
    one->count = in.count;
    one->left = in.bytes;
    return LIG_OK;
}

static lig_status read_portion(wire *one)
{
    size_t want = one->left < PORTION ? (size_t)one->left : PORTION;
    void *into = NULL;

    while (one->iov != NULL && one->iov->iov_len == 0)
        one->iov++;
    if (one->iov != NULL) {
        want = want < one->iov->iov_len ? want : one->iov->iov_len;
        into = one->iov->iov_base;
    }
    if (ligi_inproc_pair_read(one->pair, one->reading, into, want) != want)
        return lig_fail(LIG_E_PEER, "%s closed the connection in the middle of a message",
                        ligi_link_name(one->link));
    if (one->iov != NULL) {
        one->iov->iov_base = (uint8_t *)one->iov->iov_base + want;
        one->iov->iov_len -= want;
    }
    one->left -= want;
    return LIG_OK;
}

static void finish_mail(wire *one)
{
    ligi_mail *mail = one->reading;

    one->reading = NULL;
    one->iov = NULL;
    ligi_inproc_pair_done(one->pair, one->end, mail);
    ligi_link_landed(one->link);
}

/* One step: 1 if there may be another. */
static lig_status step(wire *one, int *more)
{
    int closed;

    *more = 1;
    if (one->reading == NULL) {
        one->reading = ligi_inproc_pair_take(one->pair, one->end, &closed);
        if (closed)
            return lig_fail(LIG_E_PEER, "the connection to %s has ended",
                            ligi_link_name(one->link));
        *more = one->reading != NULL;
        return one->reading != NULL ? begin_mail(one) : LIG_OK;
    }
    if (one->left > 0)
        return read_portion(one);
    finish_mail(one);
    return LIG_OK;
}

static void look(wire *one)
{
    lig_status status = LIG_OK;
    int more = 1;

    if (ligi_link_queue(one->link) != NULL && ligi_inproc_pair_returned(one->pair, one->end))
        ligi_link_gone(one->link);
    if (!ligi_link_dead(one->link))
        wire_send(one);
    ligi_link_heard(one->link, ligi_now_ns());
    for (int i = 0; i < PORTIONS && more && status == LIG_OK && !ligi_link_dead(one->link); i++)
        status = step(one, &more);
    if (status != LIG_OK)
        ligi_link_fail(one->link, status);
    else if (more && !ligi_link_dead(one->link))
        ligi_inproc_pair_again(one->pair, one->end);
}

static int inproc_poll(void *context)
{
    inproc *self = context;
    int happened = 0;

    for (port *door = self->ports; door != NULL; door = door->next_own)
        happened += answer(self, door);
    for (wire *one = self->wires; one != NULL; one = one->next) {
        if (ligi_link_dead(one->link) || !ligi_inproc_pair_changed(one->pair, one->end))
            continue;
        look(one);
        happened++;
    }
    return happened;
}

static int inproc_arm(void *context)
{
    inproc *self = context;

    for (port *door = self->ports; door != NULL; door = door->next_own)
        if (atomic_load(&door->knocked))
            return 1;
    for (wire *one = self->wires; one != NULL; one = one->next)
        if (!ligi_link_dead(one->link) && ligi_inproc_pair_pending(one->pair, one->end))
            return 1;
    return 0;
}

static void wire_divert(void *context)
{
    wire *one = context;
    one->iov = NULL;
}

static void wire_drop(void *context, int graceful)
{
    wire *one = context;

    (void)graceful;
    ligi_inproc_pair_leave(one->pair, one->end, one->reading);
    *one->at = one->next;
    if (one->next != NULL)
        one->next->at = one->at;
    free(one);
}

const ligi_transport_ops ligi_transport_inproc = {
    .abi = LIGI_TRANSPORT_ABI,
    .size = sizeof(ligi_transport_ops),
    .scheme = "inproc",
    .help = "inside one process: inproc:name",
    .near = "inproc:",
    .rank = 40,
    .open = inproc_open,
    .close = inproc_close,
    .listen = inproc_listen,
    .reaches = inproc_reaches,
    .connect = inproc_connect,
    .send = wire_send,
    .divert = wire_divert,
    .drop = wire_drop,
    .poll = inproc_poll,
    .arm = inproc_arm,
};

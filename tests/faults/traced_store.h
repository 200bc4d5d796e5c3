/* A store that is made once and copied for every try, and a process that has the copy open while
 * another one is traced. */
#ifndef TRACED_STORE_H
#define TRACED_STORE_H

#include "store_folder.h"
#include "store_peer.h"
#include "trace_kill.h"

typedef struct traced_store {
    char folder[64], template[96], place[96];
    sigset_t mask;
    peer a;
    int refused; /* ptrace is not permitted */
} traced_store;

/* Starts process A and makes the template with these commands of a peer. */
static inline int traced_store_make(traced_store *self, const char *options,
                                    const char *const *commands, size_t count)
{
    peer maker;

    self->mask = trace_prepare();
    snprintf(self->folder, sizeof self->folder, "/tmp/ligament-traced-XXXXXX");
    if (mkdtemp(self->folder) == NULL || peer_start(&self->a) || peer_start(&maker))
        return -1;
    snprintf(self->template, sizeof self->template, "%s/template", self->folder);
    snprintf(self->place, sizeof self->place, "%s/store", self->folder);
    assert_answer(peer_ask(&maker, "open %s%s", self->template, options));
    for (size_t i = 0; i < count; i++)
        assert_answer(peer_ask(&maker, "%s", commands[i]));
    return peer_stop(&maker);
}

static inline int traced_store_remove(traced_store *self)
{
    int failed = peer_stop(&self->a);
    remove_folder(self->folder);
    return failed;
}

#endif

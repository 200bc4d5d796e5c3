#include "net/link/link_send.h"

#include "net/link/link.h"
#include "net/net.h"
#include "net/net_state.h"
#include "net/progress.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FREE_NODES 256
#define HEAD_KEPT 4096

static lig_status node_make(ligi_net *net, ligi_queued_send **node)
{
    ligi_queued_send *made = net->free_nodes;

    if (made != NULL) {
        assert(net->free_node_count > 0);
        net->free_nodes = (ligi_queued_send *)made->out.next;
        net->free_node_count--;
    } else {
        LIG_TRY(ligi_alloc(&made, sizeof *made, "a queued message"));
        made->head_memory = NULL;
        made->head_capacity = 0;
    }
    made->out = (ligi_outgoing){0};
    made->iov_memory = NULL;
    made->notify = 0;
    *node = made;
    return LIG_OK;
}

static void node_free(ligi_net *net, ligi_queued_send *node)
{
    free(node->iov_memory);
    if (net->free_node_count >= FREE_NODES) {
        free(node->head_memory);
        free(node);
        return;
    }
    if (node->head_capacity > HEAD_KEPT) {
        free(node->head_memory);
        node->head_memory = NULL;
        node->head_capacity = 0;
    }
    node->out.next = (ligi_outgoing *)net->free_nodes;
    net->free_nodes = node;
    net->free_node_count++;
}

static lig_status node_head(ligi_queued_send *node, const void *head, size_t bytes)
{
    void *into = node->small;

    if (bytes > sizeof node->small) {
        LIG_TRY(ligi_grow(&node->head_memory, &node->head_capacity, bytes, 1, "a message's head"));
        into = node->head_memory;
    }
    if (bytes > 0)
        memcpy(into, head, bytes);
    node->out.head = into;
    node->out.prefix.head_bytes = (uint32_t)bytes;
    return LIG_OK;
}

static lig_status node_payload(ligi_queued_send *node, const struct iovec *iov, size_t count)
{
    node->out.iov = node->few;
    if (count > LIGI_IOV_FEW) {
        LIG_TRY(ligi_alloc(&node->iov_memory, count * sizeof *iov, "a message's pieces"));
        node->out.iov = node->iov_memory;
    }
    for (size_t i = 0; i < count; i++) {
        if (iov[i].iov_len == 0)
            continue;
        node->out.iov[node->out.count++] = iov[i];
        node->out.prefix.payload_bytes += iov[i].iov_len;
    }
    return LIG_OK;
}

static void append(ligi_link *link, ligi_queued_send *node)
{
    assert((link->first == NULL) == (link->last == NULL) &&
           (link->first == NULL) == (link->queued == 0));
    node->link = link;
    node->number = ++link->numbers;
    if (link->last != NULL)
        link->last->out.next = &node->out;
    else
        link->first = node;
    link->last = node;
    link->queued++;
}

static void unlink_first(ligi_link *link)
{
    ligi_queued_send *node = link->first;

    assert(node != NULL && link->queued > 0);
    link->first = (ligi_queued_send *)node->out.next;
    if (link->first == NULL)
        link->last = NULL;
    link->queued--;
    assert((link->first == NULL) == (link->queued == 0));
    node->out.next = NULL;
}

ligi_outgoing *ligi_link_queue(ligi_link *link)
{
    ligi_queued_send *first = link->first;

    if (first == NULL || link->state == LIGI_UP)
        return first == NULL ? NULL : &first->out;
    /* Before the peer's hello only our hello and a goodbye may be sent, and while it is in `met`
     * only a goodbye. */
    if (first->out.prefix.kind == LIGI_KIND_DATA ||
        (link->state == LIGI_MEETING && first->out.prefix.kind != LIGI_KIND_BYE))
        return NULL;
    return &first->out;
}

ligi_outgoing *ligi_link_queue_end(ligi_link *link)
{
    return link->state == LIGI_UP || link->first == NULL ? NULL : link->first->out.next;
}

static void tell(ligi_queued_send *node, lig_status status)
{
    ligi_link *link = node->link;
    const ligi_served *served = ligi_link_served(link);
    void *token = node->out.token;

    assert(node->notify);
    node_free(link->net, node);
    if (served->hooks != NULL && served->hooks->sent != NULL)
        served->hooks->sent(served->context, link, token, status);
}

void ligi_net_tell_sent(ligi_net *net, const ligi_link *link)
{
    ligi_queued_send **at = &net->finished;

    while (*at != NULL) {
        ligi_queued_send *node = *at;
        if (link != NULL && node->link != link) {
            at = (ligi_queued_send **)&node->out.next;
            continue;
        }
        *at = (ligi_queued_send *)node->out.next;
        if (*at == NULL)
            net->finished_end = at;
        tell(node, LIG_OK);
        at = &net->finished; /* the hook may have changed the list */
    }
}

void ligi_link_gone(ligi_link *link)
{
    ligi_net *net = link->net;
    ligi_queued_send *node = link->first;

    assert(node != NULL && node->link == link);
    unlink_first(link);
    if (node->out.prefix.kind == LIGI_KIND_DATA) {
        net->stats.sent_count++;
        net->stats.lent_bytes += node->out.lent;
        net->stats.sent_bytes += node->out.prefix.head_bytes + node->out.prefix.payload_bytes;
    }
    if (!node->notify) {
        node_free(net, node);
    } else if (net->in_round) {
        tell(node, LIG_OK);
    } else {
        *net->finished_end = node;
        net->finished_end = (ligi_queued_send **)&node->out.next;
        ligi_net_wake(net);
    }
}

void ligi_link_cancel_all(ligi_link *link, lig_status status)
{
    ligi_net_tell_sent(link->net, link);
    while (link->first != NULL) {
        ligi_queued_send *node = link->first;
        unlink_first(link);
        if (node->notify)
            tell(node, status);
        else
            node_free(link->net, node);
    }
    assert(link->queued == 0);
}

void ligi_link_flush(ligi_link *link)
{
    if (link->wire != NULL && !ligi_link_dead(link))
        link->ops->send(link->wire);
}

void ligi_net_flush(ligi_net *net)
{
    ligi_link *link = net->corked;

    net->corked = NULL;
    while (link != NULL) {
        ligi_link *next = link->next_corked;
        assert(link->corked);
        link->corked = 0;
        ligi_link_flush(link);
        link = next;
    }
}

static lig_status put_first(ligi_link *link, ligi_kind kind, const void *head, size_t bytes)
{
    ligi_queued_send *node;

    LIG_TRY(node_make(link->net, &node));
    node->out.prefix.kind = kind;
    lig_status status = node_head(node, head, bytes);
    if (status != LIG_OK) {
        node_free(link->net, node);
        return status;
    }
    /* Nothing may come between the pieces of a message. */
    assert(link->first == NULL || link->first->out.at == 0);
    node->link = link;
    node->number = 0;
    node->out.next = link->first ? &link->first->out : NULL;
    link->first = node;
    if (link->last == NULL)
        link->last = node;
    link->queued++;
    return LIG_OK;
}

lig_status ligi_link_put_hello(ligi_link *link, const void *data, size_t bytes)
{
    ligi_writer writer = {0};
    ligi_hello hello = {.data = data, .bytes = bytes, .uid = getuid(), .pid = (uint32_t)getpid()};

    memcpy(hello.boot_id, link->net->boot_id, sizeof hello.boot_id);
    memcpy(hello.net_id, link->net->net_id, sizeof hello.net_id);
    ligi_hello_encode(&hello, link->service, &writer);
    lig_status status = writer.status;
    if (status == LIG_OK)
        status = put_first(link, LIGI_KIND_HELLO, writer.data, writer.bytes);
    ligi_writer_fini(&writer);
    return status;
}

void ligi_link_take_back_hello(ligi_link *link)
{
    ligi_queued_send *node = link->first;

    if (node != NULL && node->out.prefix.kind == LIGI_KIND_HELLO) {
        unlink_first(link);
        node_free(link->net, node);
    }
}

int ligi_link_hello_left(const ligi_link *link)
{
    return link->first == NULL || link->first->out.prefix.kind != LIGI_KIND_HELLO;
}

/* A partly sent message cannot be followed by a goodbye: the peer then sees the connection end. */
void ligi_link_say_bye(ligi_link *link, lig_status status, const char *text)
{
    uint8_t head[LIGI_BYE_HEAD_MAX];

    if (link->wire == NULL || link->state == LIGI_ENDED)
        return;
    if (link->corked && link->state == LIGI_UP)
        ligi_link_flush(link); /* messages held back only for batching are not cancelled */
    if (link->first != NULL && link->first->out.at != 0)
        return;
    size_t bytes = ligi_bye_encode(status, text, head);
    ligi_link_cancel_all(link, LIG_E_CLOSED);
    if (put_first(link, LIGI_KIND_BYE, head, bytes) != LIG_OK)
        return;
    link->ops->send(link->wire);
    link->graceful = link->first == NULL;
    ligi_link_cancel_all(link, LIG_E_CLOSED);
}

static lig_status check_send(const ligi_link *link, const ligi_send *send, const int *done)
{
    const ligi_net_options *limits = &link->net->options;
    uint64_t total = 0;

    if (link->closed || link->closing)
        return lig_fail(LIG_E_CLOSED, "the link to %s is closed", link->name);
    if (link->state == LIGI_ENDED)
        return lig_fail(link->status, "%s", link->sentence ? link->sentence : "");
    if (send->head_bytes > LIGI_HEAD_BYTES_MAX)
        return lig_fail(LIG_E_LIMIT, "head of a message to %s too long: %zu bytes, the limit is %d",
                        link->name, send->head_bytes, LIGI_HEAD_BYTES_MAX);
    if (send->count > LIGI_PIECES_MAX)
        return lig_fail(LIG_E_LIMIT, "too many pieces in a message to %s: %zu, the limit is %d",
                        link->name, send->count, LIGI_PIECES_MAX);
    for (size_t i = 0; i < send->count; i++) {
        if (send->iov[i].iov_len > limits->payload_bytes_max - total)
            return lig_fail(LIG_E_LIMIT, "message to %s larger than the limit of %llu bytes",
                            link->name, (unsigned long long)limits->payload_bytes_max);
        total += send->iov[i].iov_len;
    }
    if (total > 0 && done == NULL)
        return lig_fail(LIG_E_INTERNAL, "a message with a payload needs `done`");
    if (link->queued >= limits->queue_max)
        return lig_fail(LIG_E_BUSY, "the send queue to %s is full: %zu messages", link->name,
                        link->queued);
    return LIG_OK;
}

static lig_status enqueue(ligi_link *link, const ligi_send *send, uint64_t *number)
{
    ligi_queued_send *node;

    LIG_TRY(node_make(link->net, &node));
    lig_status status = node_head(node, send->head, send->head_bytes);
    if (status == LIG_OK)
        status = node_payload(node, send->iov, send->count);
    if (status != LIG_OK) {
        node_free(link->net, node);
        return status;
    }
    node->out.prefix.kind = LIGI_KIND_DATA;
    node->out.flags = send->flags;
    node->out.token = send->token;
    append(link, node);
    *number = node->number;
    return LIG_OK;
}

static void cork(ligi_link *link)
{
    if (link->corked)
        return;
    assert(link->state != LIGI_ENDED);
    link->corked = 1;
    link->next_corked = link->net->corked;
    link->net->corked = link;
}

/* A queued message is still borrowed. It is the last of the queue, if it is queued, unless a
 * `sent` hook of the flush has sent more. */
static int settle_send(ligi_link *link, uint64_t number)
{
    ligi_queued_send *node = link->last;

    if (node != NULL && node->number > number)
        for (node = link->first; node != NULL && node->number != number;)
            node = (ligi_queued_send *)node->out.next;
    if (node == NULL || node->number != number)
        return 1;
    assert(!node->notify);
    node->notify = node->out.count > 0;
    return !node->notify;
}

lig_status ligi_net_send(ligi_link *link, const ligi_send *send, int *done)
{
    uint64_t number = 0;

    LIG_TRY(ligi_net_mine(link->net));
    ligi_net_enter(link->net);
    lig_status status = check_send(link, send, done);
    if (status == LIG_OK)
        status = enqueue(link, send, &number);
    if (status == LIG_OK) {
        /* Replies sent inside a hook wait for the end of its batch: a batch of requests is answered
         * by a batch. */
        int small = link->net->in_round && link->last->out.count == 0;
        if (small || (send->flags & LIGI_SEND_MORE))
            cork(link);
        else if (link->state == LIGI_UP)
            ligi_link_flush(link);
        int finished = settle_send(link, number);
        if (done != NULL)
            *done = finished;
    }
    ligi_net_leave(link->net);
    return status;
}

static lig_status cancel_one(ligi_link *link, void *token)
{
    ligi_queued_send *before = NULL;

    for (ligi_queued_send *node = link->first; node != NULL;
         node = (ligi_queued_send *)node->out.next) {
        if (node->out.token == token && node->notify) {
            if (node->out.at != 0)
                return lig_fail(LIG_E_BUSY, "the message to %s is already being sent", link->name);
            if (before == NULL) {
                unlink_first(link);
            } else {
                before->out.next = node->out.next;
                if (link->last == node)
                    link->last = before;
                assert(link->queued > 1); /* it was not the first */
                link->queued--;
            }
            tell(node, LIG_E_CLOSED);
            return LIG_OK;
        }
        before = node;
    }
    return lig_fail(LIG_E_NOTFOUND, "no such message is queued for %s", link->name);
}

lig_status ligi_net_cancel(ligi_link *link, void *token)
{
    LIG_TRY(ligi_net_mine(link->net));
    ligi_net_enter(link->net);
    lig_status status = cancel_one(link, token);
    ligi_net_leave(link->net);
    return status;
}

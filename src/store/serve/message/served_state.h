/* The state of a served store: information, counts, reports, timestamps, events. Pure. */
#ifndef LIGI_SERVED_STATE_H
#define LIGI_SERVED_STATE_H

#include "store/serve/message/served_head.h"

typedef struct ligi_served_info {
    const char *uri;         /* of the store, on the server */
    const char *description; /* lig_store_describe */
    const char *release;     /* lig_version of the server */
    const uint8_t *card;     /* of the server's endpoint */
    size_t card_bytes;
} ligi_served_info;

void ligi_served_info_put(ligi_writer *writer, const ligi_served_info *info);
lig_status ligi_served_info_get(const void *body, size_t bytes, ligi_served_info *info);

void ligi_served_stats_put(ligi_writer *writer, const lig_store_stats *stats);
lig_status ligi_served_stats_get(const void *body, size_t bytes, lig_store_stats *stats);

void ligi_served_report_put(ligi_writer *writer, const lig_report *report);
/* report->problems is freed by fini. */
lig_status ligi_served_report_get(const void *body, size_t bytes, lig_report *report);
void ligi_served_report_fini(lig_report *report);

void ligi_served_stamps_put(ligi_writer *writer, const int64_t *stamps, size_t count);
/* The caller frees *stamps with free(). */
lig_status ligi_served_stamps_get(const void *body, size_t bytes, int64_t **stamps, size_t *count);

/* Asks for the events of the commits after `since`. The server replies as soon as there is such a
 * commit, and after `wait_ns` at the latest. LIG_E_NOTFOUND as for catalog_events. */
typedef struct ligi_served_watch {
    uint64_t since;
    uint64_t wait_ns; /* 0: at once */
    uint64_t limit;   /* no commit is added once there are this many events; 0: only the version is
                       * requested, and `since` is not checked unless it waits */
} ligi_served_watch;

#define LIGI_SERVED_WAIT_NS_MAX UINT64_C(60000000000) /* a longer wait_ns is reduced to this */

void ligi_served_watch_put(ligi_writer *writer, const ligi_served_watch *watch);
lig_status ligi_served_watch_get(const void *body, size_t bytes, ligi_served_watch *watch);

typedef struct ligi_served_event {
    uint64_t version;
    int64_t date_ns;
    const uint8_t *data; /* as ligi_event_put writes them */
    size_t bytes;
} ligi_served_event;

/* All events of the commits from `since` of the request up to version `until`. */
typedef struct ligi_served_events {
    uint64_t until;
    ligi_served_event *events; /* freed by fini */
    size_t count;
} ligi_served_events;

void ligi_served_events_put(ligi_writer *writer, const ligi_served_events *events);
lig_status ligi_served_events_get(const void *body, size_t bytes, ligi_served_events *events);
void ligi_served_events_fini(ligi_served_events *events);

#endif

/* For the test and the fuzz program: every body read and written again. */
#ifndef LIGI_SERVED_MESSAGE_TESTING_H
#define LIGI_SERVED_MESSAGE_TESTING_H

#include "store/serve/message/served_changes.h"
#include "store/serve/message/served_find.h"
#include "store/serve/message/served_models.h"
#include "store/serve/message/served_reads.h"
#include "store/serve/message/served_save.h"
#include "store/serve/message/served_state.h"

#include <stdlib.h>

typedef lig_status (*served_recode)(const void *body, size_t bytes, ligi_writer *out);

#define RECODE(name, type)                                                                         \
    static lig_status recode_##name(const void *body, size_t bytes, ligi_writer *out)              \
    {                                                                                              \
        type value = {0};                                                                          \
        lig_status status = ligi_served_##name##_get(body, bytes, &value);                         \
        if (status == LIG_OK)                                                                      \
            ligi_served_##name##_put(out, &value);                                                 \
        return status;                                                                             \
    }

#define RECODE_FINI(name, type)                                                                    \
    static lig_status recode_##name(const void *body, size_t bytes, ligi_writer *out)              \
    {                                                                                              \
        type value = {0};                                                                          \
        lig_status status = ligi_served_##name##_get(body, bytes, &value);                         \
        if (status == LIG_OK)                                                                      \
            ligi_served_##name##_put(out, &value);                                                 \
        ligi_served_##name##_fini(&value);                                                         \
        return status;                                                                             \
    }

RECODE(hello, ligi_served_hello)
RECODE(welcome, ligi_served_welcome)
RECODE(error, ligi_served_error)
RECODE(selector, ligi_served_selector)
RECODE(model, ligi_served_model)
RECODE_FINI(list, ligi_served_list)
RECODE_FINI(lineage, ligi_served_lineage)
RECODE_FINI(query, lig_query)
RECODE_FINI(read, ligi_served_read)
RECODE(descriptor, ligi_served_descriptor)
RECODE_FINI(update, ligi_served_update)
RECODE(alias, ligi_served_alias)
RECODE_FINI(save, ligi_served_save)
RECODE(saved, ligi_served_saved)
RECODE_FINI(need, ligi_served_need)
RECODE_FINI(find, ligi_served_find)
RECODE_FINI(matches, ligi_served_matches)
RECODE(info, ligi_served_info)
RECODE(stats, lig_store_stats)
RECODE_FINI(report, lig_report)
RECODE(watch, ligi_served_watch)
RECODE_FINI(events, ligi_served_events)

static lig_status recode_number(const void *body, size_t bytes, ligi_writer *out)
{
    uint64_t number;
    LIG_TRY(ligi_served_number_get(body, bytes, &number));
    ligi_served_number_put(out, number);
    return LIG_OK;
}

static lig_status recode_text(const void *body, size_t bytes, ligi_writer *out)
{
    const char *text;
    LIG_TRY(ligi_served_text_get(body, bytes, &text));
    ligi_served_text_put(out, text);
    return LIG_OK;
}

static lig_status recode_stamps(const void *body, size_t bytes, ligi_writer *out)
{
    int64_t *stamps;
    size_t count;
    LIG_TRY(ligi_served_stamps_get(body, bytes, &stamps, &count));
    ligi_served_stamps_put(out, stamps, count);
    free(stamps);
    return LIG_OK;
}

static const served_recode served_recodes[] = {
    recode_hello,  recode_welcome, recode_error,  recode_selector, recode_model,
    recode_list,   recode_lineage, recode_query,  recode_read,     recode_descriptor,
    recode_update, recode_alias,   recode_save,   recode_saved,    recode_need,
    recode_find,   recode_matches, recode_info,   recode_stats,    recode_report,
    recode_watch,  recode_events,  recode_number, recode_text,     recode_stamps,
};

enum { SERVED_RECODES = sizeof served_recodes / sizeof served_recodes[0] };

#endif
